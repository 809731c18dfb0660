"""Many runs on pairs of 0/1 rewards at once, through the decision functions that machines use."""

from __future__ import annotations

import numpy as np

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Block, Pairs
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.problem.layout import Group, Layout
from bestarm.stats.sums import Sums


def course_of(sites, paired, **options):
    groups = tuple(Group(f"s{j}", ("a", "b"), (f"c{j}",)) for j in range(sites))
    rewards = ((ba.Recording((0.0,)),) * 2,) * sites
    problem = ba.Problem(Layout(groups, finite=True, paired=paired), rewards).asking("overall")
    return Course(problem.layout, Bet(**options))


def joint(p, correlation):
    """P(11), P(10), P(01), P(00) of two coins with means p, as dependent as they can be, or independent."""
    a, b = p
    both = {1: min(a, b), -1: max(0.0, a + b - 1), 0: a * b}[correlation]
    return np.array([both, a - both, b - both, 1 - a - b + both])


def drops(rng, trials, means, correlation, paired, most, **options):
    """Which of the options a and b is dropped in each trial before `most` pulls; `means` by site."""
    course = course_of(len(means), paired, **options)
    ledger = Ledger(course, np.ones(len(means), dtype=bool), trials)
    laws = [joint(p, correlation) for p in means]
    n, step, stands = 0, course.n1, []
    while n + step <= most and not ledger.over.all():
        counts = np.stack([rng.multinomial(step, law, trials) for law in laws], axis=1).astype(float)
        n11, n10, n01, _ = np.moveaxis(counts, -1, 0)
        ones = np.stack([n11 + n10, n11 + n01], axis=-1)
        size = np.full(ones.shape, float(step))
        fresh = Sums(size, ones, ones, np.zeros_like(ones), np.ones_like(ones))
        champion = stands[0].champion if stands else np.zeros(trials, dtype=np.int64)
        reference = np.repeat(champion[:, None], len(means), axis=1)
        wins = np.where(reference == 0, n10, n01)[..., None]
        total = (size + np.take_along_axis(ones, reference[..., None], -1) - ones) / 2
        own = np.arange(2) == reference[..., None]
        squares = np.where(own, step / 4, (wins + total) / 2)
        met = Sums(size, total, squares, np.zeros_like(ones), np.ones_like(ones))
        zeros = np.zeros_like(ones)
        pairs = Pairs(reference, met, zeros, np.ones(len(means), dtype=bool)) if paired else None
        ledger.close(Block(size.astype(np.int64), fresh, zeros, pairs=pairs), stands, step)
        n, step, stands = n + step, course.blocks.step(n + step), ledger.stands()
    return ~ledger.races[0].inside
