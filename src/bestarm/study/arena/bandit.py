"""A bandit as a baseline sees it: options to pull, one by one or in batches, for many trials at once.

``Bandit`` draws rewards, exact in law. ``Pulls`` is the state of the trials of a kernel that still run:
counts, sums, and what communication and time have cost. It drops a trial when it stops and ends with the
columns of a study. A central baseline talks to the sites for every pull: each pull costs one message down,
which says what to pull, and one message up, with the reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bestarm.problem.coins import Coined
from bestarm.problem.instances import ANYWHERE
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Bernoulli, RewardModel
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.kernel import Columns

REAL = 64  # bits of a reward that is not 0/1, or of a sum of such rewards


@dataclass(frozen=True)
class Bandit:
    """The options of a problem, and where they can be pulled.

    For the question ``anywhere`` the options are all arms of all sites. For ``overall`` they are the options
    that the sites share, and each single pull is made at a site drawn at random, so that the mean of a pull
    is the option's average over the sites.

    Parameters
    ----------
    problem : Problem
        Rewards must not run out.
    question : str
        "anywhere" or "overall".
    """

    problem: Problem
    question: str = ANYWHERE

    @cached_property
    def models(self) -> list[list[RewardModel]]:
        """The reward models by site and arm."""
        layout, first, at = self.problem.layout, [], 0
        for group in layout.groups:
            first.append(list(self.problem.rewards[at]))
            at += len(group.clients)
        return first

    @cached_property
    def names(self) -> list[str]:
        """The possible answers."""
        layout = self.problem.layout
        if self.question != ANYWHERE:
            return list(layout.groups[0].arms)
        return [layout.arm(j, a) for j, count in enumerate(layout.arm_counts) for a in range(count)]

    @property
    def k(self) -> int:
        """The number of options."""
        return len(self.names)

    @cached_property
    def clients(self) -> Ints:
        """The number of clients of each site."""
        return np.array([len(group.clients) for group in self.problem.layout.groups])

    @cached_property
    def site(self) -> Ints:
        """The site of each option; only for ``anywhere``."""
        return np.repeat(np.arange(len(self.clients)), self.problem.layout.arm_counts)

    @cached_property
    def binary(self) -> bool:
        """Whether all rewards are 0 or 1."""
        return all(group.binary for group in self.problem.layout.groups)

    @property
    def reward_bits(self) -> int:
        """The bits of a message with one reward."""
        return 1 if self.binary else REAL

    @property
    def address_bits(self) -> int:
        """The bits that name an option."""
        return max(1, (self.k - 1).bit_length())

    @cached_property
    def _p(self) -> Floats:
        """Means of 0/1 rewards by site and option (one row for ``anywhere``); NaN for other rewards."""
        rows = self.models if self.question != ANYWHERE else [[m for row in self.models for m in row]]
        return np.array([[_rate(model) for model in row] for row in rows])

    @cached_property
    def _averages(self) -> Floats:
        """Means of 0/1 rewards by option, over the sites."""
        return np.asarray(self._p.mean(axis=0))

    @cached_property
    def _others(self) -> list[tuple[int, int, RewardModel]]:
        rows = self.models if self.question != ANYWHERE else [[m for row in self.models for m in row]]
        return [(j, k, rows[j][k]) for j, k in np.argwhere(np.isnan(self._p)).tolist()]

    def one(self, rng: np.random.Generator, arm: Ints) -> tuple[Floats, Ints]:
        """One pull per entry of `arm`.

        Parameters
        ----------
        rng : numpy.random.Generator
            Draws the rewards.
        arm : array of int
            The options to pull.

        Returns
        -------
        tuple of two arrays
            The rewards, and the row of `models` that paid each of them.
        """
        sites, k = self._p.shape
        where = rng.integers(sites, size=arm.shape) if sites > 1 else np.zeros_like(arm)
        at = where * k + arm if sites > 1 else arm
        rewards = (rng.random(arm.shape) < self._p.reshape(-1).take(at)).astype(np.float64)
        for j, option, model in self._others:
            hit = (arm == option) & (where == j)
            if hit.any():
                rewards[hit] = model.sums(rng, np.ones(int(hit.sum()), dtype=np.int64))
        return rewards, where

    def batch(self, rng: np.random.Generator, times: Ints) -> tuple[Floats, Ints]:
        """Several pulls of each option at once.

        Parameters
        ----------
        rng : numpy.random.Generator
            Draws the rewards.
        times : array of int
            The number of pulls: one row per trial, one column per option.

        Returns
        -------
        tuple of two arrays
            The sums of the rewards, in the shape of `times`, and the pulls by row and site.
        """
        if self.question == ANYWHERE:
            sums = self._sums(rng, times, 0)
            return sums, self.by_site(times)
        sites = len(self._p)
        split = rng.multinomial(times, np.full(sites, 1.0 / sites))  # (rows, options, sites)
        sums = sum((self._sums(rng, split[..., j], j) for j in range(sites)), np.zeros(times.shape))
        return np.asarray(sums), split.sum(axis=1)

    def several(self, rng: np.random.Generator, arm: Ints, times: Ints) -> tuple[Floats, Ints | None]:
        """The sum of `times` pulls of one option per row, and the pulls by row and site.

        The pulls by site are None where ``sites_of`` can find them at the end.
        """
        if not self._others:
            return rng.binomial(times, self._averages.take(arm)).astype(np.float64), None
        if self.question == ANYWHERE:
            split, where = times[:, None], None
        else:
            split = where = rng.multinomial(times, np.full(len(self._p), 1.0 / len(self._p)))
        sums = rng.binomial(split, np.nan_to_num(self._p.T[arm])).sum(axis=1, dtype=np.float64)
        for j, k, model in self._others:
            rows = np.flatnonzero(arm == k)
            if rows.size:
                sums[rows] += model.sums(rng, split[rows, j])
        return sums, where

    def sites_of(self, rng: np.random.Generator, n: Ints, sums: Floats) -> Ints:
        """Pulls by row and site, from pulls and sums by row and option, if all rewards are 0/1.

        For ``overall``, given the rewards, the site of a pull is independent of everything else: site j has
        probability p_j/Σp if the pull paid 1, and (1 − p_j)/Σ(1 − p) if it paid 0.
        """
        if self.question == ANYWHERE:
            return self.by_site(n)
        load, paid = np.zeros((len(n), len(self._p)), dtype=np.int64), sums.astype(np.int64)
        for k, p in enumerate(self._p.T):
            load += rng.multinomial(paid[:, k], _shares(p))
            load += rng.multinomial(n[:, k] - paid[:, k], _shares(1.0 - p))
        return load

    def by_site(self, times: Ints) -> Ints:
        """Pulls by row and site, from pulls by row and option; only for ``anywhere``."""
        return np.asarray(times @ (self.site[:, None] == np.arange(len(self.clients))).astype(np.int64))

    def steps(self, load: Ints) -> Ints:
        """The time that pulls take: a site's clients share them, and all pull in parallel.

        Parameters
        ----------
        load : array of int
            The pulls by row and site.

        Returns
        -------
        array of int
            The time of each row.
        """
        return np.asarray((-(-load // self.clients)).max(axis=1))

    def round_steps(self, left: Mask) -> Ints:
        """The time for a round with one pull of each option in `left`, by row.

        For ``overall`` the sites are drawn at random, and a round takes as long as if they were all the same.
        """
        if self.question != ANYWHERE:
            return np.asarray(left.sum(axis=1))
        return self.steps(self.by_site(left.astype(np.int64)))

    def _sums(self, rng: np.random.Generator, times: Ints, j: int) -> Floats:
        sums = rng.binomial(times, np.nan_to_num(self._p[j])).astype(np.float64)
        for row, k, model in self._others:
            if row == j:
                sums[:, k] = model.sums(rng, times[:, k])
        return sums


def _shares(weights: Floats) -> Floats:
    """The weights, scaled to sum to 1. If all are 0, no pull has to be assigned, and any shares will do."""
    if not weights.any():
        return np.full(len(weights), 1.0 / len(weights))
    return np.asarray(weights / weights.sum())


def _rate(model: RewardModel) -> float:
    """The mean of 0/1 rewards whose sums are binomial, else NaN."""
    if isinstance(model, Bernoulli | Coined) and model.p is not None:
        return model.p
    return float("nan")


class Pulls:
    """The trials of a sequential kernel that are still running. All of them have made equally many pulls.

    `n` and `s` are the pulls and the sum of the rewards of each option, by row; `mean` is their quotient. A
    kernel pulls with ``everything`` and ``pull`` and ends trials with ``stop``, which shrinks all arrays.

    Parameters
    ----------
    bandit : Bandit
        The options.
    rng : numpy.random.Generator
        Draws the rewards.
    trials : int
        How many trials there are.
    most : int
        Trials end undecided after so many pulls.
    """

    def __init__(self, bandit: Bandit, rng: np.random.Generator, trials: int, most: int) -> None:
        self.bandit, self.rng, self.most = bandit, rng, most
        self.t, self.rounds = 0, 0
        self.n = np.zeros((trials, bandit.k), dtype=np.int64)
        self.s = np.zeros((trials, bandit.k))
        self.mean = np.zeros((trials, bandit.k))
        self.time = np.zeros(trials, dtype=np.int64)
        self._load = np.zeros((trials, len(bandit.clients)), dtype=np.int64)
        self._alone = bandit.question == ANYWHERE and bool((bandit.clients == 1).all())
        self._trial = np.arange(trials)
        self.outcome = Outcome(bandit, trials)

    def __len__(self) -> int:
        return len(self._trial)

    @property
    def rows(self) -> Ints:
        """The numbers of the rows."""
        return np.arange(len(self))

    def everything(self) -> None:
        """Pull every option once, in one round."""
        rewards, where = self.bandit.one(self.rng, np.tile(np.arange(self.bandit.k), (len(self), 1)))
        self.n += 1
        self.s += rewards
        np.divide(self.s, self.n, out=self.mean)
        self.t += self.bandit.k
        if self.bandit.question != ANYWHERE:
            np.add.at(self._load, (self.rows[:, None], where), 1)
        self.rounds += 1
        self.time += int(self.bandit.round_steps(np.ones((1, self.bandit.k), dtype=bool))[0])

    def pull(self, first: Ints, second: Ints | None = None) -> None:
        """Pull one option, or two different ones, per row, in one round.

        Parameters
        ----------
        first : array of int
            An option for each row.
        second : array of int, optional
            Another option for each row.
        """
        self._add(first)
        self.rounds += 1
        self.time += 1
        if second is not None:
            self._add(second)
            if self._alone:  # one client makes both pulls, one after the other
                self.time += self.bandit.site[first] == self.bandit.site[second]

    def _add(self, arm: Ints) -> None:
        rewards, where = self.bandit.one(self.rng, arm)
        at = self.cells(arm)
        n, s = self.n.reshape(-1), self.s.reshape(-1)
        pulls, sums = n.take(at) + 1, s.take(at) + rewards
        n[at], s[at] = pulls, sums
        self.mean.reshape(-1)[at] = sums / pulls
        self.t += 1
        if self.bandit.question != ANYWHERE:
            self._load[self.rows, where] += 1

    def cells(self, arm: Ints) -> Ints:
        """Where one option per row is in ``n.reshape(-1)``, and in other arrays of the same shape."""
        return np.asarray(np.arange(0, self.n.size, self.bandit.k) + arm)

    def stop(self, done: Mask, answer: Ints) -> Mask | None:
        """End the trials in `done` with these answers, and all others undecided if too many pulls were made.

        Parameters
        ----------
        done : array of bool
            The rows to end.
        answer : array of int
            The option that each row answers; only those of the rows to end are used.

        Returns
        -------
        mask or None
            The rows to keep, with which the kernel shrinks arrays of its own; None if all go on.
        """
        over = self.t + 2 > self.most
        if not over and not done.any():
            return None
        ended = np.flatnonzero(done | over)
        anywhere = self.bandit.question == ANYWHERE
        load = self.bandit.by_site(self.n[ended]) if anywhere else self._load[ended]
        self.outcome.put(
            self._trial[ended],
            np.where(done, answer, -1)[ended],
            self.rounds,
            self.time[ended],
            load,
            self.t * self.bandit.reward_bits,
            (self.t + 1) * self.bandit.address_bits,
        )
        keep = ~(done | over)
        for name in ("n", "s", "mean", "time", "_load", "_trial"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[keep]))
        return np.asarray(keep)


class Outcome:
    """What the trials of a kernel came to.

    Parameters
    ----------
    bandit : Bandit
        The options.
    trials : int
        How many trials there are.
    """

    def __init__(self, bandit: Bandit, trials: int) -> None:
        self.bandit = bandit
        self.answer = np.full(trials, -1)
        self.missing = np.ones(trials, dtype=bool)  # trials without a result
        self._numbers = {name: np.zeros(trials, dtype=np.int64) for name in ("rounds", "time", "up", "down")}
        self._load = np.zeros((trials, len(bandit.clients)), dtype=np.int64)

    def put(
        self,
        trial: Ints,
        answer: Ints,
        rounds: int | Ints,
        time: int | Ints,
        load: Ints,
        up: int | Ints,
        down: int | Ints,
    ) -> None:
        """Record the results of some trials.

        Parameters
        ----------
        trial : array of int
            The numbers of the trials.
        answer : array of int
            The option that each of them named; −1 if undecided.
        rounds, time : int or array of int
            What each of them took.
        load : array of int
            The pulls by trial and site.
        up, down : int or array of int
            The bits from and to the clients.
        """
        self.answer[trial], self._load[trial], self.missing[trial] = answer, load, False
        for name, values in (("rounds", rounds), ("time", time), ("up", up), ("down", down)):
            self._numbers[name][trial] = values

    def columns(self) -> Columns:
        """The columns of a study, without `correct`.

        Returns
        -------
        dict
            The name of each column, and an array with one value per trial.
        """
        decided = self.answer >= 0
        names = np.array(self.bandit.names, dtype=object)
        pulls = self._load.sum(axis=1)
        nothing: NDArray[np.object_] = np.full(len(decided), None, dtype=object)
        return {
            "status": np.where(decided, "identified", "undecided"),
            "arm": np.where(decided, names[self.answer], nothing),
            "good_event": nothing,
            "rounds": self._numbers["rounds"],
            "time": self._numbers["time"],
            "pulls_total": pulls,
            "pulls_phase1": pulls,
            "pulls_phase2": np.zeros_like(pulls),
            "pulls_max": self.bandit.steps(self._load),
            "bits_up": self._numbers["up"],
            "bits_down": self._numbers["down"],
            "reason": np.where(decided, nothing, np.full(len(decided), "budget", dtype=object)),
        }
