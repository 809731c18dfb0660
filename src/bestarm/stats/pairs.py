"""Bets on pairs: every subject tries both options, so the rewards of one subject may depend on each other.

A pair is the unit of the bets: one factor 1 + λ(X_b − X_a − ρ) for each subject, λ = Λ·w/n. Its mean is at
most 1 if b is ahead by at most ρ on the weighted average over the sites, whatever the correlation inside a
pair; only subjects must be independent. Everything is computed from Y = (1 + X_b − X_a)/2, which is in
[0, 1]. Shapes are those of ``stats.contrasts``: arrays end with the axis of sites, and grids of stakes with
one more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.stats import betting
from bestarm.stats.contrasts import STAKES, Sides, estimate, share_of
from bestarm.stats.sums import Floats, Sums


@dataclass(frozen=True)
class PairedBets:
    """The bets of a block of pairs, fixed before its pulls: a subject with Y stakes 2Λ·w/n on Y − centre.

    That is a factor of 1 + (Λ·w/n)(X_b − X_a − ρ), since the centre is (1 + ρ)/2. `share` is w/n of each
    site, `stakes` (Λ) and `weights` have the axis of stakes.
    """

    centre: Floats
    share: Floats
    stakes: Floats
    weights: Floats


def paired_bets(
    up: Sums,
    down: Sums,
    pairs: Sums,
    pulls: ArrayLike,
    weights: ArrayLike,
    stakes: int,
    margin: ArrayLike = 0.0,
) -> PairedBets:
    """The bets on "b is ahead of a by more than ρ" for a block in which every subject tries both.

    Parameters
    ----------
    up, down : Sums
        The earlier rewards of options b and a; the last axis is the site.
    pairs : Sums
        Y of earlier subjects, as far as they are known. They only make the stakes suit the spread of
        X_b − X_a: without them, it is as large as for independent rewards.
    pulls, weights : array_like
        The subjects of each site in the block, at least 1, and the weight of the site.
    stakes : int
        The number of stakes, see ``stake_count``.
    margin : array_like
        ρ, above −1.

    Returns
    -------
    PairedBets

    Examples
    --------
    Ten subjects: b alone is right about 3 of them, and both are right or wrong about the others.

    >>> none = Sums.none(1)
    >>> bets = paired_bets(none, none, none, [10.0], [1.0], stakes=9)
    >>> block = Sums(*(np.array([x]) for x in (10.0, 6.5, 4.75, 0.5, 1.0)))
    >>> round(float(np.exp(paired_log_factor(bets, block, np.array([True])))), 2)
    2.21
    """
    rho, w = np.asarray(margin, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    mean = Sides(estimate(up.count, up.total), estimate(down.count, down.total))
    second = Sides(estimate(up.count, up.squares), estimate(down.count, down.squares))
    ahead = mean.up - mean.down - rho[..., None]
    apart = second.up - mean.up**2 + second.down - mean.down**2 + ahead**2  # if they were independent
    lead = 2 * pairs.total - pairs.count
    about = 4 * (pairs.squares - pairs.total) + pairs.count * (1 + rho[..., None] ** 2)
    v = (np.maximum(about - 2 * rho[..., None] * lead, 0.0) + 4 * apart) / (pairs.count + 4)
    v = np.maximum(v, betting.MARGIN**2)
    share = share_of(w, pulls)
    largest = betting.CAP / (share.max(axis=-1) * (1 + rho))
    grid = largest[..., None] * np.exp2(-0.5 * np.arange(stakes))
    error = (w**2 * v / np.maximum(up.count, 1.0)).sum(axis=-1)
    spread = (w * share * v).sum(axis=-1)
    shares = betting.weights_around(grid * spread[..., None], (w * ahead).sum(axis=-1), error)
    return PairedBets((1 + rho) / 2, share, grid, shares)


def paired_log_wealths(bets: PairedBets, pairs: Sums, coins: NDArray[np.bool_]) -> Floats:
    """The least logarithm of the factor of each stake, from Y of the block's subjects.

    The sums may be rounded as ``betting.least_log_wealth`` allows. Where `coins`, both options pay 0 or 1: Y
    is 0, ½ or 1, the sums are exact, and this is the logarithm itself.
    """
    n, total, squares, least, _ = (np.asarray(part)[..., None] for part in pairs.parts)
    stake = bets.stakes[..., None, :] * bets.share[..., None]
    centre = bets.centre[..., None, None]
    rho = 2 * centre - 1
    differ, lead = 4 * (squares - total) + n, 2 * total - n  # Σ(X_b − X_a)², Σ(X_b − X_a)
    won, lost = (differ + lead) / 2, (differ - lead) / 2
    exact = won * np.log1p(stake * (1 - rho)) + lost * np.log1p(-stake * (1 + rho))
    exact += (n - differ) * np.log1p(-stake * rho)
    bound = betting.least_log_wealth(n, total, squares, least, 2 * stake, centre)
    return np.asarray(np.where(np.asarray(coins)[..., None], exact, bound).sum(axis=-2))


def paired_log_factor(bets: PairedBets, pairs: Sums, coins: NDArray[np.bool_]) -> Floats:
    """The logarithm of the factor of a block, from Y of its subjects."""
    return betting.log_mean_exp(paired_log_wealths(bets, pairs, coins), bets.weights)


@dataclass(frozen=True)
class PlayedPairs:
    """A block in which every subject tried both options: Y for bets on b, and where rewards are 0/1.

    ``contrasts.lower_bound`` takes such blocks.
    """

    pairs: Sums
    coins: NDArray[np.bool_]

    @property
    def trials(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.pairs.count.shape[:-1]

    def log_wealths(self, weights: Sides, margin: ArrayLike) -> Floats:
        """The logarithm of the block's factor for each stake, for bets on a lead of more than `margin`."""
        share = share_of(weights.up, self.pairs.count)
        largest = betting.CAP / (2.0 * share.max(axis=-1))  # no lead is above 1
        grid = largest[..., None] * np.exp2(-0.5 * np.arange(STAKES))
        centre = (1 + np.asarray(margin, dtype=np.float64)) / 2
        return paired_log_wealths(PairedBets(centre, share, grid, grid), self.pairs, self.coins)
