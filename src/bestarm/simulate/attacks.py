"""The built-in attacks: what liars claim. They do not depend on the format of a method's messages."""

from __future__ import annotations

from typing import Any, ClassVar

from bestarm.protocol.lies import Lies
from bestarm.simulate.lying_client import Attack
from bestarm.stats.radii import MAX_COUNT


def _lies(attack: Attack) -> Lies:
    """The lies of the attacked method; an attack that calls this is refused if the method has none."""
    lies = attack.world.method.lies
    assert lies is not None
    return lies


class Silent(Attack, name="silent"):
    """Never sends a message, so that the server waits."""

    def speaks(self) -> bool:
        return False


class SilentLater(Attack, name="silent-later"):
    """Is honest for `turns` messages and then stops sending."""

    settings: ClassVar[dict[str, Any]] = {"turns": 1}

    def speaks(self) -> bool:
        return bool(self.turn < self.options["turns"])


class Crash(Attack, name="crash"):
    """Sends `at` messages, skips the next `turns` messages, and then continues normally."""

    settings: ClassVar[dict[str, Any]] = {"at": 1, "turns": 2}

    def speaks(self) -> bool:
        at = self.options["at"]
        return not at <= self.turn < at + self.options["turns"]


class Vote(Attack, name="vote"):
    """Votes for another arm of its group, chosen at random. It is honest if there is only one arm."""

    def arm(self, arm: int) -> int:
        others = [a for a in range(self.machine.layout.arm_counts[self.subject]) if a != arm]
        return int(self.rng.choice(others)) if others else arm


class Collude(Attack, name="collude"):
    """All liars of a group vote for its second-best arm and claim that it always pays."""

    def arm(self, arm: int) -> int:
        j = self.subject
        ranked = sorted(range(self.world.problem.layout.arm_counts[j]), key=lambda a: -self.world.mean(j, a))
        return ranked[1] if len(ranked) > 1 else arm

    def mean(self, arm: int, mean: float) -> float:
        return 1.0 if arm == self.arm(arm) else mean


class Promote(Attack, name="promote"):
    """Claims that its arms always pay, except in the best group, where it is honest.

    Where sites share their options, it is honest about the best option.
    """

    def mean(self, arm: int, mean: float) -> float:
        return mean if self.helps_best(arm) else 1.0


class Bury(Attack, name="bury"):
    """Claims that the best arm never pays, and is honest about all others."""

    def mean(self, arm: int, mean: float) -> float:
        return 0.0 if self.world.is_best(self.subject, arm) else mean


class Extreme(Attack, name="extreme"):
    """Claims that the best arm never pays and every other arm always does."""

    def mean(self, arm: int, mean: float) -> float:
        return 0.0 if self.world.is_best(self.subject, arm) else 1.0


class Inflate(Attack, name="inflate"):
    """Claims the largest mean that an honest client of its group has seen, which trimming does not remove.

    It is honest if its group has no honest clients.
    """

    def mean(self, arm: int, mean: float) -> float:
        return max(self.world.observed(self.subject, arm), default=mean)


class Deflate(Attack, name="deflate"):
    """Claims the smallest mean that an honest client of its group has seen.

    It is honest if its group has no honest clients.
    """

    def mean(self, arm: int, mean: float) -> float:
        return min(self.world.observed(self.subject, arm), default=mean)


class TinyCount(Attack, name="tiny-count"):
    """Claims a single pull; with fisher, reports for a look that has not begun."""

    def count(self, count: int) -> int:
        return 1


class HugeCount(Attack, name="huge-count"):
    """Claims 2⁵⁰ pulls, which shrinks its interval to a point, and puts it where it does most harm."""

    def count(self, count: int) -> int:
        return MAX_COUNT

    def mean(self, arm: int, mean: float) -> float:
        return 0.0 if self.helps_best(arm) else 1.0


class NegativeCount(Attack, name="negative-count"):
    """Replaces the message with zeros, so that it contains no valid count."""

    def words(self, payload: bytes) -> list[bytes]:
        return [payload[:1] + bytes(len(payload) - 1) + bytes(8)]


class NotANumber(Attack, name="not-a-number"):
    """Claims a mean of NaN; where messages contain sums, claims a sum that exceeds the number of pulls."""

    @property
    def _reals(self) -> bool:
        lies = self.world.method.lies
        return lies is not None and lies.reals(self.machine)

    def mean(self, arm: int, mean: float) -> float:
        return float("nan") if self._reals and not self.turn else mean

    def words(self, payload: bytes) -> list[bytes]:
        half = len(payload) // 2
        return [payload if self._reals else payload[:half] + b"\xff" * (len(payload) - half)]


class Widen(Attack, name="widen"):
    """Claims the fewest pulls that are accepted, so that its interval stays wide.

    Where messages contain intervals, it doubles the width. Where they contain neither counts nor intervals,
    it claims that all arms pay half of the time.
    """

    def count(self, count: int) -> int:
        least = _lies(self).least(self.machine)
        return count if least is None else min(count, least + self.turn)

    def interval(self, lower: float, upper: float) -> tuple[float, float]:
        half = (upper - lower) / 2.0
        return lower - half, upper + half

    def mean(self, arm: int, mean: float) -> float:
        lies = _lies(self)
        wide = lies.least(self.machine) is not None or "interval" in lies.claims(self.world.options)
        return mean if wide else 0.5


class RandomBytes(Attack, name="random-bytes"):
    """Sends random bytes."""

    def words(self, payload: bytes) -> list[bytes]:
        return [self.rng.bytes(int(self.rng.integers(0, 64)))]


class Replay(Attack, name="replay"):
    """Sends every message twice."""

    def words(self, payload: bytes) -> list[bytes]:
        return [payload, payload]


class Equivocate(Attack, name="equivocate"):
    """Sends two different messages in the same round; a peer sends each neighbour a different message."""

    def words(self, payload: bytes) -> list[bytes]:
        return [payload, payload[:-1] + bytes([payload[-1] ^ 0x80]) if payload else b"\x80"]

    def words_for(self, place: int, payload: bytes) -> list[bytes]:
        lies = self.world.method.lies
        if lies is None or lies.tell is None:
            return self.words(payload)
        return [lies.tell(self.machine, place, payload)]


class Early(Attack, name="early"):
    """Reports before its first pull, and claims that its first arm always pays."""

    needs: ClassVar[tuple[str, ...]] = ("early",)

    def begins(self) -> list[bytes]:
        early = _lies(self).early
        assert early is not None
        return [early(self.machine)]


class Forge(Early, name="forge"):
    """Reports before its first pull; a peer forges reports of every group and announces a winner."""

    def begins(self) -> list[bytes]:
        forge = _lies(self).forge
        return super().begins() if forge is None else forge(self.machine, self.world.best)


class Sleeper(Attack, name="sleeper"):
    """Is honest for `turns` messages; then claims that the best group never pays and all others always do."""

    settings: ClassVar[dict[str, Any]] = {"turns": 1}

    def mean(self, arm: int, mean: float) -> float:
        if self.turn < self.options["turns"]:
            return mean
        return 0.0 if self.helps_best(arm) else 1.0


class Adaptive(Attack, name="adaptive"):
    """Waits for all honest messages of the round, then claims the mean that changes the result most.

    It tries 0, 1, every honest mean, and each of these ± 0.01, assuming that all liars of its group claim
    the same value.
    """

    waits: ClassVar[bool] = True

    def mean(self, arm: int, mean: float) -> float:
        seen = self.world.observed(self.subject, arm)
        values = sorted(
            {min(max(x + step, 0.0), 1.0) for x in (0.0, 1.0, *seen) for step in (-0.01, 0.0, 0.01)}
        )
        down = self.world.is_best(self.subject, arm)
        return min(values, key=lambda value: self._effect(value, seen) * (1 if down else -1))

    def _effect(self, value: float, seen: list[float]) -> float:
        """The statistic that decides about an arm, if all liars of its group claim this mean."""
        liars = sum(m.group == self.subject and m.name in self.world.liars for m in self.world.machines)
        statistic = _lies(self).statistic
        return statistic(self.machine, seen + [value] * liars, self.world.options.byzantine)


class Pump(Attack, name="pump"):
    """Claims a little more than any honest client has seen for its group's leading arm, so that it leads all.

    The claim is always possible, so nothing proves it wrong. In the best group it claims a little less.
    """

    def mean(self, arm: int, mean: float) -> float:
        arms = range(self.world.problem.layout.arm_counts[self.subject])
        seen = [max(self.world.observed(self.subject, a), default=0.0) for a in arms]
        if seen[arm] < max(seen):
            return mean
        return max(mean - 0.05, 0.0) if self.helps_best(arm) else min(max(seen[arm], mean) + 0.05, 1.0)


class Withhold(Attack, name="withhold"):
    """Keeps its messages back while its own rewards look worse than its arms are, and sends them later."""

    needs: ClassVar[tuple[str, ...]] = ("observed",)
    kept: tuple[bytes, ...] = ()

    def words(self, payload: bytes) -> list[bytes]:
        self.kept = (*self.kept, payload)
        if self._bad():
            return []
        said, self.kept = list(self.kept), ()
        return said

    def _bad(self) -> bool:
        """Whether its rewards so far are below the true means."""
        lies, j = _lies(self), self.machine.group
        arms = range(self.world.problem.layout.arm_counts[j])
        seen = [(self.world.mean(j, a), lies.observed(self.machine, a)) for a in arms]
        return sum(mean - found for mean, found in seen if found is not None) > 0.0


class Rush(Attack, name="rush"):
    """Answers last, with the worst honest mean of the best arm and the best honest mean of every other arm.

    No trimming tells these claims from honest ones.
    """

    waits: ClassVar[bool] = True

    def mean(self, arm: int, mean: float) -> float:
        seen = self.world.observed(self.subject, arm) or [mean]
        return min(seen) if self.world.is_best(self.subject, arm) else max(seen)


class Steer(Attack, name="steer"):
    """Answers last, in turns with the largest and the smallest honest mean, so that the leader changes."""

    waits: ClassVar[bool] = True

    def mean(self, arm: int, mean: float) -> float:
        seen = self.world.observed(self.subject, arm) or [mean]
        up = self.turn % 2 == self.subject % 2
        return max(seen) if up else min(seen)
