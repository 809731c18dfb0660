"""The decisions of Fed-Bet for questions about several sites, as races.

A race asks for the best of several options, or compares them with a control. Options leave, or it is settled
how they compare, by bets on contrasts over the clients of the race (``stats.contrasts``). All arrays have the
trials of a study as their first axis; a server has one trial. The rewards of all cells are (trials, clients,
options).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks
from bestarm.methods.bet.options import Bet
from bestarm.problem.question import Cells, Question
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Sides
from bestarm.stats.pairs import paired_bets, paired_log_factor
from bestarm.stats.sums import Sums

MOST_TERMS = 1 << 15  # of one evaluation, so that they fit in the CPU cache: pairs × clients × stakes
TRIMMED_STAKES = 32  # where sites may lie, the grid has to reach small leads from the start
FIRST_STAKES, FIRST_LEAD = 12, 0.05  # of bets on the first pulls; a lead that is worth a bet unseen
Openers = tuple[tuple[int, int], ...]
OPEN, BETTER, WORSE, WITHIN = range(4)  # the claims about an option and the control


@dataclass(frozen=True)
class Pairs:
    """Y = (1 + X_reference − X_option)/2 of a block's subjects, (trials, clients, options).

    `reference` is an option for each trial and client; −1 if the client has no subjects in the block. `unit`
    is how much larger than `fresh.total` the true sum may be. `coins`: the clients with 0/1 rewards.
    """

    reference: Ints
    fresh: Sums
    unit: Floats
    coins: Mask

    def on(self, trial: Ints, clients: Ints, b: Ints, a: Ints) -> Sums:
        """Y of option b and option a, one of which is the reference: no rounding can help the gambler."""
        up, place = self.fresh.at((trial, clients, a)), (trial, clients, b)
        count, total, squares, least, most = self.fresh.at(place).parts
        unit = self.unit[place]
        down = Sums(count, total + unit, squares + 2 * unit, least, most).mirrored()
        ahead = self.reference[trial, clients] == b
        return Sums(*(np.where(ahead, *both) for both in zip(up.parts, down.parts, strict=True)))

    def add_to(self, met: Sums) -> None:
        """Add these pairs to those of all (trials, clients, options b, options a), both ways round."""
        trials, clients = self.reference.shape
        t, i = np.arange(trials)[:, None], np.arange(clients)
        mirror = self.fresh.mirrored()
        for place, new in (
            ((t, i, self.reference), self.fresh),
            ((t, i, slice(None), self.reference), mirror),
        ):
            for part, value in zip(met.parts, met.at(place).plus(new).parts, strict=True):
                part[place] = value


@dataclass(frozen=True)
class Block:
    """A closed block: the pulls of each cell, and its rewards, (trials, clients, options).

    `unit` is how much larger than `fresh.total` the true sum of a cell may be, because of rounding. The
    squares are rounded up, the smallest reward down and the largest up. `coins`: all rewards are 0/1. `pairs`
    are those of a paired layout.
    """

    pulls: Ints
    fresh: Sums
    unit: Floats
    coins: bool = False
    pairs: Pairs | None = None

    def up(self, place: tuple[Ints, ...]) -> Sums:
        """The rewards of some cells for bets on them: no rounding can help the gambler."""
        return self.fresh.at(place)

    def down(self, place: tuple[Ints, ...]) -> Sums:
        """The rewards of some cells for bets against them: no rounding can help the gambler."""
        count, total, squares, least, most = self.fresh.at(place).parts
        unit = self.unit[place]
        return Sums(count, total + unit, squares + 2 * unit, least, most)


@dataclass
class Stand:
    """Who plays the next block of a race: the options that are in, the champion, and c for each trial."""

    inside: Mask  # (trials, options)
    champion: Ints  # (trials,)
    ratio: Ints  # (trials,)


@dataclass(frozen=True)
class Before:
    """The rewards of closed blocks; in a paired layout also Y of options b and a that met.

    `met` is (trials, clients, options b, options a).
    """

    sums: Sums
    met: Sums | None = None


class Race(Protocol):
    """One answer, or the answers about all options and the control."""

    site: int | None
    clients: Ints
    weights: Floats
    level: float  # an option leaves, or is settled, at wealth 1/level
    log_wealth: Floats  # (…, trials, options)
    slope: float  # κ of random answers, else 1

    @property
    def inside(self) -> Mask:
        """The options that may still be the best, or are open, in each trial."""

    @property
    def over(self) -> Mask:
        """In which trials the race is decided."""

    def stand(self, sums: Sums) -> Stand:
        """Who plays the next block, from the rewards of closed blocks."""

    def close(self, before: Before, block: Block, stand: Stand, n: int) -> None:
        """Update the wealths by a block that was played as `stand` says, after the rewards `before`.

        `n`: the pulls before it of a cell that was never the champion's.
        """


def values(sums: Sums, weights: Floats, clients: Ints) -> tuple[Floats, Floats]:
    """The estimated value of each option and its standard error, from the cells of some clients."""
    own, w = sums.at((slice(None), clients)), weights[clients]
    mean = contrasts.estimate(own.count, own.total)
    variance = np.maximum(contrasts.estimate(own.count, own.squares) - mean**2, 0.0)
    value = (w * mean).sum(axis=-2)
    return value, np.sqrt((w**2 * variance / np.maximum(own.count, 1.0)).sum(axis=-2))


def log_factors(
    weights: Floats,
    clients: Ints,
    before: Before,
    block: Block,
    pairs: tuple[Ints, Ints, Ints],
    stakes: int,
    margin: float = 0.0,
    doubt: float | None = None,
) -> Floats:
    """The logarithm of the factor of each pair: bets on "the first option is ahead by more than `margin`".

    `pairs`: the trial, the option that the bets are on, and the one that they are against. `doubt`: see
    ``contrast_bets``.
    """
    found, size = np.zeros(len(pairs[0])), max(1, MOST_TERMS // (len(clients) * stakes))
    for start in range(0, len(found), size):
        t, b, a = (part[start : start + size, None] for part in pairs)
        up, down = (t, clients[None], b), (t, clients[None], a)
        past = (before.sums.at(up), before.sums.at(down))
        if block.pairs is not None and before.met is not None:
            met = before.met.at((t, clients[None], b, a))
            paired = paired_bets(*past, met, block.pulls[down], weights[down[1:]], stakes, margin)
            new = block.pairs.on(t, clients[None], b, a)
            found[start : start + size] = paired_log_factor(paired, new, block.pairs.coins[clients])
            continue
        bets = contrasts.contrast_bets(
            *past,
            Sides.of(block.pulls[up], block.pulls[down]),
            Sides(weights[up[1:]], weights[down[1:]]),
            stakes,
            margin,
            doubt,
        )
        found[start : start + size] = contrasts.log_factor(
            bets, block.up(up), block.down(down), coins=block.coins
        )
    return found


def played(pulls: Ints, weights: Floats, clients: Ints) -> Mask:
    """The options that were pulled in all their cells."""
    return np.asarray(((pulls[:, clients] > 0) | (weights[clients] == 0)).all(axis=1))


class BestRace:
    """The best option over some clients: an option leaves when its wealth reaches 1/level."""

    slope = 1.0

    def __init__(
        self, clients: Ints, weights: Floats, level: float, trials: int, site: int | None = None
    ) -> None:
        self.clients, self.weights, self.level, self.site = clients, weights, level, site
        offered = weights[clients].sum(axis=0) > 0
        self.inside = np.tile(offered, (trials, 1))
        self.log_wealth = np.zeros(self.inside.shape)

    @property
    def over(self) -> Mask:
        return np.asarray(self.inside.sum(axis=1) <= 1)

    @property
    def winner(self) -> Ints:
        """The only option that is in; −1 where the race is open."""
        return np.where(self.inside.sum(axis=1) == 1, np.argmax(self.inside, axis=1), -1)

    def begin(self, block: Block, openers: Openers) -> None:
        """Update the wealths by the first pulls: bets on the first option of each pair, against the other."""
        before = Before(Sums.none(block.pulls.shape))
        stakes = FIRST_STAKES + betting.smaller_stakes(self.slope)
        trial = np.flatnonzero(~self.over & played(block.pulls, self.weights, self.clients).all(axis=1))
        for b, a in openers:
            pairs = (trial, np.full_like(trial, b), np.full_like(trial, a))
            self.log_wealth[trial, a] += log_factors(
                self.weights, self.clients, before, block, pairs, stakes, doubt=FIRST_LEAD * self.slope
            )
        self.inside &= ~bet_decisions.leaves(self.log_wealth, self.level)

    def stand(self, sums: Sums) -> Stand:
        value, error = values(sums, self.weights, self.clients)
        champion = bet_decisions.top(value - error, self.inside)
        rivals = np.maximum(self.inside.sum(axis=1) - 1, 0)
        return Stand(self.inside.copy(), champion, bet_decisions.ratio(rivals))

    def close(self, before: Before, block: Block, stand: Stand, n: int) -> None:
        rivals = self.inside & stand.inside & played(block.pulls, self.weights, self.clients)
        rivals[np.arange(len(rivals)), stand.champion] = False
        rivals[self.over] = False
        trial, rival = np.nonzero(rivals)
        pairs = (trial, stand.champion[trial], rival)
        stakes = contrasts.stake_count(n * len(self.clients), self.slope)
        self.log_wealth[rivals] += log_factors(self.weights, self.clients, before, block, pairs, stakes)
        self.inside &= ~(rivals & bet_decisions.leaves(self.log_wealth, self.level))


class TrimmedRace(BestRace):
    """The best option over the honest sites, if up to f sites may lie.

    An option leaves only if its wealth is at least 1/level without any f sites. Every stake keeps its number
    and its weight for good, so the f largest cumulative logarithms of sites are left out for each stake,
    which is at most the wealth without any f sites. Nothing is chosen block by block.
    """

    prior: ClassVar[Floats] = 1.0 / (
        np.arange(1.0, TRIMMED_STAKES + 1.0) * np.arange(2.0, TRIMMED_STAKES + 2.0)
    )

    def tolerate(self, sites: Ints, faults: int) -> None:
        """Say which site each client belongs to, and how many sites may lie."""
        self.home, self.faults = np.unique(sites, return_inverse=True)[1], faults
        shape = (*self.inside.shape, int(self.home.max()) + 1, TRIMMED_STAKES)
        self.logs = np.zeros(shape)  # (trials, options, sites, stakes)

    def stand(self, sums: Sums) -> Stand:
        """The champion leads the other options most, without the f highest and the f lowest sites."""
        own = sums.at((slice(None), self.clients))
        mean = contrasts.estimate(own.count, own.total)
        lead = mean - mean.mean(axis=-1, keepdims=True)
        share = self.weights[self.clients].max(axis=-1)
        by_site = self._by_site(lead * share[:, None])
        kept = np.sort(by_site, axis=1)[:, self.faults : by_site.shape[1] - self.faults]
        champion = bet_decisions.top(kept.sum(axis=1), self.inside)
        rivals = np.maximum(self.inside.sum(axis=1) - 1, 0)
        return Stand(self.inside.copy(), champion, bet_decisions.ratio(rivals))

    def close(self, before: Before, block: Block, stand: Stand, n: int) -> None:
        rivals = self.inside & stand.inside & played(block.pulls, self.weights, self.clients)
        rivals[np.arange(len(rivals)), stand.champion] = False
        rivals[self.over] = False
        trial, rival = np.nonzero(rivals)
        size = max(1, MOST_TERMS // (len(self.clients) * TRIMMED_STAKES))
        for start in range(0, len(trial), size):
            self._add(before.sums, block, stand, trial[start : start + size], rival[start : start + size])
        most = np.sort(self.logs[rivals], axis=-2)[..., : self.logs.shape[-2] - self.faults, :]
        self.log_wealth[rivals] = betting.log_mean_exp(most.sum(axis=-2), self.prior)
        self.inside &= ~(rivals & bet_decisions.leaves(self.log_wealth, self.level))

    def _add(self, before: Sums, block: Block, stand: Stand, trial: Ints, rival: Ints) -> None:
        """Add the logarithms of a block, for these trials and rivals."""
        t, a, clients = trial[:, None], rival[:, None], self.clients[None]
        up, down = (t, clients, stand.champion[t]), (t, clients, a)
        bets = contrasts.contrast_bets(
            before.at(up),
            before.at(down),
            Sides.of(block.pulls[up], block.pulls[down]),
            Sides(self.weights[up[1:]], self.weights[down[1:]]),
            TRIMMED_STAKES,
        )
        logs = contrasts.site_logs(bets, block.up(up), block.down(down), coins=block.coins)
        self.logs[trial, rival] += self._by_site(logs)

    def _by_site(self, parts: Floats) -> Floats:
        """The sums over the clients of each site; clients are the second axis."""
        sites = range(int(self.home.max()) + 1)
        return np.stack([parts[:, self.home == site].sum(axis=1) for site in sites], axis=1)


@dataclass(frozen=True)
class OneSided:
    """A one-sided test of an option: the bets are on it or on the control, and dispute a lead of ±margin."""

    on_option: bool
    sign: int


# The tests "better" and "worse"; with a margin also "not as much better" and "not as much worse".
TESTS = (OneSided(True, 1), OneSided(False, 1), OneSided(False, -1), OneSided(True, -1))


class ControlRace:
    """All options against a control: each is better, worse, within the margin, or open."""

    site: int | None = None
    slope = 1.0

    def __init__(
        self, clients: Ints, weights: Floats, control: int, level: float, margin: float, trials: int
    ) -> None:
        self.clients, self.weights, self.control, self.margin = clients, weights, control, margin
        self.offered = weights[clients].sum(axis=0) > 0
        self.tests = TESTS if margin > 0 else TESTS[:2]
        rivals = max(int(self.offered.sum()) - 1, 1)
        self.level = level / (len(self.tests) * rivals)
        self.claim: Ints = np.zeros((trials, len(self.offered)), dtype=np.int64)
        self.log_wealth = np.zeros((len(self.tests), trials, len(self.offered)))

    @property
    def inside(self) -> Mask:
        found = (self.claim == OPEN) & self.offered
        found[:, self.control] = False
        return np.asarray(found)

    @property
    def over(self) -> Mask:
        return np.asarray(~self.inside.any(axis=1))

    def stand(self, sums: Sums) -> Stand:
        inside = self.inside
        ratio = bet_decisions.ratio(inside.sum(axis=1))
        inside[:, self.control] = True
        return Stand(inside, np.full(len(inside), self.control), ratio)

    def close(self, before: Before, block: Block, stand: Stand, n: int) -> None:
        plays = self.inside & stand.inside & played(block.pulls, self.weights, self.clients)
        trial, option = np.nonzero(plays)
        control = np.full(len(option), self.control)
        stakes = contrasts.stake_count(n * len(self.clients), self.slope)
        for test, wealth in zip(self.tests, self.log_wealth, strict=True):
            pairs = (trial, option, control) if test.on_option else (trial, control, option)
            margin = test.sign * self.margin
            wealth[plays] += log_factors(self.weights, self.clients, before, block, pairs, stakes, margin)
        won = list(bet_decisions.leaves(by_claim(self.log_wealth), self.level))
        claim = np.select(won, [BETTER, WORSE, WITHIN][: len(won)], OPEN)
        self.claim = np.where(plays, claim, self.claim)


def by_claim(log_wealth: Floats) -> Floats:
    """The wealth of the bets on "better", "worse" and with a margin "within", which needs both its tests.

    `log_wealth` has the tests of ``ControlRace`` as its first axis.
    """
    if len(log_wealth) == 2:
        return log_wealth
    return np.stack([log_wealth[0], log_wealth[1], np.minimum(log_wealth[2], log_wealth[3])])


def race_progress(race: Race, sums: Sums) -> tuple[float, float]:
    """The least logarithm of the wealth against an option that has to leave or be settled, and its limit.

    Of a race with one trial that is not over. The champion is the one that may stay.
    """
    wealth, left = race.log_wealth[..., 0, :], race.inside[0].copy()
    left[race.stand(sums).champion[0]] = False
    furthest = by_claim(wealth).max(axis=0) if wealth.ndim > 1 else wealth  # the claim nearest to its limit
    return float(furthest[left].min()), -math.log(race.level)


def races_of(cells: Cells, question: Question, options: Bet, present: Mask, trials: int) -> list[Race]:
    """The races of a question, about the clients that take part.

    With ``also = ["each"]``, δ is split in two: half for all sites, half for the sites' own answers.
    """
    everyone, found = np.flatnonzero(present), list[Race]()
    share = options.delta / (2 if question.also else 1)
    if question.kind != "each":
        weights = cells.weights(question.weights or (1.0,) * (int(cells.site.max()) + 1), present)
        if options.byzantine:
            race = TrimmedRace(everyone, weights, share, trials)
            race.tolerate(cells.site[everyone], options.byzantine)
            found.append(race)
        elif question.control is not None:
            control = cells.options.index(question.control)
            found.append(ControlRace(everyone, weights, control, share, options.margin, trials))
        else:
            found.append(BestRace(everyone, weights, share, trials))
    if question.by_site:
        sites = int(cells.site.max()) + 1
        level = share / sites if question.simultaneous else share
        for j in range(sites):
            own = present & (cells.site == j)
            weights = cells.weights((1.0,) * sites, own)
            found.append(BestRace(np.flatnonzero(own), weights, level, trials, site=j))
    for each in found:
        each.slope = Blocks(options).slope
    return found
