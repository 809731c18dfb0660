"""The pulls of a fold: write to the journal before pulling, never pay twice.

``asked`` is in the journal before a batch is pulled and ``rewards`` before the batch counts: no pull that
was paid for is lost, and none counts twice. Federation clients and mesh peers share this module.
"""

from __future__ import annotations

import json
import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bestarm.deploy.outbox import Outbox
from bestarm.problem.layout import Group
from bestarm.protocol.events import Action, Decided, Pull, Pulled, Send, Stop, Supply
from bestarm.protocol.machine import ClientMachine
from bestarm.protocol.summaries import Tally
from bestarm.protocol.verdict import Verdict
from bestarm.util.journal import Event
from bestarm.util.text import counted

log = logging.getLogger("bestarm")


class Pulls(ABC):
    """The pulls that a machine wants, the rewards so far, and those that do not count yet.

    A fold derives from this class and handles all other events of the machine.
    """

    machine: ClientMachine

    def __init__(self, group: Group, outbox: Outbox, *, coins: bool = False) -> None:
        self.group, self.outbox = group, outbox
        self.tally = Tally(len(group.arms), coins or group.binary)  # rewards that count
        self.pull: Pull | None = None
        self.said: list[Send] = []  # messages of the machine
        self.verdict: Verdict | None = None
        self.kept: list[list[float]] = [[] for _ in group.arms]  # rewards that do not count yet
        self.made: Counter[str] = Counter()  # pulls of each arm
        self.played: dict[str, tuple[int, str]] = {}  # by arm: rows played, and their digest
        self.redrawn = False  # whether rows of a file were drawn with replacement
        self.unanswered: dict[str, Any] | None = None  # a batch without an answer

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether there are no more pulls to make."""

    @property
    def stoppable(self) -> bool:
        """Whether this party can tell the others that it has no more rewards."""
        return True

    @property
    def compared(self) -> bool:
        """Whether somebody compares the recordings that the sites play."""
        return False

    def stop(self, reason: str) -> None:
        """Handle that there are no more rewards."""
        self.outbox.append("stop", reason.encode())
        self._end(reason)
        self._speak()
        self.write()

    def write(self) -> None:
        """Write all pending events to disk atomically."""
        self.outbox.write()

    def note(self, text: str) -> None:  # noqa: B027 (a peer has no operator to notify)
        """Send a message to the operator."""

    @abstractmethod
    def _speak(self) -> None:
        """Sign new messages of the machine; they may be sent after the next ``write``."""

    @property
    def pulls(self) -> int:
        return sum(self.made.values())

    def ask(self, pull: Pull, times: int) -> None:
        """Record that a pull is about to be carried out `times` times."""
        body = {"arms": [self.group.arms[a] for a in pull.arms], "times": times}
        if pull.shares:
            body["shares"] = list(pull.shares)
        self.outbox.append("asked", msgspec.json.encode(body))
        self.write()

    def rewards(self, got: Mapping[int, Sequence[float]], mark: Mapping[str, Any] | None = None) -> None:
        """Take the rewards of a batch, in [0, 1]. Only as many count now as the machine asked for.

        `mark` comes from the source: after a restart it shows whether the source is unchanged.
        """
        for arm, values in got.items():
            self.kept[arm].extend(values)
        times, used = self._use()
        body = {
            "got": {self.group.arms[arm]: len(values) for arm, values in got.items()},
            "times": times,
            "sums": [math.fsum(values) for values in used],
            "rest": {str(arm): values for arm, values in enumerate(self.kept) if values},
            **(mark or {}),
        }
        if used and self.pull and self.pull.moments:
            body["squares"] = [math.fsum(x * x for x in values) for values in used]
            body["least"], body["most"] = [min(values) for values in used], [max(values) for values in used]
        self.outbox.append("rewards", msgspec.json.encode(body))
        self._count(body)
        self._speak()
        self.write()

    def _use(self) -> tuple[int, list[list[float]]]:
        """Take the rewards that count now: how often the pull was made, and the rewards of each arm."""
        if self.pull is None:
            return 0, []
        shares = dict(zip(self.pull.arms, self.pull.each, strict=True))
        times = min([self.pull.times, *(len(self.kept[arm]) // share for arm, share in shares.items())])
        used = [self.kept[arm][: times * share] for arm, share in shares.items() if times]
        for arm, share in shares.items():
            del self.kept[arm][: times * share]
        return times, used

    def _count(self, body: Mapping[str, Any]) -> None:
        self.made.update(body["got"])
        self.played.update({arm: (times, digest) for arm, (times, digest) in body.get("played", {}).items()})
        self.redrawn |= body.get("redrawn", False)
        if body["times"]:
            squares, least, most = (tuple(body.get(key, ())) for key in ("squares", "least", "most"))
            pulled = Pulled(tuple(body["sums"]), body["times"], squares, least, most)
            if self.pull is not None:
                self.tally.add(self.pull, pulled)
            self.pull = None  # the machine then states again what it still wants
            self._act(self.machine.handle(pulled))

    def supply(self, left: Sequence[int | None]) -> None:
        """Tell the machine how many more rewards the source has of each arm, if it plans with that."""
        asks = (self.machine.state, Supply) in self.machine.transitions and self.stoppable
        if asks and any(n is not None for n in left):
            rows = zip(left, self.kept, strict=True)
            body = [None if n is None else n + len(kept) for n, kept in rows]
            self.outbox.append("supply", msgspec.json.encode(body))
            self._act(self.machine.handle(Supply(tuple(body))))
            self.write()

    def _end(self, reason: str) -> None:
        self.pull = None
        self._act(self.machine.handle(Stop(reason)))

    def _act(self, actions: list[Action]) -> None:
        """Process the actions of the machine."""
        for action in actions:
            match action:
                case Pull(arms):
                    self.pull = action if arms else None
                case Send():
                    self.said.append(action)
                case Decided(verdict):
                    self.verdict = verdict

    def _replay_pulls(self, event: Event) -> None:
        """Apply an event of the journal to the pulls."""
        self.unanswered = json.loads(event.body) if event.kind == "asked" else None
        if event.kind == "supply":
            self._act(self.machine.handle(Supply(tuple(json.loads(event.body)))))
        if event.kind == "rewards":
            plain = json.loads(event.body)
            self.kept = [plain["rest"].get(str(arm), []) for arm in range(len(self.group.arms))]
            self._count(plain)

    def warn(self, who: str) -> None:
        """Warn the operator about a batch that a crash may have lost."""
        if not self.unanswered:
            return
        arms, times = self.unanswered["arms"], self.unanswered["times"]
        shares = self.unanswered.get("shares", [1] * len(arms))
        kept = dict(zip(self.group.arms, map(len, self.kept), strict=True))
        pulls = sum(max(0, times * n - kept[arm]) for arm, n in zip(arms, shares, strict=True))
        if pulls:
            log.warning(
                "%s: %s (%s) had no answer when the process ended; %s made again",
                who, counted(pulls, "pull"), ", ".join(arms), "it is" if pulls == 1 else "they are",
            )  # fmt: skip
