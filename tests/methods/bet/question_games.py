"""Games of the question "overall" on a ``Ledger``, with rewards of any kind and with rules that break δ.

A game plays blocks for many trials at once and says which options left. ``CASES`` have options of exactly the
same value, so no option may leave with probability above δ. ``FORBIDDEN`` alter a block after a look at its
rewards, or before it is complete. The package has no way to do that, so they are built here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Block, Stand
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.methods.bet.sites.messages import precision, told
from bestarm.stats.sums import Sums

DELTA, BLOCKS = 0.05, 18
STARS = np.arange(5) / 4
Draw = Callable[[np.random.Generator, int, np.ndarray], Sums]  # the block's number, the pulls of each cell
Rule = Callable[[np.random.Generator, Block, Stand], Block]


def coins(means) -> Draw:
    """0/1 rewards. `means`: (sites, options), or a function of the generator and the number of trials."""

    def draw(rng, block, pulls):
        p = means(rng, len(pulls)) if callable(means) else means
        ones = rng.binomial(pulls, p).astype(float)
        return Sums(pulls.astype(float), ones, ones, np.zeros(ones.shape), np.ones(ones.shape))

    return draw


def ratings(means) -> Draw:
    """Ratings 0, ¼, ½, ¾, 1 with these means: four coins each."""
    p = np.stack([[1, 4, 6, 4, 1][k] * means**k * (1 - means) ** (4 - k) for k in range(5)], axis=-1)

    def draw(rng, block, pulls):
        counts = rng.multinomial(pulls, p)
        least = np.where(counts > 0, STARS, 1.0).min(axis=-1)
        most = np.where(counts > 0, STARS, 0.0).max(axis=-1)
        return Sums(pulls.astype(float), counts @ STARS, counts @ STARS**2, least, most)

    return draw


def drifting(means, size) -> Draw:
    """Coins whose means move by ±size from block to block, together at each site."""
    return coins(lambda rng, trials: means + size * rng.choice([-1.0, 1.0], (trials, len(means), 1)))


@dataclass(frozen=True)
class Case:
    """Options of the same value: how they are drawn, the weights of the sites, and more pulls of cells."""

    draw: Draw
    shape: tuple[int, int]  # sites, options
    weights: tuple[float, ...] | None = None
    more: Any = 1  # factors of the pulls of each cell: (sites, options)
    binary: bool = True
    options: dict[str, Any] = field(default_factory=dict)


def play(case: Case, trials: int, seed: int, blocks: int = BLOCKS, rule: Rule | None = None) -> np.ndarray:
    """Which options left within so many blocks: (trials, options)."""
    sites, number = case.shape
    groups = {f"s{j}": {f"o{k}": 0.5 for k in range(number)} for j in range(sites)}
    weights = {} if case.weights is None else {"weights": dict(zip(groups, case.weights, strict=True))}
    layout = ba.Problem.from_rewards(groups).asking("overall", **weights).layout
    layout = dataclasses.replace(
        layout, groups=tuple(dataclasses.replace(group, binary=case.binary) for group in layout.groups)
    )
    course = Course(layout, Bet(delta=DELTA, prefer="pulls", q=1.25, **case.options))
    ledger, rng = Ledger(course, np.ones(sites, dtype=bool), trials), np.random.default_rng(seed)
    binary = np.full((sites, 1), case.binary)
    pulls, stands, step = np.tile(course.first(), (trials, 1, 1)), list[Stand](), course.n1
    for k in range(blocks + 1):
        pulls = np.where(ledger.over[:, None, None], 0, pulls * case.more)
        fresh, unit = told(case.draw(rng, k, pulls), precision(ledger.n[0], sites), binary)
        block = Block(pulls, fresh, unit, course.coins)
        if rule is not None and stands:
            block = rule(rng, block, stands[0])
        ledger.close(block, stands, step)
        step, stands = course.blocks.step(ledger.n[0]), ledger.stands()
        pulls = course.pulls(stands, step, course.steps(step))
    (race,) = ledger.races
    return ~race.inside


def most_lost(case: Case, trials: int, seed: int, **keys: Any) -> int:
    """In how many trials an option left, for the option that left most often."""
    return int(play(case, trials, seed, **keys).sum(axis=0).max())


def tied(rng, shape, spread, value=0.5):
    """Random means of each cell; every option has exactly the same value, with equal weights."""
    rows = rng.normal(0.5, spread, shape)

    def shifted(row, by):
        return np.clip(row + by, 0.02, 0.98)

    return np.stack(
        [
            shifted(row, brentq(lambda by, row=row: shifted(row, by).mean() - value, -3, 3, xtol=1e-15))
            for row in rows.T
        ],
        axis=1,
    )


REVERSED = np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])
WEIGHTS = (0.4, 0.3, 0.15, 0.1, 0.05)
_LEADS = np.array([0.2, -0.1, -0.4, 0.3, -0.4])  # Σ weight·lead = 0
WEIGHTED = 0.5 + 0.5 * np.stack([_LEADS, -_LEADS], axis=1)
N_BY_SITE = np.array([[1], [2], [4], [8], [16]])
N_BY_CELL = np.array([[1, 8], [2, 4], [4, 1], [8, 2], [16, 1]])
_DIFFERENT = np.random.default_rng(20)

CASES = {
    "sites alike": Case(coins(np.full((5, 2), 0.5)), (5, 2)),
    "order reversed": Case(coins(REVERSED), (5, 2)),
    "order differs, weights and n 1:16": Case(coins(WEIGHTED), (5, 2), WEIGHTS, N_BY_SITE),
    "order differs, weights and n of each cell": Case(coins(WEIGHTED), (5, 2), WEIGHTS, N_BY_CELL),
    "drift ±.25 of a site": Case(drifting(0.5 + (REVERSED - 0.5) / 2, 0.25), (5, 2)),
    "drift ±.25 of a site, n 1:16": Case(drifting(0.5 + (REVERSED - 0.5) / 2, 0.25), (5, 2), None, N_BY_SITE),
    "ratings": Case(ratings(REVERSED), (5, 2), binary=False),
    "K = 10": Case(coins(tied(_DIFFERENT, (5, 10), 0.25)), (5, 10)),
    "M = 50": Case(coins(tied(_DIFFERENT, (50, 2), 0.25)), (50, 2)),
    "K = 10, M = 50": Case(coins(tied(_DIFFERENT, (50, 10), 0.25)), (50, 10)),
}


def _void(block: Block, trials: np.ndarray) -> Block:
    """The block without its pulls in some trials, so that no wealth changes."""
    keep = ~trials[:, None, None]
    nothing = Sums.none(block.pulls.shape)
    parts = (np.where(keep, a, b) for a, b in zip(block.fresh.parts, nothing.parts, strict=True))
    return dataclasses.replace(block, pulls=block.pulls * keep, fresh=Sums(*parts))


def _bad(block: Block, stand: Stand, site: np.ndarray) -> np.ndarray:
    """Whether the champion is behind in the part of a site, which has two options."""
    trial = np.arange(len(site))
    mean = block.fresh.total[trial, site] / np.maximum(block.fresh.count[trial, site], 1)
    return mean[trial, stand.champion] < mean[trial, 1 - stand.champion]


def void_after_a_look(rng, block, stand):
    """The block is void unless the part that came first looks good."""
    return _void(block, _bad(block, stand, rng.integers(0, block.pulls.shape[1], len(block.pulls))))


def site_that_loses_its_part(rng, block, stand):
    """The block is void if the first site has a bad part, which it then loses."""
    return _void(block, _bad(block, stand, np.zeros(len(block.pulls), dtype=np.int64)))


def whatever_has_arrived(rng, block, stand):
    """The wealth is multiplied by the parts that have arrived; the sites with odd numbers are slow."""
    fresh = Sums(*(np.copy(part) for part in block.fresh.parts))
    for part, nothing in zip(fresh.parts, (0.0, 0.0, 0.0, 1.0, 0.0), strict=True):
        part[:, 1::2] = nothing
    return dataclasses.replace(block, fresh=fresh)


# Each rule with a case in which it does harm. The first two need more blocks than the cases above.
FORBIDDEN: dict[str, tuple[Rule, str]] = {
    "void after a look at the part that came first": (void_after_a_look, "sites alike"),
    "a site loses its part when it is bad": (site_that_loses_its_part, "sites alike"),
    "multiply whatever has arrived": (whatever_has_arrived, "order reversed"),
}
MANY_BLOCKS = 45
