"""Bets on contrasts: is option b better than option a in the weighted mean over several sites?

A cell is an option at a site. The value of an option is Σ_s w_s·μ_s over its cells. A block of bets on "b is
ahead of a by more than ρ" multiplies the wealth by a factor for each reward of their cells. All of them stake
the same total Λ, so the mean of the factor is at most 1 if b is ahead by at most ρ, whatever the sites are
like (Theorem 1 of docs/questions-proofs.md). Bets are fixed before the block, from earlier rewards; after it,
only the sums of each cell are needed. Arrays end with the axis of sites, and grids of stakes with one more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm.stats import betting
from bestarm.stats.sums import Floats, Sums

STAKES = 20  # of a bound
BISECTIONS = 20


@dataclass(frozen=True)
class Sides:
    """One value for each cell of option b (`up`, the bet is on it) and of option a (`down`, against it)."""

    up: Floats
    down: Floats

    @staticmethod
    def of(up: ArrayLike, down: ArrayLike) -> Sides:
        return Sides(np.asarray(up, dtype=np.float64), np.asarray(down, dtype=np.float64))


@dataclass(frozen=True)
class ContrastBets:
    """The bets of a block, fixed before its pulls.

    `centres` have the axis of sites, `stakes` (Λ) and `weights` the axis of stakes. `share` is w/n of each
    cell: a reward of the cell stakes Λ·w/n.
    """

    centres: Sides
    share: Sides
    stakes: Floats
    weights: Floats


def estimate(count: ArrayLike, total: ArrayLike) -> Floats:
    """p̂ = (S + ½)/(N + 1), which is never 0 or 1. With sums of squares it estimates the second moment."""
    return np.asarray((np.asarray(total) + 0.5) / (np.asarray(count) + 1.0))


def stake_count(pulls: int, slope: float = 1.0) -> int:
    """How many stakes a bet uses after this many pulls per option, all sites together."""
    return betting.stake_count(pulls, slope)


def centres_of(means: Sides, pulls: Sides, weights: Sides, margin: ArrayLike = 0.0) -> Sides:
    """The centres of the bets: Σ w·m of option b is `margin` above that of option a.

    Where both options have the same weight at every site, they share the centre of a site, which is the mean
    of its two estimates weighted by their pulls. Else every centre moves by the same amount.

    Parameters
    ----------
    means : Sides
        The estimated mean of each cell.
    pulls : Sides
        The pulls of each cell in the block.
    weights : Sides
        The weight of each cell; 0 if the option is not offered there.
    margin : array_like
        ρ: the lead that the bets dispute.

    Returns
    -------
    Sides
    """
    rho = np.asarray(margin, dtype=np.float64)[..., None]
    both = pulls.up + pulls.down
    middle = pulls.up * means.up + pulls.down * means.down
    middle = np.clip(middle / np.where(both > 0, both, 1.0), betting.MARGIN, 1 - betting.MARGIN)
    lead = (weights.up * means.up - weights.down * means.down).sum(axis=-1, keepdims=True)
    whole = (weights.up + weights.down).sum(axis=-1, keepdims=True)
    alike = (weights.up == weights.down).all(axis=-1, keepdims=True)
    shift = np.where(alike, -rho, lead - rho) / whole
    return Sides(
        np.asarray(np.where(alike, middle, means.up) - shift),
        np.asarray(np.where(alike, middle, means.down) + shift),
    )


def largest_stake(centres: Sides, share: Sides) -> Floats:
    """The Λ at which a single reward could take the whole wealth: the limit of positivity."""
    risk = np.maximum(
        share.up * np.maximum(centres.up, betting.MARGIN),
        share.down * np.maximum(1.0 - centres.down, betting.MARGIN),
    )
    return np.asarray(1.0 / risk.max(axis=-1))


def share_of(weights: ArrayLike, pulls: ArrayLike) -> Floats:
    """w/n of each cell; 0 without pulls or without weight."""
    n = np.asarray(pulls, dtype=np.float64)
    return np.asarray(np.where(n > 0, np.asarray(weights) / np.where(n > 0, n, 1.0), 0.0))


@dataclass(frozen=True)
class Forecast:
    """What earlier rewards say about a contrast: centres, the lead, and its variance now and in a block."""

    centres: Sides
    share: Sides
    lead: Floats  # of b over a, less the margin
    error: Floats  # the variance of the estimated lead
    spread: Floats  # Σ w²·v/n over the cells of the block: the variance of its contrast


def forecast(up: Sums, down: Sums, pulls: Sides, weights: Sides, margin: ArrayLike = 0.0) -> Forecast:
    """The forecast for a block with these pulls, from the rewards before it.

    Parameters
    ----------
    up, down : Sums
        The earlier rewards of the cells of options b and a.
    pulls, weights : Sides
        The pulls of each cell in the block, and its weight.
    margin : array_like
        ρ: the lead that the bets dispute.

    Returns
    -------
    Forecast
    """
    means = Sides(estimate(up.count, up.total), estimate(down.count, down.total))
    centres = centres_of(means, pulls, weights, margin)
    share = Sides(share_of(weights.up, pulls.up), share_of(weights.down, pulls.down))
    v = Sides(_second_moment(up, centres.up), _second_moment(down, centres.down))
    before = Sides(np.maximum(up.count, 1.0), np.maximum(down.count, 1.0))
    error = weights.up**2 * v.up / before.up + weights.down**2 * v.down / before.down
    spread = weights.up * share.up * v.up + weights.down * share.down * v.down
    lead = (weights.up * means.up - weights.down * means.down).sum(axis=-1) - np.asarray(margin)
    return Forecast(centres, share, np.asarray(lead), error.sum(axis=-1), spread.sum(axis=-1))


def _second_moment(sums: Sums, centre: Floats) -> Floats:
    """An estimate of E(x − centre)², with four pulls' worth of a coin's variance added."""
    coin = np.clip(centre, betting.MARGIN, 1 - betting.MARGIN)
    about = sums.squares - 2 * centre * sums.total + sums.count * centre**2
    return np.asarray((np.maximum(about, 0.0) + 4 * coin * (1 - coin)) / (sums.count + 4))


def contrast_bets(
    up: Sums,
    down: Sums,
    pulls: Sides,
    weights: Sides,
    stakes: int,
    margin: ArrayLike = 0.0,
    doubt: float | None = None,
) -> ContrastBets:
    """The bets on "b is ahead of a by more than ρ" for a block, from the rewards before it.

    Parameters
    ----------
    up, down : Sums
        The earlier rewards of the cells of options b and a; the last axis is the site.
    pulls : Sides
        The pulls of each cell in the block, at least 1 where its weight is above 0.
    weights : Sides
        The weight of each cell; 0 where the option is not offered.
    stakes : int
        The number of stakes, see ``stake_count``.
    margin : array_like
        ρ.
    doubt : float, optional
        The standard error of the estimated lead, if there are no earlier rewards.

    Returns
    -------
    ContrastBets

    Examples
    --------
    One block at one site: the lead of 8 of 10 over 3 of 10 multiplies the wealth.

    >>> before = Sums.none(1)
    >>> ten, one = Sides.of([10.0], [10.0]), Sides.of([1.0], [1.0])
    >>> bets = contrast_bets(before, before, ten, one, stakes=9)
    >>> b, a = (Sums(*(np.array([float(x)]) for x in (10, s, s, 0, 1))) for s in (8, 3))
    >>> round(float(np.exp(log_factor(bets, b, a))), 2)
    5.3
    """
    seen = forecast(up, down, pulls, weights, margin)
    largest = betting.CAP * largest_stake(seen.centres, seen.share)
    grid = largest[..., None] * np.exp2(-0.5 * np.arange(stakes))
    error = seen.error if doubt is None else np.full_like(seen.error, doubt**2)
    shares = betting.weights_around(grid * seen.spread[..., None], seen.lead, error)
    return ContrastBets(seen.centres, seen.share, grid, shares)


def log_wealths(bets: ContrastBets, up: Sums, down: Sums, *, coins: bool = False) -> Floats:
    """The least logarithm of the factor of each stake, from the block's rewards; stakes are the last axis."""
    return np.asarray(site_logs(bets, up, down, coins=coins).sum(axis=-2))


def site_logs(bets: ContrastBets, up: Sums, down: Sums, *, coins: bool = False) -> Floats:
    """The part of each site in ``log_wealths``; the last axes are site and stake.

    The sums of b may be rounded as ``betting.least_log_wealth`` allows, those of a in the reflected way. If
    all rewards are 0/1 (`coins`), this is the logarithm itself, and is found faster.
    """
    if coins:
        return _coin_logs(bets, up, down)
    b, a = (Sums(*(np.asarray(part)[..., None] for part in sums.parts)) for sums in (up, down))
    stakes = bets.stakes[..., None, :]
    gained = betting.least_log_wealth(
        b.count, b.total, b.squares, b.least, stakes * bets.share.up[..., None], bets.centres.up[..., None]
    )
    lost = betting.least_log_wealth(
        a.count,
        a.count - a.total,
        a.count - 2 * a.total + a.squares,
        1.0 - a.most,
        stakes * bets.share.down[..., None],
        1.0 - bets.centres.down[..., None],
    )
    return np.asarray(gained + lost)


def _coin_logs(bets: ContrastBets, up: Sums, down: Sums) -> Floats:
    """``site_logs`` for 0/1 rewards: the ones and the zeros of each cell have one factor each."""
    stakes, found = bets.stakes[..., None, :], []
    for sums, share, centre, sign in (
        (up, bets.share.up, bets.centres.up, 1.0),
        (down, bets.share.down, bets.centres.down, -1.0),
    ):
        bet = stakes * (sign * share)[..., None]
        ones, zeros, m = (part[..., None] for part in (sums.total, sums.count - sums.total, centre))
        found.append(ones * np.log(1.0 + bet * (1.0 - m)) + zeros * np.log(1.0 - bet * m))
    return np.asarray(found[0] + found[1])


def log_factor(bets: ContrastBets, up: Sums, down: Sums, *, coins: bool = False) -> Floats:
    """The logarithm of the factor of a block, from its rewards of the cells of b and a."""
    return betting.log_mean_exp(log_wealths(bets, up, down, coins=coins), bets.weights)


class PlayedBlock(Protocol):
    """A block that was played, for ``lower_bound``."""

    @property
    def trials(self) -> tuple[int, ...]:
        """The leading axes of its rewards."""

    def log_wealths(self, weights: Sides, margin: ArrayLike) -> Floats:
        """The logarithm of its factor for each of STAKES stakes, for bets on a lead of more than `margin`."""


@dataclass(frozen=True)
class Played:
    """A block of a contrast: the estimates before it, its pulls, and its rewards for bets on and against.

    `on` and `against` hold the cells of options b and a for bets that b is ahead; `against` may be empty
    (weight 0) if only the value of b is wanted. `stake` is the one stake to bet with; without it there is a
    grid of STAKES.
    """

    means: Sides
    pulls: Sides
    on: Sums
    against: Sums
    stake: Floats | None = None

    @property
    def trials(self) -> tuple[int, ...]:
        return self.on.count.shape[:-1]

    def log_wealths(self, weights: Sides, margin: ArrayLike) -> Floats:
        return np.asarray(self.site_logs(weights, margin).sum(axis=-2))

    def site_logs(self, weights: Sides, margin: ArrayLike) -> Floats:
        """The part of each site in ``log_wealths``; the last axes are site and stake."""
        share = Sides(share_of(weights.up, self.pulls.up), share_of(weights.down, self.pulls.down))
        largest = safe_stake(share)
        if self.stake is None:
            grid = largest[..., None] * np.exp2(-0.5 * np.arange(STAKES))
        else:
            grid = np.minimum(self.stake, largest)[..., None]
        centres = centres_of(self.means, self.pulls, weights, margin)
        return site_logs(ContrastBets(centres, share, grid, grid), self.on, self.against)


def safe_stake(share: Sides) -> Floats:
    """The largest Λ of bets whose centres are anywhere in [−1, 2]."""
    most = np.maximum(share.up.max(axis=-1), share.down.max(axis=-1))
    return np.asarray(betting.CAP / (2.0 * most))


@dataclass(frozen=True)
class Stacked:
    """Several blocks as one, whose first axis is the block. Where `took` is false, no bets are made."""

    blocks: Played
    took: NDArray[np.bool_]

    @property
    def trials(self) -> tuple[int, ...]:
        return self.took.shape[1:]

    def log_wealths(self, weights: Sides, margin: ArrayLike) -> Floats:
        logs = self.blocks.log_wealths(weights, margin)
        return np.asarray(np.where(self.took[..., None], logs, 0.0).sum(axis=0))

    def site_logs(self, weights: Sides, margin: ArrayLike) -> Floats:
        """The part of each site in ``log_wealths``; the last axes are site and stake."""
        logs = self.blocks.site_logs(weights, margin)
        return np.asarray(np.where(self.took[..., None, None], logs, 0.0).sum(axis=0))


Won = Callable[[Floats], NDArray[np.bool_]]  # whether the bets against a lead of at most this have won


def lower_bound(
    blocks: Sequence[PlayedBlock], weights: Sides, alpha: ArrayLike, span: tuple[float, float] = (-1.0, 1.0)
) -> Floats:
    """A lower bound on the lead of b over a, above it with probability at most alpha at any stopping time.

    It is the largest lead against which bets at fixed shares of a grid of stakes have won 1/alpha. Leading
    axes of the rewards are trials.

    Parameters
    ----------
    blocks : sequence of PlayedBlock
        All blocks in which the cells were pulled, in order; at least one.
    weights : Sides
        The weight of each cell.
    alpha : array_like
        The probability of a miss, by trial.
    span : tuple of two float
        The smallest and the largest possible lead.

    Returns
    -------
    ndarray
    """
    return largest_won(lambda lead: has_won(blocks, weights, alpha, lead), blocks[0].trials, span)


def largest_won(won: Won, shape: tuple[int, ...], span: tuple[float, float]) -> Floats:
    """The largest lead against which bets have won, by bisection; the low end of the span if none is."""
    low, high = np.full(shape, span[0]), np.full(shape, span[1])
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        found = won(middle)
        low, high = np.where(found, middle, low), np.where(found, high, middle)
    return low


def has_won(
    blocks: Sequence[PlayedBlock], weights: Sides, alpha: ArrayLike, lead: ArrayLike
) -> NDArray[np.bool_]:
    """Whether the bets against a lead of at most `lead` have won 1/alpha: it is below the lower bound."""
    logs = sum((block.log_wealths(weights, lead) for block in blocks), start=np.zeros(STAKES))
    return np.asarray(betting.log_mean_exp(logs, 1.0 / STAKES) >= -np.log(alpha))


def has_won_without(
    blocks: Sequence[Stacked], weights: Sides, alpha: float, lead: ArrayLike, home: NDArray[np.int64], f: int
) -> NDArray[np.bool_]:
    """Whether the bets against a lead of at most `lead` have won 1/alpha whatever any f sites report.

    For each stake the f sites with the largest logarithms are left out. `home` is the site of each cell. The
    centres of all sites must dispute the same lead (docs/questions-proofs.md, "Sites that lie"): both options
    have the same weight at every site, or there is only one and its estimates in `blocks` are alike.
    """
    logs: Floats = sum((block.site_logs(weights, lead) for block in blocks), start=np.zeros(STAKES))
    by_site = np.stack([logs[..., home == site, :].sum(axis=-2) for site in np.unique(home)], axis=-2)
    kept = np.sort(by_site, axis=-2)[..., : by_site.shape[-2] - f, :]
    return np.asarray(betting.log_mean_exp(kept.sum(axis=-2), 1.0 / STAKES) >= math.log(1.0 / alpha))
