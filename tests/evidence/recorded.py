"""Recorded data sets for the tests of evidence: many at once as sums of blocks, or one as a contest."""

from __future__ import annotations

import numpy as np

from bestarm.evidence.contests import Contest
from bestarm.evidence.shuffles import block_sizes
from bestarm.stats.sums import Sums

STARS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def coins(sizes: np.ndarray, means: np.ndarray, rng: np.random.Generator) -> Sums:
    """Sums of 0/1 rewards in blocks of these sizes."""
    total = rng.binomial(sizes, means).astype(np.float64)
    return Sums(sizes.astype(np.float64), total, total, np.zeros(total.shape), np.ones(total.shape))


def stars(sizes: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> Sums:
    """Sums of ratings of one to five stars, with the same shares in every cell."""
    drawn = rng.multinomial(sizes, shares)
    ends = np.zeros(sizes.shape), np.ones(sizes.shape)
    return Sums(sizes.astype(np.float64), drawn @ STARS, drawn @ STARS**2, *ends)


def blocks(rows: np.ndarray, sets: int) -> np.ndarray:
    """The sizes of the blocks of many data sets with these rows by option and site."""
    return np.broadcast_to(block_sizes(rows), (sets, *block_sizes(rows).shape))


def split(ones: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> Sums:
    """A random order of coins, of which `ones` are 1, as sums of blocks."""
    left, zeros = ones.copy(), sizes.sum(axis=-3) - ones
    total = np.empty(np.broadcast_shapes((*ones.shape[:-2], *sizes.shape[-3:]), sizes.shape))
    for k in range(sizes.shape[-3]):
        size = sizes[..., k, :, :]
        drawn = rng.hypergeometric(left, zeros, size)
        left, zeros = left - drawn, zeros - (size - drawn)
        total[..., k, :, :] = drawn
    n = np.broadcast_to(sizes, total.shape).astype(np.float64)
    return Sums(n, total, total, np.zeros(total.shape), np.ones(total.shape))


def contest(
    values: list[list[float]], counts: list[list[int]], weights: list[float] | None = None
) -> Contest:
    """A contest of options with these rewards, by option and then by site."""
    weights = weights or [1.0]
    options = tuple(f"o{k}" for k in range(len(values) // len(weights)))
    sites = tuple(f"s{k}" for k in range(len(weights)))
    places = tuple((s, a) for a in range(len(options)) for s in range(len(sites)))
    return Contest(
        "",
        options,
        sites,
        np.array(weights),
        places,
        tuple(np.array(v, dtype=np.float64) for v in values),
        tuple(np.array(c, dtype=np.int64) for c in counts),
    )
