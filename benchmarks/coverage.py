"""Do the intervals of the answer card hold at the stopping time, all of them together?

Promised: P(the answer is wrong, or any interval misses, or a lead misses) ≤ δ + α. Here δ = 0.1, α = 0.05.
100,000 stopped runs by the kernels of Fed-Bet (also for the questions `overall`, `each` and `control`) and
Fed-Fisher, and 2,000 by the machines for the other cases, some of them with liars. ``at most`` is the exact
99.9 % upper bound on the rate (Clopper and Pearson), which must be below δ + α. ``bias`` is the winner's
curse: how much too high the winner's mean is on average; ``of half`` is the same as a share of the half-width
of its interval, which the entries of methods state (`curse`), and the answer cards of recorded data.

The last rows (``winners_curse``) are about the other methods. Fed-SEL by its kernel promises δ for the answer
and its interval together, and only those are read there.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from scipy.stats import beta

import bestarm as ba
from benchmarks import question_coverage as questions
from benchmarks import winners_curse
from bestarm.methods.bet.kernel import _Trials
from bestarm.methods.fisher.kernel import _Looks
from bestarm.problem.problem import target
from bestarm.protocol import decisions
from bestarm.records.answer import answer_card
from bestarm.records.estimates import shares
from bestarm.simulate.identify import prepare
from bestarm.stats import betting

SEED, MANY, FEW, LEAST, BLOCK = 220_722, 100_000, 2_000, 200, 10_000
DELTA, ALPHA, SURE = 0.1, 0.05, 0.999

Row = dict[str, Any]
INSTANCES = {
    "paper, σ = 3": ba.Problem.paper_instance(3),
    "three close arms": ba.Problem.bernoulli([[0.6, 0.5], [0.5]]),
    "rare successes": ba.Problem.bernoulli([[0.08, 0.02], [0.03, 0.01]]),
}


def at_most(failures: int, runs: int) -> float:
    """The exact upper bound on a rate.

    >>> round(at_most(0, 2000), 5)
    0.00345
    """
    return float(beta.ppf(SURE, failures + 1, runs - failures)) if failures < runs else 1.0


def by_kernel(name: str, method: str, problem: ba.Problem, runs: int) -> Row:
    """The rate over runs of a kernel, whose sums at the end are what clients would send."""
    ready, _, options = prepare(problem, method, {"delta": DELTA})
    width = max(problem.layout.arm_counts)
    rows = [[*row, *[np.nan] * (width - len(row))] for row in ready.means]
    truth = np.array(rows, dtype=np.float64)
    home, best = target(ready)
    failures = wrong = decided = 0
    gaps, parts = list[float](), list[float]()
    for block in range(-(-runs // BLOCK)):
        size = min(BLOCK, runs - block * BLOCK)
        found = (_Trials if method == "bet" else _Looks)(ready, options, size)
        found.run(np.random.default_rng([SEED, block]), None, {})
        if isinstance(found, _Trials):
            count, total, squares = found.sums.count, found.sums.total, found.sums.squares
            winner = found.winner
        else:
            count, total = found.counts.astype(float), found.sums.astype(float)
            squares, winner = total, found.winner * found.width + found.tops[np.arange(size), found.winner]
        named = found.outcome == decisions.IDENTIFIED
        is_best = named & (winner == home * found.width + best)
        missed, half = _missed(count, total, squares, truth, winner, named, is_best)
        failures += int((named & ~is_best | missed).sum())
        wrong += int((named & ~is_best).sum())
        decided += int(named.sum())
        flat = np.arange(size), winner
        mean = total.reshape(size, -1)[flat] / np.maximum(count.reshape(size, -1)[flat], 1)
        error = (mean - truth.reshape(-1)[winner])[named]
        gaps, parts = gaps + error.tolist(), parts + (error / half[named]).tolist()
    return _row(name, method, runs, failures, wrong, decided, winners_curse.summed_up(gaps, parts))


def _missed(
    count: Any, total: Any, squares: Any, truth: Any, winner: Any, named: Any, is_best: Any
) -> tuple[Any, Any]:
    """Whether any interval of a run misses, of an arm or of the lead over the best other arm.

    Also half the width of the interval of the named arm.
    """
    size, flat = len(count), truth.reshape(-1)
    real = ~np.isnan(flat)
    n, s, q = (x.reshape(size, -1)[:, real] for x in (count, total, squares))
    arms = int(real.sum())
    won = (winner[:, None] == np.flatnonzero(real)) & named[:, None]
    level, of_named = shares(ALPHA, arms, fixed=True, stated=True)
    levels = np.where(won, of_named, level)
    low, high = np.zeros(n.shape), np.ones(n.shape)
    for level in np.unique(levels):
        here = levels == level
        rows, back = np.unique(np.stack([n[here], s[here], q[here]], axis=1), axis=0, return_inverse=True)
        ends = betting.intervals(*rows.T, np.zeros(len(rows)), np.ones(len(rows)), float(level))
        low[here], high[here] = ends[0][back.ravel()], ends[1][back.ravel()]
    means = flat[real]
    outside = ((means < low) | (means > high)).any(axis=1)
    first = won.argmax(axis=1)
    pick = np.arange(size), first
    others = np.where(won, -np.inf, means).max(axis=1)
    lead = means[first] - others
    least = np.maximum(low[pick] - np.where(won, -np.inf, high).max(axis=1), 0.0)
    most = high[pick] - np.where(won, -np.inf, low).max(axis=1)
    return outside | (is_best & ((lead < least) | (lead > most))), (high[pick] - low[pick]) / 2


def by_machines(name: str, problem: ba.Problem, runs: int, **keys: Any) -> Row:
    """The rate over runs through the machines, as their answer cards say it."""
    failures = wrong = decided = 0
    gaps, parts, alpha = list[float](), list[float](), 0.0
    layout = problem.layout
    truth = {layout.arm(j, a): mean for j, row in enumerate(problem.means) for a, mean in enumerate(row)}
    for k in range(runs):
        card = answer_card(ba.identify(problem, delta=DELTA, seed=SEED + k, **keys))
        bad, alpha = card.right is False, max(alpha, card.alpha or 0.0)
        wrong += bad
        decided += card.best is not None
        for row in card.options:
            mean = truth[row.name]
            if row.interval and mean is not None and not row.interval[0] <= mean <= row.interval[1]:
                bad = True
            if row.best and row.mean is not None and mean is not None:
                gaps.append(row.mean - mean)
                if row.interval:
                    parts.append(2 * (row.mean - mean) / (row.interval[1] - row.interval[0]))
        if card.right and card.lead and card.lead.interval:
            lead = truth[card.lead.option] - max(m for o, m in truth.items() if o != card.lead.option)
            bad |= not card.lead.interval[0] <= lead <= card.lead.interval[1]
        failures += bad
    found = winners_curse.summed_up(gaps, parts)
    method = str(keys.get("method", "bet"))
    return _row(name, method, runs, failures, wrong, decided, found, DELTA + alpha)


def _row(
    name: str, method: str, runs: int, failures: int, wrong: int, decided: int, curse: dict[str, float],
    promised: float = DELTA + ALPHA,
) -> Row:  # fmt: skip
    bound = at_most(failures, runs)
    return {
        "case": name, "method": method, "runs": runs, "wrong or missed": failures / runs,
        "at most": bound, "promised": promised, "held": "met" if bound <= promised else "MISSED",
        "wrong": wrong / runs, "decided": decided / runs, **curse,
    }  # fmt: skip


def measure(many: int = MANY, few: int = FEW, least: int = LEAST) -> list[Row]:
    """All cases."""
    rows = [
        by_kernel(name, method, problem, many)
        for name, problem in INSTANCES.items()
        for method in ("bet", "fisher")
    ]
    easy, beta_rewards = [[0.9, 0.3], [0.6, 0.2]], {"kind": "beta", "a": 8, "b": 2}
    groups = ba.Problem.bernoulli(easy, clients=3)
    liars = [ba.Adversary(group, "extreme", 1) for group in ("g1", "g2")]
    real = ba.Problem.from_rewards({"g1": {"a1": beta_rewards, "a2": 0.4}, "g2": {"a1": 0.5}})
    rows.append(by_machines("real rewards", real, few, method="bet"))
    rows.append(by_machines("groups of three", groups, few, method="bet"))
    rows.append(by_machines("groups of three", groups, few, method="fisher"))
    keys: Row = {"method": "fisher", "byzantine": 1}
    rows.append(by_machines("groups of three, one lies", groups, few, adversaries=liars, **keys))
    keys = {"method": "bet", "byzantine": 1}
    rows.append(by_machines("groups of three, one lies", groups, few, adversaries=liars, **keys))
    rows.append(by_machines("single sites", ba.Problem.bernoulli(easy), few, method="fed-sel"))
    rows += [_asked(questions.by_kernel(name, many, SEED, DELTA, ALPHA)) for name in questions.CASES]
    rows += [_asked(questions.by_machines(name, few, SEED, DELTA, ALPHA)) for name in questions.MACHINES]
    return rows + measure_others(many, few, least)


def measure_others(many: int = MANY, few: int = FEW, least: int = LEAST) -> list[Row]:
    """The cases of the other methods, and of recorded data."""
    found = []
    for name in winners_curse.SHARING:
        runs = few if name in winners_curse.ROUNDED else many  # those take long, and are about the curse
        found.append(winners_curse.sharing(name, runs, SEED, DELTA))
    for name, (_, _, keys) in winners_curse.RECORDED.items():
        found.append(winners_curse.recorded(name, few // 4 if keys else few, SEED, DELTA, ALPHA))
    machines = winners_curse.MACHINES.items()
    return [_other(row) for row in found] + [
        by_machines(name, problem, least, **keys) for name, (problem, keys) in machines
    ]


def _other(found: Row) -> Row:
    """A row about another method."""
    curse = {key: found[key] for key in ("bias", "of half", "give or take")}
    counts = (int(found[key]) for key in ("runs", "failed", "wrong", "decided"))
    return _row(found["name"], found["method"], *counts, curse, found["promised"])


def _asked(found: Row) -> Row:
    """A row about a question."""
    runs, failed, wrong, decided = (int(found[key]) for key in ("runs", "failed", "wrong", "decided"))
    curse = {"bias": found["bias"], "of half": found.get("of half", np.nan)}
    row = _row(found["name"], "bet", runs, failed, wrong, decided, curse)
    return {key: value for key, value in row.items() if value == value}  # control names no best option


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=MANY)
    parser.add_argument("--few", type=int, default=FEW)
    parser.add_argument("--least", type=int, default=LEAST)
    given = parser.parse_args()
    for line in measure(given.many, given.few, given.least):
        print(json.dumps(line))
