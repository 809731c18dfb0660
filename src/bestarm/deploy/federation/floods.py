"""Floods: which clients send far more than an honest client can, and what the run records about it.

``Floods`` decides from counts alone: totals per slot go in, the slots to cut off come out. An honest client
sends one message at a time and waits until the broker has stored it, acknowledges each broadcast once, and
sends nothing that is too long. So it stays far below the limits, even if it sends all messages of a
long journal again. ``CutOffs`` is the part of the server's journal that says who was cut off, and when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bestarm.problem.layout import Layout
from bestarm.records.build import CUT_OFF
from bestarm.util.text import visible

BLOCK, ALLOW = "block", "allow"  # the events of the server's journal


class Limit(NamedTuple):
    """So many per second for ever, and `burst` more at once."""

    rate: float
    burst: float


class Totals(NamedTuple):
    """What a slot has done so far. Each total may start again at 0.

    `received` messages came from it, `answered` ones went to it (answers and broadcasts), `useless` ones were
    read by the server but not accepted, and `violations` were too long for the broker.
    """

    received: int = 0
    answered: int = 0
    useless: int = 0
    violations: int = 0


class Known(NamedTuple):
    """What an honest client may repeat at once, even twice.

    It may acknowledge all `broadcasts` again, and send all its `messages` that the server has.
    """

    broadcasts: int = 0
    messages: int = 0


# A client gets an answer to each message, or sends it as an answer: one with more messages waits for none.
UNANSWERED = Limit(500.0, 2_000.0)
RECEIVED = Limit(2_000.0, 6_000.0)  # one that waits for each message to be stored sends some hundreds
USELESS = Limit(50.0, 500.0)  # mostly messages that the server has already
VIOLATIONS = Limit(0.2, 3.0)  # each makes the broker close the connection


class _Level:
    """How much of a limit is left for one slot."""

    def __init__(self, limit: Limit, since: float) -> None:
        self.limit, self.left = limit, limit.burst
        self.since, self.count = since, 0  # since when it is in use, and what came since

    def take(self, count: int, seconds: float) -> None:
        """Use the limit for what came in these seconds."""
        self.count += count
        self.left = min(self.limit.burst, self.left + self.limit.rate * seconds - count)


WORDS = {
    "unanswered": ("messages for which it awaits no answer", UNANSWERED),
    "received": ("messages", RECEIVED),
    "useless": ("messages that are not accepted", USELESS),
    "violations": ("messages that are too long", VIOLATIONS),
}


class Floods:
    """Finds the slots that flood the broker.

    Examples
    --------
    >>> floods = Floods()
    >>> floods.look(0.0, {"s1": Totals(), "s2": Totals()})
    {}
    >>> floods.look(1.0, {"s1": Totals(received=300, answered=300), "s2": Totals(received=40_000)})
    {'s2': '40,000 in 1 s: messages for which it awaits no answer'}
    """

    def __init__(self) -> None:
        self._seen: dict[str, Totals] = {}
        self._looked = 0.0
        self._levels: dict[str, dict[str, _Level]] = {}  # of slots that have sent faster than a limit's rate

    def look(
        self, now: float, totals: Mapping[str, Totals], known: Callable[[str], Known] = lambda slot: Known()
    ) -> dict[str, str]:
        """Compare the totals with those of the last look.

        Parameters
        ----------
        now : float
            The time in seconds, of any clock that does not go back.
        totals : mapping
            The totals of each slot. The first look at a slot only remembers them.
        known : callable
            Returns what the client of a slot may repeat.

        Returns
        -------
        dict
            The slots that exceed a limit, with what they did.
        """
        found, seconds, self._looked = {}, now - self._looked, now
        for slot, total in totals.items():
            before, self._seen[slot] = self._seen.get(slot, total), total
            if total == before and slot not in self._levels:
                continue
            news = [new if new < old else new - old for old, new in zip(before, total, strict=True)]
            counts = (news[0] - news[1], news[0], news[2], news[3])
            if reason := self._judge(slot, counts, seconds, known):
                found[slot] = reason
        return found

    def _judge(
        self, slot: str, counts: tuple[int, ...], seconds: float, known: Callable[[str], Known]
    ) -> str:
        """What this slot did if it exceeds a limit; empty if not."""
        levels = self._levels.get(slot)
        if levels is None:
            if all(n <= limit.rate * seconds for n, (_, limit) in zip(counts, WORDS.values(), strict=True)):
                return ""
            begin = self._looked - seconds
            levels = self._levels[slot] = {kind: _Level(limit, begin) for kind, (_, limit) in WORDS.items()}
        broadcasts, messages = known(slot)
        more = {"received": 2 * broadcasts, "useless": 2 * messages}
        for count, (kind, level) in zip(counts, levels.items(), strict=True):
            level.take(count, seconds)
            if level.left + more.get(kind, 0) < 0:
                took = max(1.0, self._looked - level.since)
                return f"{level.count:,} in {took:.0f} s: {WORDS[kind][0]}"
        if all(level.left >= level.limit.burst for level in levels.values()):
            del self._levels[slot]
        return ""

    def forget(self, slot: str) -> None:
        """Start again with this slot, for example after its client was allowed again."""
        self._seen.pop(slot, None)
        self._levels.pop(slot, None)


class CutOffs:
    """Who was cut off and allowed again, from the events of a server's journal.

    Parameters
    ----------
    layout : Layout
        The clients and their groups.
    changes : list of str
        The changes of keys, to which the events are added in words.
    """

    def __init__(self, layout: Layout, changes: list[str]) -> None:
        self.layout, self.changes = layout, changes
        self.now: dict[str, str] = {}  # clients that are cut off, with the reason
        self.warnings: list[dict[str, Any]] = []  # for the record
        self.count = 0

    def hear(self, seq: int, kind: str, body: bytes, round: int) -> None:
        """Apply an event of the journal."""
        plain = json.loads(body)
        client, at, why = (visible(str(plain.get(key, ""))) for key in ("client", "at", "why"))
        if kind == ALLOW:
            self.now.pop(client, None)
            text = f"{client} was allowed again at {at}"
        else:
            self.now[client] = why
            self.count += 1
            text = f"{client} {CUT_OFF} at {at} ({why})"
            group = self.layout.groups[self.layout.group_of[client]].name
            self.warnings.append({"group": group, "round": round, "text": text})
        self.changes.append(f"event {seq}: {text}")


def event(client: str, at: str, why: str = "") -> bytes:
    """The body of an event of ``CutOffs``: a client, the time in words, and why it was cut off."""
    return json.dumps({"client": client, "at": at, **({"why": why} if why else {})}).encode()
