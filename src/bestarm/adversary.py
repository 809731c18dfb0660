"""Lying clients, for simulation: wrappers around an honest machine that twist what it says.

A liar knows everything: the true means, the options, what every honest client has seen, and who else lies.
Its honest machine goes on inside, so that it knows what would be said; an attack changes that.

To add one, write a class with a name; its docstring says what it tries:

>>> class Modest(Attack, name="modest"):
...     '''Says that its arm is a little worse than it is.'''
...
...     def mean(self, arm: int, mean: float) -> float:
...         return 0.9 * mean
>>> "modest" in attacks()
True
>>> del ATTACKS["modest"]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bestarm.confidence import MAX_COUNT
from bestarm.errors import InputError, nearest, shorten
from bestarm.problem import Layout, Problem
from bestarm.protocol import decide, fedsel, fisher, pooled, robust
from bestarm.protocol.machine import ALL, Action, Event, PatienceOver, Send
from bestarm.protocol.messages import (
    Claim,
    Conclusion,
    Refinement,
    Reply,
    Report,
    Sums,
    decode_claim,
    decode_grouped,
    decode_refinement,
    decode_report,
    decode_sums,
    encode_grouped,
    encode_sums,
)
from bestarm.protocol.peer import Peer
from bestarm.protocol.rounds import SERVER
from bestarm.rewards import stream

ATTACKS: dict[str, type[Attack]] = {}


def attacks() -> list[str]:
    """The names of all registered attacks.

    >>> "bury" in attacks()
    True
    """
    return list(ATTACKS)


@dataclass(frozen=True)
class Adversary:
    """Clients of one group that lie: a number (the first ones) or their names, the attack and its options."""

    group: str
    attack: str
    clients: int | Sequence[str] = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def names(self, layout: Layout) -> tuple[str, ...]:
        """The liars' names, checked."""
        groups = {group.name: group for group in layout.groups}
        where = f"adversary of group {shorten(self.group)}"
        if not isinstance(self.group, str) or self.group not in groups:
            raise InputError("there is no such group", where=where, fix=nearest(str(self.group), groups))
        if not isinstance(self.attack, str) or self.attack not in ATTACKS:
            raise InputError(
                f"attack {shorten(self.attack)} is unknown",
                where=where,
                fix=nearest(str(self.attack), ATTACKS),
            )
        settings = ATTACKS[self.attack].settings
        if not isinstance(self.options, Mapping) or not all(key in settings for key in self.options):
            raise InputError(
                f"options = {shorten(self.options)}",
                where=where,
                expected=f"a table with keys among: {', '.join(settings) or 'none'}",
            )
        for key, value in self.options.items():
            if type(value) is not type(settings[key]) or value < 0:
                raise InputError(
                    f"options: {key} = {shorten(value)}", where=where, expected=f"one like {settings[key]!r}"
                )
        known = groups[self.group].clients
        if isinstance(self.clients, int) and not isinstance(self.clients, bool):
            if not 1 <= self.clients <= len(known):
                raise InputError(
                    f"clients = {self.clients}",
                    where=where,
                    expected=f"a number from 1 to {len(known)}, or names",
                )
            return known[: self.clients]
        if isinstance(self.clients, str) or not isinstance(self.clients, Sequence):
            raise InputError(f"clients = {shorten(self.clients)}", where=where, expected="a number, or names")
        for name in self.clients:
            if name not in known:
                raise InputError(
                    f"there is no client {shorten(name)}", where=where, fix=nearest(str(name), known)
                )
        return tuple(self.clients)

    def to_dict(self, layout: Layout) -> dict[str, Any]:
        """Plain values; the clients by name."""
        return {
            "group": self.group,
            "clients": list(self.names(layout)),
            "attack": self.attack,
            "options": dict(self.options),
        }


def check_adversaries(layout: Layout, adversaries: Sequence[Adversary]) -> dict[str, Adversary]:
    """The liars by name; InputError if one is named twice."""
    liars: dict[str, Adversary] = {}
    for adversary in adversaries:
        for name in adversary.names(layout):
            if name in liars:
                raise InputError(
                    f'client "{name}" has two attacks', where="[[adversary]]", expected="one each"
                )
            liars[name] = adversary
    return liars


def target(problem: Problem) -> tuple[int, int]:
    """The arm that liars would bury: the best one (the first of several), by group and index."""
    flat = [
        (-(0.5 if mean is None else mean), j, arm)
        for j, row in enumerate(problem.means)
        for arm, mean in enumerate(row)
    ]
    return min(flat)[1:]


@dataclass
class World:
    """What liars know: the problem with its true means, the options, and every machine."""

    problem: Problem
    options: Any
    machines: list[Any] = field(default_factory=list)
    liars: set[str] = field(default_factory=set)

    def mean(self, j: int, arm: int) -> float:
        """The true mean of an arm, or one half where nobody knows it."""
        mean = self.problem.means[j][arm]
        return 0.5 if mean is None else mean

    @property
    def best(self) -> tuple[int, int]:
        """The group and the index of the best arm."""
        return target(self.problem)

    def heard_by(self, name: str) -> list[str]:
        """Peers: who hears a client."""
        return [m.name for m in self.machines if name in m.neighbours]

    def honest(self, j: int) -> list[Any]:
        """The machines of a group's honest clients."""
        return [m for m in self.machines if m.group == j and m.name not in self.liars]


def observed(machine: Any, arm: int) -> float | None:
    """The empirical mean of an arm, as a client has it; None where it has none."""
    if isinstance(machine, pooled.Client):
        return float(machine.sums[arm]) / machine.count if machine.count else None
    return machine.sum / machine.count if machine.count and machine.arm == arm else None


class Attack:
    """One lying client. By itself it is honest; an attack overrides what it lies about.

    `turn` counts the messages that the honest machine has sent before. With `waits` it speaks only when all
    honest clients have spoken in the round.
    """

    title: ClassVar[str] = ""
    waits: ClassVar[bool] = False
    settings: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name:
            cls.title = name
            ATTACKS[name] = cls

    def __init__(self, machine: Any, world: World, rng: np.random.Generator, **options: Any) -> None:
        self.machine, self.world, self.rng = machine, world, rng
        self.options = {**self.settings, **options}
        self.subject: int = machine.group  # the arm-set that it speaks of
        self.turn = 0
        self.held: list[Send] = []

    # What an attack may override.

    def begins(self) -> list[bytes]:
        """What it sends before its first pull."""
        return []

    def speaks(self) -> bool:
        """Whether it says anything now."""
        return True

    def arm(self, arm: int) -> int:
        """The arm that it votes for."""
        return arm

    def count(self, count: int) -> int:
        """The sample count that it claims."""
        return count

    def mean(self, arm: int, mean: float) -> float:
        """The mean that it claims of an arm."""
        return mean

    def verdict(self, group: int, arm: int) -> tuple[int, int]:
        """The verdict that a peer announces: by default the truth, if it lies about no mean."""
        if self.mean(arm, 0.5) == 0.5 and self.arm(arm) == arm:
            return group, arm
        return (group + 1) % len(self.machine.layout.groups), 0

    def words(self, payload: bytes) -> list[bytes]:
        """What goes out instead of this message."""
        return [payload]

    def words_for(self, place: int, payload: bytes) -> list[bytes]:
        """Peers: what goes to the out-neighbour in this place; another story for each, if it likes."""
        return self.words(payload)

    # The machine that it is.

    @property
    def in_best_group(self) -> bool:
        return bool(self.world.best[0] == self.subject)

    def __getattr__(self, key: str) -> Any:
        if key == "machine":
            raise AttributeError(key)
        return getattr(self.machine, key)

    def local(self) -> dict[str, Any]:
        return {"attack": self.title}

    def handle(self, event: Event) -> list[Action]:
        before: list[Action] = []
        if isinstance(event, PatienceOver):
            held, self.held = self.held, []
            before = [new for send in held for new in self._say(send)]
            if not isinstance(self.machine, Peer):
                return before
        elif self.machine.state == "new":
            to = ALL if isinstance(self.machine, Peer) else SERVER
            before = [Send(to, payload, 8 * len(payload)) for payload in self.begins()]
        for action in self.machine.handle(event):
            if not isinstance(action, Send):
                before.append(action)
            elif self.waits:
                self.held.append(action)
            else:
                before += self._say(action)
        return before

    def _say(self, send: Send) -> list[Action]:
        try:
            if not self.speaks():
                return []
            payload = twist(self, send.payload)
            if isinstance(self.machine, Peer):
                stories = [
                    (to, self.words_for(k, payload)) for k, to in enumerate(self.world.heard_by(self.name))
                ]
            else:
                stories = [(SERVER, self.words(payload))]
        finally:
            self.turn += 1
        return [Send(to, words, 8 * len(words)) for to, several in stories for words in several]


def twist(attack: Attack, payload: bytes) -> bytes:
    """A message of the honest machine as the attack would have it."""
    machine = attack.machine
    if isinstance(machine, Peer):
        return _twist_claim(attack, payload)
    if isinstance(machine, pooled.Client):
        return _twist_sums(attack, payload)
    if isinstance(machine, robust.Client):
        return _twist_grouped(attack, payload)
    return _twist_plain(attack, payload) if isinstance(machine, fedsel.Client) else payload


def _twist_vote(attack: Attack, report: Report) -> Report:
    arm, count = attack.arm(report.arm), attack.count(report.count)
    return Report(arm, count, attack.mean(arm, report.mean), report.remaining)


def _twist_mean(attack: Attack, index: int | None, mean: float | None, bits: int, new_bits: int) -> Any:
    """The bin or the mean of a refinement, twisted."""
    if index is None:
        return {"mean": None if mean is None else attack.mean(attack.machine.arm, mean)}
    said = attack.mean(attack.machine.arm, float(decide.bin_centre(index, bits)))
    return {"index": int(decide.bin_index(min(max(said, 0.0), 1.0), new_bits))}


def _twist_grouped(attack: Attack, payload: bytes) -> bytes:
    machine = attack.machine
    quantiser = machine.options.quantiser

    def precision(count: int) -> int:
        return int(decide.precision(machine.radius.alpha(count)))

    message, _ = decode_grouped(payload, machine.wire, machine.group, 1, precision if quantiser else None)
    bits = 0
    if isinstance(message, Report):
        message = _twist_vote(attack, message)
    elif isinstance(message, Reply):
        count = attack.count(message.count)
        bits = precision(count)
        facts = _twist_mean(attack, message.index, message.mean, precision(message.count), bits)
        message = Reply(count, **facts)
    return encode_grouped(message, machine.wire, machine.group, bits)[0]


def _twist_plain(attack: Attack, payload: bytes) -> bytes:
    machine = attack.machine
    if attack.turn == 0:
        message, _ = decode_report(payload, machine.wire, machine.group, 1)
        if isinstance(message, Report):
            return _twist_vote(attack, message).encode(machine.wire, machine.group)[0]
        return payload
    bits = int(decide.precision(machine.radius.alpha(machine.count)))
    facts = machine.wire, machine.group, machine.count, bits
    refinement, _ = decode_refinement(payload, *facts, machine.options.quantiser)
    said = _twist_mean(attack, refinement.index, refinement.mean, bits, bits)
    return Refinement(**said).encode(*facts)[0]


def _twist_sums(attack: Attack, payload: bytes) -> bytes:
    machine = attack.machine
    look, arms, sums = machine.sent[-1] if machine.sent else (0, (), ())
    n = machine.looks.size(look)
    first = machine.looks.quiet
    message, _ = decode_sums(payload, machine.wire, lambda _: (len(arms), n), look - first)
    if not isinstance(message, Sums):
        return payload
    said = dict(zip(arms, sums, strict=True))
    top = max(arms, key=lambda arm: said[arm])
    other = attack.arm(top)
    if other in said:
        said[top], said[other] = said[other], said[top]
    said = {arm: round(attack.mean(arm, total / n) * n) for arm, total in said.items()}
    late = int(attack.count(n) != n)  # there are no counts to lie about, but the look
    totals = tuple(min(max(said[arm], 0), n) for arm in arms)
    return encode_sums(Sums(look - first + late, totals), machine.wire, n)[0]


def _twist_claim(attack: Attack, payload: bytes) -> bytes:
    machine = attack.machine
    counts, exchange = machine.layout.arm_counts, machine.options.exchange
    message = decode_claim(payload, counts, exchange)
    attack.subject = message.group
    if isinstance(message, Conclusion):
        group, arm = attack.verdict(message.group, message.arm)
        return Conclusion(group, arm).encode(counts, exchange)[0]
    arm = attack.arm(message.arm)
    if exchange == "means":
        return Claim(message.group, arm, mean=attack.mean(arm, message.mean)).encode(counts, exchange)[0]
    centre, half = (message.lower + message.upper) / 2.0, (message.upper - message.lower) / 2.0
    seen = min(max(centre, 0.0), 1.0)
    said, count = attack.mean(arm, seen), attack.count(1000)
    if (said, count, arm) == (seen, 1000, message.arm):
        return payload
    half = -half if count < 1000 else 1e-9 if count > 1000 else half  # no interval; a point
    low, high = (min(max(x, -1.0), 2.0) for x in (said - half, said + half))
    return Claim(message.group, arm, lower=low, upper=high).encode(counts, exchange)[0]


class Silent(Attack, name="silent"):
    """Never says a word: tries to make the server wait."""

    def speaks(self) -> bool:
        return False


class SilentLater(Attack, name="silent-later"):
    """Reports like an honest client and falls silent after `turns` messages."""

    settings: ClassVar[dict[str, Any]] = {"turns": 1}

    def speaks(self) -> bool:
        return bool(self.turn < self.options["turns"])


class Crash(Attack, name="crash"):
    """Is gone for some rounds and comes back as if nothing had been."""

    settings: ClassVar[dict[str, Any]] = {"at": 1, "turns": 2}

    def speaks(self) -> bool:
        at = self.options["at"]
        return not at <= self.turn < at + self.options["turns"]


class Vote(Attack, name="vote"):
    """Votes for another arm of its set, whichever."""

    def arm(self, arm: int) -> int:
        others = [a for a in range(self.machine.layout.arm_counts[self.subject]) if a != arm]
        return int(self.rng.choice(others)) if others else arm


class Collude(Attack, name="collude"):
    """All liars of the group vote for the same wrong arm, the second best, and praise it."""

    def arm(self, arm: int) -> int:
        j = self.subject
        ranked = sorted(range(self.world.problem.layout.arm_counts[j]), key=lambda a: -self.world.mean(j, a))
        return ranked[1] if len(ranked) > 1 else arm

    def mean(self, arm: int, mean: float) -> float:
        return 1.0 if arm == self.arm(arm) else mean


class Promote(Attack, name="promote"):
    """In every group but the best: says that its arms always pay."""

    def mean(self, arm: int, mean: float) -> float:
        return mean if self.in_best_group else 1.0


class Bury(Attack, name="bury"):
    """In the best group: says that the best arm never pays."""

    def mean(self, arm: int, mean: float) -> float:
        return 0.0 if (self.subject, arm) == self.world.best else mean


class Extreme(Attack, name="extreme"):
    """Says that the best arm never pays and every other arm always does."""

    def mean(self, arm: int, mean: float) -> float:
        return 0.0 if (self.subject, arm) == self.world.best else 1.0


class Inflate(Attack, name="inflate"):
    """Claims the largest mean that an honest client of its group has: no trimming takes that out."""

    def mean(self, arm: int, mean: float) -> float:
        seen = [observed(m, arm) for m in self.world.honest(self.subject)]
        return max([x for x in seen if x is not None], default=mean)


class Deflate(Attack, name="deflate"):
    """Claims the smallest mean that an honest client of its group has."""

    def mean(self, arm: int, mean: float) -> float:
        seen = [observed(m, arm) for m in self.world.honest(self.subject)]
        return min([x for x in seen if x is not None], default=mean)


class TinyCount(Attack, name="tiny-count"):
    """Claims to have made one pull only (pooled: a look that has not begun)."""

    def count(self, count: int) -> int:
        return 1


class HugeCount(Attack, name="huge-count"):
    """Claims 2⁵⁰ pulls, so that its interval is a point, at the worst place."""

    def count(self, count: int) -> int:
        return MAX_COUNT

    def mean(self, arm: int, mean: float) -> float:
        return 0.0 if self.in_best_group else 1.0


class NegativeCount(Attack, name="negative-count"):
    """Writes a number that is none where the count should be."""

    def words(self, payload: bytes) -> list[bytes]:
        return [payload[:1] + bytes(len(payload) - 1) + bytes(8)]


class NotANumber(Attack, name="not-a-number"):
    """Claims a mean that is no number (for 0/1 rewards: more ones than pulls)."""

    @property
    def _binary(self) -> bool:
        if isinstance(self.machine, Peer):
            return False
        binary: bool = self.machine.layout.groups[self.machine.group].binary
        return binary or isinstance(self.machine, pooled.Client)

    def mean(self, arm: int, mean: float) -> float:
        binary = self._binary
        return mean if binary or self.turn else float("nan")

    def words(self, payload: bytes) -> list[bytes]:
        binary = self._binary
        return (
            [payload[: len(payload) // 2] + b"\xff" * (len(payload) - len(payload) // 2)]
            if binary
            else [payload]
        )


class Widen(Attack, name="widen"):
    """Claims as few pulls as are believed, so that its interval stays wide (pooled: all arms are alike)."""

    def count(self, count: int) -> int:
        if isinstance(self.machine, pooled.Client | Peer):
            return count
        least: int = self.machine.phase1.least
        return min(count, least + self.turn)

    def mean(self, arm: int, mean: float) -> float:
        return 0.5 if isinstance(self.machine, pooled.Client) else mean


class RandomBytes(Attack, name="random-bytes"):
    """Sends noise."""

    def words(self, payload: bytes) -> list[bytes]:
        return [self.rng.bytes(int(self.rng.integers(0, 64)))]


class Replay(Attack, name="replay"):
    """Says everything twice."""

    def words(self, payload: bytes) -> list[bytes]:
        return [payload, payload]


class Equivocate(Attack, name="equivocate"):
    """Says one thing and then another in the same round; a peer tells each neighbour another story."""

    def words(self, payload: bytes) -> list[bytes]:
        return [payload, payload[:-1] + bytes([payload[-1] ^ 0x80])]

    def words_for(self, place: int, payload: bytes) -> list[bytes]:
        counts, exchange = self.machine.layout.arm_counts, self.machine.options.exchange
        message = decode_claim(payload, counts, exchange)
        if isinstance(message, Conclusion):
            return [Conclusion(place % len(counts), 0).encode(counts, exchange)[0]]
        value = (place % 5) / 4.0
        claim = Claim(message.group, place % counts[message.group], mean=value, lower=value, upper=value)
        return [claim.encode(counts, exchange)[0]]


class Early(Attack, name="early"):
    """Reports before it has made a pull: that its first arm always pays."""

    def begins(self) -> list[bytes]:
        machine = self.machine
        if isinstance(machine, pooled.Client):
            n = machine.looks.size(machine.looks.quiet)
            return [encode_sums(Sums(0, (n,) * len(machine.arms)), machine.wire, n)[0]]
        if isinstance(machine, Peer):
            exchange = machine.options.exchange
            claim = Claim(machine.group, 0, mean=1.0, lower=0.99, upper=1.0)
            return [claim.encode(machine.layout.arm_counts, exchange)[0]]
        if not isinstance(machine, fedsel.Client):
            return []
        report = Report(0, machine.phase1.least, 1.0)
        if isinstance(machine, robust.Client):
            return [encode_grouped(report, machine.wire, machine.group)[0]]
        return [report.encode(machine.wire, machine.group)[0]]


class Forge(Attack, name="forge"):
    """Speaks for every arm-set before anybody has a say, and (peers) announces a verdict of its own."""

    def begins(self) -> list[bytes]:
        machine = self.machine
        if not isinstance(machine, Peer):
            return Early.begins(self)  # type: ignore[arg-type]
        counts, exchange = machine.layout.arm_counts, machine.options.exchange
        best, said = self.world.best, []
        for j, arms in enumerate(counts):
            arm = (best[1] + 1) % arms if j == best[0] else 0
            high = float(j != best[0])
            claim = Claim(j, arm, mean=high, lower=0.98 * high, upper=0.98 * high + 0.02)
            said.append(claim.encode(counts, exchange)[0])
        other = (best[0] + 1) % len(counts)
        return [*said, Conclusion(other, 0).encode(counts, exchange)[0]] if exchange == "intervals" else said


class Sleeper(Attack, name="sleeper"):
    """Is honest for `turns` messages, and then as extreme as can be."""

    settings: ClassVar[dict[str, Any]] = {"turns": 1}

    def mean(self, arm: int, mean: float) -> float:
        if self.turn < self.options["turns"]:
            return mean
        return 0.0 if self.in_best_group else 1.0


class Adaptive(Attack, name="adaptive"):
    """Sees all honest messages of the round and says what moves the trimmed statistic most.

    It tries 0, 1, every honest mean, and a hair beyond each, as if all liars of its group said the same.
    """

    waits: ClassVar[bool] = True

    def mean(self, arm: int, mean: float) -> float:
        machines = self.world.honest(self.subject)
        seen = [x for m in machines if (x := observed(m, arm)) is not None]
        values = sorted(
            {min(max(x + step, 0.0), 1.0) for x in (0.0, 1.0, *seen) for step in (-0.01, 0.0, 0.01)}
        )
        down = (self.subject, arm) == self.world.best
        return min(values, key=lambda value: self._effect(arm, value, seen) * (1 if down else -1))

    def _effect(self, arm: int, value: float, seen: list[float]) -> float:
        liars = sum(m.group == self.subject and m.name in self.world.liars for m in self.world.machines)
        f = self.world.options.byzantine
        means = np.array(seen + [value] * liars)
        if isinstance(self.machine, pooled.Client):
            return float(np.sort(means)[f : len(means) - f].mean()) if len(means) > 2 * f else value
        alpha = np.array([float(self.machine.radius.alpha(max(self.machine.count, 1)))] * len(means))
        lower, upper = decide.trim(*decide.interval(means, alpha), np.ones(len(means), dtype=bool), f)
        return float(lower + upper)


def recruit(
    problem: Problem, options: Any, machines: list[Any], adversaries: Sequence[Adversary], seed: int
) -> None:
    """Put the liars in the places of the honest machines that they are made of."""
    liars = check_adversaries(problem.layout, adversaries)
    world = World(problem, options, machines, set(liars))
    places = {machine.name: i for i, machine in enumerate(machines)}
    for name, adversary in liars.items():
        i = places[name]
        if isinstance(machines[i], fisher.Client):
            raise InputError(
                "fisher trusts the one client of a group, and its lies are not simulated",
                fix="Give the group several clients (with byzantine = 0 it trusts them, too)",
            )
        rng = stream(seed, i, 2**31)
        machines[i] = ATTACKS[adversary.attack](machines[i], world, rng, **adversary.options)
