"""The assignments of one site: in which order its options are given, and which rewards belong together.

The machine of a site asks for batches of pulls. Their order is drawn before the first of them is assigned:
windows of a few pulls, each with the batch's own proportions, in a random order that the seed determines
(permuted blocks). So no option is favoured by the time of day, and slow trends affect all options alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bestarm.protocol.events import Pull, Pulled
from bestarm.protocol.summaries import Summary
from bestarm.util.seeds import stream

CHUNK = 256  # windows that are drawn at once
WINDOW = 8  # a window has at least this many pulls, so that its last ones are not known in advance


@dataclass(eq=False)
class Batch:
    """The pulls of one ``Pull``: the order of their arms, and the sums of the rewards that have come."""

    pull: Pull
    order: Iterator[int]
    given: int = 0
    told: int = 0
    filled: int = 0  # rewards that did not come in time
    sums: list[list[float]] = field(default_factory=list)  # of each arm: sum, squares, least and most
    size: int = field(init=False)  # pulls in all

    def __post_init__(self) -> None:
        self.size = self.pull.times * self.pull.width

    @property
    def complete(self) -> bool:
        """Whether all pulls are assigned and all their rewards are in."""
        return self.told == self.size

    def add(self, arm: int, reward: float) -> None:
        """Add a reward in [0, 1]."""
        own = self.sums[self.pull.arms.index(arm)]
        own[0] += reward
        own[1] += reward * reward
        own[2], own[3] = min(own[2], reward), max(own[3], reward)
        self.told += 1

    def pulled(self) -> Pulled:
        """What the machine gets."""
        rows = self.sums if self.pull.moments else [own[:1] for own in self.sums]
        return Pulled.of(rows, self.pull.times)


def draw_order(pull: Pull, rng: np.random.Generator) -> Iterator[int]:
    """The arms of a batch in a random order that keeps its proportions in every window.

    >>> order = list(draw_order(Pull((0, 2), 6, shares=(1, 3)), np.random.default_rng(1)))
    >>> order[:8].count(2), order.count(2), len(order)
    (6, 18, 24)
    """
    row = np.repeat(np.array(pull.arms), pull.each)
    rounds = -(-WINDOW // len(row))
    whole, rest = divmod(pull.times, rounds)
    while whole > 0:  # a batch may be far larger than what is ever assigned
        some = min(whole, CHUNK)
        yield from rng.permuted(np.tile(row, (some, rounds)), axis=1).ravel().tolist()
        whole -= some
    yield from rng.permutation(np.tile(row, rest)).tolist()


class Lane:
    """The batches of one site, in order: the outstanding one of its machine, and those that will follow."""

    def __init__(self, seed: int, site: int) -> None:
        self.seed, self.site = seed, site
        self.batches: deque[Batch] = deque()
        self.drawn = 0  # batches so far
        self.last: Pull | None = None  # the newest pull that is known
        # Of each arm: the rewards that counted, their sum, and their squares.
        self.counts: dict[int, int] = {}
        self.totals: dict[int, float] = {}
        self.squares: dict[int, float] = {}
        self.filled = 0  # of the rewards that counted: those that did not come in time

    def plan(self, pulls: list[Pull]) -> None:
        """Prepare the batches of these pulls, the first of which is the outstanding one."""
        for place, pull in enumerate(pulls):
            if place < len(self.batches):
                assert self.batches[place].pull == pull, "the machine asks for other pulls than it announced"
                continue
            self.add(pull)

    def add(self, pull: Pull) -> None:
        """Add one more batch, and draw its order."""
        order = draw_order(pull, stream(self.seed, self.site, self.drawn))
        sums = [[0.0, 0.0, 1.0, 0.0] for _ in pull.arms]
        self.batches.append(Batch(pull, order, sums=sums))
        self.last = pull
        self.drawn += 1

    @property
    def free(self) -> bool:
        """Whether there is a pull left to assign."""
        return bool(self.batches) and self.batches[-1].given < self.batches[-1].size

    def assign(self) -> tuple[int, Batch]:
        """The next arm, and its batch."""
        batch = next(batch for batch in self.batches if batch.given < batch.size)
        batch.given += 1
        return next(batch.order), batch

    def count(self) -> Pulled:
        """The rewards of the first batch, which is complete; it counts from now on."""
        batch = self.batches.popleft()
        pull = batch.pull
        self.filled += batch.filled
        for arm, share, own in zip(pull.arms, pull.each, batch.sums, strict=True):
            self.counts[arm] = self.counts.get(arm, 0) + share * pull.times
            self.totals[arm] = self.totals.get(arm, 0.0) + own[0]
            self.squares[arm] = self.squares.get(arm, 0.0) + own[1]
        return batch.pulled()

    def summary(self, arms: int) -> Summary:
        """What counts of each arm: the first rewards of the plan in the order of assignment, never a choice.

        A batch counts as a whole and in order, so a reward that came early or late, or that was filled in,
        does not decide which others are used. That makes intervals from these sums valid at any time.
        """
        totals = [self.totals.get(a, 0.0) for a in range(arms)]
        squares = [min(self.squares.get(a, 0.0), total) for a, total in enumerate(totals)]
        return Summary(tuple(self.counts.get(a, 0) for a in range(arms)), tuple(totals), tuple(squares))

    def means(self, arms: int) -> list[float]:
        """The mean of each arm, (S + ½)/(N + 1)."""
        return [(self.totals.get(a, 0.0) + 0.5) / (self.counts.get(a, 0) + 1.0) for a in range(arms)]
