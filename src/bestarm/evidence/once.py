"""One look at recorded rewards: an e-value against each statement, averaged over random orders of the rows.

In each order the rows of every cell are shuffled and cut into the same few blocks. The bets of a block are
fixed from the blocks before it, with one stake that is tuned to the number of rows, so the final wealth has
mean at most 1 if the statement is true, and so has its mean over all orders. Running maxima of the wealth
would not do, and no plan uses another order's results. The proof is in docs/evidence-proofs.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm.evidence.contests import Contest, Floats, Ints
from bestarm.evidence.shuffles import block_sizes, draw, orders_at_once
from bestarm.stats import betting
from bestarm.stats.contrasts import (
    ContrastBets,
    Sides,
    centres_of,
    estimate,
    largest_stake,
    log_wealths,
    share_of,
)
from bestarm.stats.fisher_exact import fisher_pvalue
from bestarm.stats.sums import Sums

ORDERS = 100
MOST_FOR_FISHER = 100  # options, up to which Fisher's tests are stronger than the e-value

Mask = NDArray[np.bool_]
Watch = Callable[[int, int], None]  # how many orders are done, and of how many


@dataclass(frozen=True)
class Claims:
    """Statements that are disputed: option `up` is ahead of option `down` by at most `margin`.

    Without `up` the statement is that `down` is the best, and in each block the bets against it are on the
    best other option so far.
    """

    down: Ints
    margin: Floats
    up: Ints | None = None

    @staticmethod
    def best(options: int) -> Claims:
        """For each option: it is the best."""
        return Claims(np.arange(options), np.zeros(options))

    @staticmethod
    def control(options: int, control: int, margin: float) -> Claims:
        """About the lead g of each option over a control: g ≤ ρ and g ≥ −ρ; with ρ > 0 also g ≥ ρ, g ≤ −ρ.

        The claims of one kind stand together.
        """
        others = np.array([a for a in range(options) if a != control])
        same = np.full_like(others, control)
        up, down, margins = [others, same], [same, others], [margin, margin]
        if margin > 0:
            up, down, margins = [*up, same, others], [*down, others, same], [*margins, -margin, -margin]
        return Claims(np.concatenate(down), np.repeat(margins, len(others)), np.concatenate(up))

    def active(self, rejected: Mask) -> Mask:
        """The claims that are still of interest: not those about an option that is settled."""
        if self.up is None:
            return ~rejected
        number = 2 if (self.margin >= 0).all() else 4
        kinds = np.split(rejected, number, axis=-1)
        settled = kinds[0] | kinds[1]
        if number == 4:
            settled = settled | (kinds[2] & kinds[3])
        return np.asarray(~np.concatenate([settled] * number, axis=-1) & ~rejected)


def log_evalues(
    contest: Contest,
    claims: Claims,
    level: float,
    seed: int,
    orders: int = ORDERS,
    watch: Watch | None = None,
) -> Floats:
    """The logarithm of the e-value against each claim.

    Parameters
    ----------
    contest : Contest
        The recorded rewards.
    claims : Claims
        The statements.
    level : float
        The level at which a claim will be rejected; the stake is tuned to it.
    seed : int
        Fixes the orders of the rows.
    orders : int
        The number of orders, fixed in advance.
    watch : callable, optional
        Called with the number of orders that are done, and with `orders`.

    Returns
    -------
    ndarray
    """
    sizes = block_sizes(contest.rows)
    step = orders_at_once(contest, len(sizes))
    logs = np.empty((orders, len(claims.down)))
    for part, first in enumerate(range(0, orders, step)):
        last = min(first + step, orders)

        def told(share: float, first: int = first, last: int = last) -> None:
            if watch is not None:
                watch(int(first + share * (last - first)), orders)

        drawn = draw(contest, sizes, last - first, seed, part, told)
        logs[first:last] = log_wealth(drawn, contest.weights, claims, level, contest.grid)[:, -1]
        if watch is not None:
            watch(last, orders)
    return log_mean(logs)


def log_mean(logs: Floats) -> Floats:
    """The logarithm of the mean over the first axis, from logarithms."""
    return betting.log_mean_exp(np.moveaxis(logs, 0, -1), 1.0 / len(logs))


def log_wealth(blocks: Sums, weights: Floats, claims: Claims, level: float, grid: float = 0.0) -> Floats:
    """The logarithm of the wealth of the bets against each claim after each block. Only the last one counts.

    Parameters
    ----------
    blocks : Sums
        The sums of each block: order, block, option, site.
    weights : ndarray
        The weight of each site.
    claims : Claims
        The statements.
    level : float
        The level to which the stake is tuned.
    grid : float
        Rewards lie between their value and their value + grid: they count as the former for the option that
        the bets are on, and as the latter for the other.

    Returns
    -------
    ndarray
        Its axes are the order, the block and the claim.
    """
    orders, number, options, sites = blocks.count.shape
    rows = blocks.count.sum(axis=1)
    before = Sums.none((orders, options, sites))
    logs = np.zeros((orders, number, len(claims.down)))
    for k in range(number):
        now = blocks.at((slice(None), k))
        if k > 0 or options == 2 or claims.up is not None:
            champion = _champions(before, weights) if claims.up is None else claims.up
            at = (np.arange(orders)[:, None], champion)
            up, down = before.at(at), before.at((slice(None), claims.down))
            pulls = Sides(now.count[at], now.count[:, claims.down])
            of_file = Sides(rows[at], rows[:, claims.down])
            bets = one_stake(up, down, pulls, of_file, weights, level, claims.margin)
            against = raised(now.at((slice(None), claims.down)), grid)
            logs[:, k] = log_wealths(bets, now.at(at), against)[..., 0]
        before = before.plus(now)
    return np.cumsum(logs, axis=1)


def _champions(before: Sums, weights: Floats) -> Ints:
    """For each option, the other one with the largest weighted mean so far; ties: the first."""
    worth = (estimate(before.count, before.total) * weights).sum(axis=-1)
    first = worth.argmax(axis=-1, keepdims=True)
    rest = worth.copy()
    np.put_along_axis(rest, first, -np.inf, axis=-1)
    second = rest.argmax(axis=-1, keepdims=True)
    return np.asarray(np.where(np.arange(worth.shape[-1]) == first, second, first))


def one_stake(
    up: Sums, down: Sums, pulls: Sides, rows: Sides, weights: Floats, level: float, margin: Floats
) -> ContrastBets:
    """The bet of a block with the one stake that needs the smallest lead to reach 1/level with these rows.

    Λ = min(√(2·ln(1/level)·V_N)/V_k, .75 of the limit of positivity), where V is Σ w²·v̂/n over the cells of
    both options, with the rows of the table for V_N and those of the block for V_k.

    Parameters
    ----------
    up, down : Sums
        The rewards of both options before the block, by site.
    pulls, rows : Sides
        The number of rewards of each cell in the block, and in the table.
    weights : ndarray
        The weight of each site.
    level : float
        The level to which the stake is tuned.
    margin : ndarray
        The lead that the bets dispute.

    Returns
    -------
    ContrastBets
    """
    both = Sides(np.broadcast_to(weights, pulls.up.shape), np.broadcast_to(weights, pulls.down.shape))
    equal = Sides(np.ones_like(pulls.up), np.ones_like(pulls.down))
    means = Sides(estimate(up.count, up.total), estimate(down.count, down.total))
    centres = centres_of(means, equal, both, margin)
    share = Sides(share_of(both.up, pulls.up), share_of(both.down, pulls.down))
    v = Sides(_spread(up, centres.up), _spread(down, centres.down))
    in_table, in_block = (
        (both.up**2 * v.up / n.up + both.down**2 * v.down / n.down).sum(axis=-1) for n in (rows, pulls)
    )
    tuned = np.sqrt(2 * math.log(1 / level) * in_table) / in_block
    stake = np.minimum(tuned, betting.CAP * largest_stake(centres, share))
    return ContrastBets(centres, share, stake[..., None], np.ones((*stake.shape, 1)))


def _spread(sums: Sums, centre: Floats) -> Floats:
    """v̂: the second moment about the centre; a margin may put the centre outside [0, 1]."""
    inside = np.clip(centre, betting.MARGIN, 1 - betting.MARGIN)
    about = sums.squares - 2 * centre * sums.total + sums.count * centre**2
    return np.asarray((np.maximum(about, 0.0) + 4 * inside * (1 - inside)) / (sums.count + 4))


def raised(sums: Sums, grid: float) -> Sums:
    """The sums of the upper ends of a grid, from those of the lower ends."""
    if not grid:
        return sums
    squares = sums.squares + 2 * grid * sums.total + sums.count * grid**2
    most = np.minimum(sums.most + grid, 1.0)
    return Sums(sums.count, np.minimum(sums.total + grid * sums.count, sums.count), squares, sums.least, most)


def pvalues(sums: Sums, claims: Claims) -> Floats:
    """Fisher's exact p-value of each claim about 0/1 rewards, one cell per option and no margin.

    That an option is the best is tested against each other option; the smallest p-value is multiplied by the
    number of them.
    """
    ones, rows = np.round(sums.total[:, 0]), sums.count[:, 0]
    if claims.up is not None:
        a, b = claims.down, claims.up
        return np.asarray(fisher_pvalue(ones[a], ones[b], rows[a], rows[b]))
    p = fisher_pvalue(ones[:, None], ones[None], rows[:, None], rows[None])
    np.fill_diagonal(p, 1.0)
    return np.asarray(np.minimum(1.0, (len(ones) - 1) * p.min(axis=1)))
