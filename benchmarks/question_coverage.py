"""Coverage of the intervals for questions about several sites; part of ``python -m benchmarks coverage``.

The kernel plays stopped runs of `overall`, `each` (simultaneous) and `control`. An end of an interval misses
if the bets against the truth have won, so one evaluation at the truth replaces a bisection: for the value of
the named option, for its lead over every other one, for the leads over a control, and for the values that
follow from the cells. A miss of any lead counts, also one that is not shown, so the rates are at least those
of the answer cards. Cases that no kernel plays (real rewards, both kinds of answers at once, sites that lie)
go through the machines, and their cards are read.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.methods.bet.sites.audit import right_claims, true_values
from bestarm.methods.bet.sites.decisions import OPEN, BestRace, Block, ControlRace
from bestarm.methods.bet.sites.kernel import _Trials
from bestarm.protocol import decisions
from bestarm.records.answer import answer_card
from bestarm.records.card import AnswerCard
from bestarm.records.estimates import shares
from bestarm.simulate.identify import prepare
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Played, Sides
from bestarm.stats.sums import Sums

Row = dict[str, Any]
Pair = tuple[int | None, int | None]
DIFFER = {"s1": (0.3, 0.6, 0.4), "s2": (0.2, 0.5, 0.35), "s3": (0.5, 0.6, 0.65)}


def sites(rows: dict[str, tuple[Any, ...]]) -> ba.Problem:
    """Sites that share the options A, B, C, …"""
    return ba.Problem.from_rewards(
        {name: dict(zip("ABCDEF", row, strict=False)) for name, row in rows.items()}
    )


CASES: dict[str, dict[str, Any]] = {
    "overall": {"question": "overall"},
    "each, simultaneous": {"question": "each", "simultaneous": True},
    "control": {"question": "control", "control": "A"},
}


class Watched(_Trials):
    """Trials that add up the bets against the truth of every value and lead, block by block."""

    def __init__(self, problem: ba.Problem, options: Any, trials: int) -> None:
        super().__init__(problem, options, trials)
        means = [[float(mean) for mean in row] for row in problem.means]
        self.truth = [true_values(self.course, means, race) for race in self.ledger.races]
        self.logs: dict[tuple[int, Pair], Any] = {}
        for r, race in enumerate(self.ledger.races):
            offered = np.flatnonzero(race.weights[race.clients].sum(axis=0) > 0).tolist()
            pairs: list[Pair] = list(permutations(offered, 2))
            if len(race.clients) > 1:
                pairs += [pair for k in offered for pair in ((k, None), (None, k))]
            self.logs |= {(r, pair): np.zeros((trials, contrasts.STAKES)) for pair in pairs}

    def _play(self, *given: Any) -> Block:
        block = super()._play(*given)
        for (r, pair), logs in self.logs.items():
            race = self.ledger.races[r]
            cells = race.clients
            weights = Sides(*(np.zeros(len(cells)) if k is None else race.weights[cells, k] for k in pair))
            pulled = [k is None or (block.pulls[:, cells, k] > 0).all(axis=1) for k in pair]
            live = np.flatnonzero(pulled[0] & pulled[1])
            if not len(live):
                continue
            before, now = [], []
            for k, view in zip(pair, (block.up, block.down), strict=True):
                place = (live[:, None], cells[None], np.full((1, 1), 0 if k is None else k))
                none = Sums.none((len(live), len(cells)))
                past = self.ledger.sums.at(place)
                before.append(contrasts.estimate(none.count, none.total) if k is None
                              else contrasts.estimate(past.count, past.total))  # fmt: skip
                now.append(none if k is None else view(place))
            played = Played(Sides(*before), Sides(now[0].count, now[1].count), *now)
            logs[live] += played.log_wealths(weights, self._lead(r, pair))
        return block

    def _lead(self, r: int, pair: Pair) -> float:
        b, a = (0.0 if k is None else float(self.truth[r][k]) for k in pair)
        return b - a

    def won(self, r: int, pair: Pair, alpha: float) -> Any:
        """The trials whose bound on a lead, at level alpha, exceeds the true one."""
        return betting.log_mean_exp(self.logs[r, pair], 1.0 / contrasts.STAKES) >= np.log(1.0 / alpha)

    def failures(self, alpha: float) -> tuple[Any, Any, list[float]]:
        """The trials that are wrong or have an interval that misses, the wrong ones, and errors of values."""
        trials, races = len(self.rounds), self.ledger.races
        wrong, missed, errors = np.zeros(trials, bool), np.zeros(trials, bool), list[float]()
        answers = sum(len(r.offered.nonzero()[0]) - 1 if isinstance(r, ControlRace) else 1 for r in races)
        share = alpha / (2 * answers)
        for r, race in enumerate(races):
            if isinstance(race, ControlRace):
                right = right_claims(race, self.truth[r])
                wrong |= ((race.claim != OPEN) & (race.claim != right)).any(axis=1)
                for k in np.flatnonzero(race.offered).tolist():
                    if k != race.control:
                        missed |= self.won(r, (k, race.control), share / 2)
                        missed |= self.won(r, (race.control, k), share / 2)
            elif isinstance(race, BestRace):
                off, error = self._best(r, race, share)
                best = race.winner == int(np.argmax(self.truth[r]))
                wrong |= (race.winner >= 0) & ~best
                missed |= best & off
                errors += error[best].tolist()
        return wrong | missed | self._cells(alpha), wrong, errors

    def _best(self, r: int, race: BestRace, share: float) -> tuple[Any, Any]:
        """Whether the value or a lead of the best option misses, and the error of its value."""
        best = int(np.argmax(self.truth[r]))
        own = self.ledger.sums.at((slice(None), race.clients, best))
        weights = race.weights[race.clients, best]
        value = (weights * own.total / np.maximum(own.count, 1)).sum(axis=-1)
        if len(race.clients) > 1:
            off = self.won(r, (best, None), share / 4) | self.won(r, (None, best), share / 4)
        else:
            low, high = betting.intervals(*(part[:, 0] for part in own.parts), share / 2)
            off = (self.truth[r][best] < low) | (self.truth[r][best] > high)
        rivals = [k for k in np.flatnonzero(race.weights[race.clients].sum(axis=0) > 0) if k != best]
        for k in rivals:
            for pair in ((best, int(k)), (int(k), best)):
                off |= self.won(r, pair, share / (4 * len(rivals)))
        return off, value - self.truth[r][best]

    def _cells(self, alpha: float) -> Any:
        """Whether the value of any option misses that follows from the intervals of its cells."""
        sums, race = self.ledger.sums, self.ledger.races[0]
        level, _ = shares(alpha, int(self.course.cells.offers.sum()), fixed=False, stated=True)
        rows = np.stack([part.ravel() for part in sums.parts], axis=1)
        unique, back = np.unique(rows, axis=0, return_inverse=True)
        n, s, q, _, _ = unique.T
        low, high = betting.intervals(n, s, q, np.zeros(len(n)), np.ones(len(n)), level)
        low, high = (ends[back.ravel()].reshape(sums.count.shape) for ends in (low, high))
        if race.site is None:
            value = self.truth[0]
            low, high = ((race.weights * ends).sum(axis=1) for ends in (low, high))
            return ((value < low) | (value > high)).any(axis=1)
        means = np.zeros(low.shape[1:])
        for one, truth in zip(self.ledger.races, self.truth, strict=True):
            means[one.clients] = truth
        return ((means < low) | (means > high)).any(axis=(1, 2))


def by_kernel(name: str, runs: int, seed: int, delta: float, alpha: float, block: int = 5_000) -> Row:
    """A case by the kernel."""
    problem = sites(DIFFER).asking(**CASES[name])
    ready, _, options = prepare(problem, "bet", {"delta": delta, "alpha": alpha})
    failed = wrong = decided = 0
    errors: list[float] = []
    for k in range(-(-runs // block)):
        found = Watched(ready, options, min(block, runs - k * block))
        found.run(np.random.default_rng([seed, k]), None, {})
        bad, mistaken, error = found.failures(alpha)
        failed, wrong = failed + int(bad.sum()), wrong + int(mistaken.sum())
        decided += int((found.outcome == decisions.IDENTIFIED).sum())
        errors += error
    bias = float(np.mean(errors)) if errors else float("nan")
    return {"name": name, "runs": runs, "failed": failed, "wrong": wrong, "decided": decided, "bias": bias}


MACHINES: dict[str, tuple[ba.Problem, dict[str, Any]]] = {
    "overall, real rewards": (
        sites({
            "s1": ({"kind": "beta", "a": 6, "b": 4}, {"kind": "beta", "a": 4, "b": 6}, 0.3),
            "s2": ({"kind": "beta", "a": 5, "b": 5}, 0.45, {"kind": "beta", "a": 2, "b": 5}),
        }),
        {"question": "overall"},
    ),
    "overall and each": (sites(DIFFER), {"question": "overall", "also": ["each"], "simultaneous": True}),
    "overall, one site of seven lies": (
        sites({f"s{j}": (0.2 + 0.02 * j, 0.7 + 0.02 * j, 0.3) for j in range(7)}),
        {"question": "overall", "byzantine": 1, "adversaries": [ba.Adversary("s6", "extreme")]},
    ),
    "overall, f = 1 and nobody lies": (
        sites({f"s{j}": (0.1 + 0.06 * j, 0.4 + 0.06 * j) for j in range(7)}),
        {"question": "overall", "byzantine": 1},
    ),
}  # fmt: skip


def _inside(value: float, ends: tuple[float, float] | None) -> bool:
    return ends is None or ends[0] - 1e-12 <= value <= ends[1] + 1e-12


def card_misses(card: AnswerCard, values: dict[str, float], cells: dict[str, dict[str, float]]) -> bool:
    """Whether any interval of a card misses: `values` over all (honest) sites, `cells` by site."""
    off = any(not _inside(values[row.name], row.interval) for row in card.options)
    if card.lead is not None:
        rest = max(v for name, v in values.items() if name != card.lead.option)
        off |= not _inside(values[card.lead.option] - rest, card.lead.interval)
    for lift in card.lifts:
        off |= not _inside(values[lift.option] - values[lift.over], lift.interval)
    for row in card.sites:
        site, _, option = row.name.partition("/")
        off |= not _inside(cells[site][option], row.interval)
    for cell in card.cells:
        site, _, option = cell.name.partition("/")
        off |= not _inside(cells[site][option], cell.interval)
    for lead in card.site_leads:
        site, _, option = lead.option.partition("/")
        rest = max(v for name, v in cells[site].items() if name != option)
        off |= not _inside(cells[site][option] - rest, lead.interval)
    return off


def by_machines(name: str, runs: int, seed: int, delta: float, alpha: float) -> Row:
    """A case through the machines, as the answer cards say it."""
    problem, keys = MACHINES[name]
    names = problem.layout.groups
    cells = {
        group.name: {arm: float(mean or 0) for arm, mean in zip(group.arms, row, strict=True)}
        for group, row in zip(names, problem.means, strict=True)
    }
    liars = {adversary.group for adversary in keys.get("adversaries", ())}
    honest = [row for site, row in cells.items() if site not in liars]
    values = {option: float(np.mean([row[option] for row in honest])) for option in honest[0]}
    failed = wrong = decided = 0
    errors, halves = list[float](), list[float]()
    for k in range(runs):
        card = answer_card(ba.identify(problem, "bet", delta=delta, alpha=alpha, seed=seed + k, **keys))
        best = max(values, key=values.__getitem__)
        mistaken = card.best is not None and card.best != best
        mistaken |= any(
            cells[site][option] < max(cells[site].values())
            for site, _, option in (row.name.partition("/") for row in card.sites)
        )
        failed += mistaken or card_misses(card, values, cells)
        wrong, decided = wrong + mistaken, decided + (card.best is not None)
        for row in card.options:
            if row.best and row.mean is not None and row.interval is not None:
                errors.append(row.mean - values[row.name])
                halves.append((row.interval[1] - row.interval[0]) / 2)
    return {
        "name": name, "runs": runs, "failed": failed, "wrong": wrong, "decided": decided,
        "bias": float(np.mean(errors)), "of half": float(np.mean(np.divide(errors, halves))),
    }  # fmt: skip
