"""What privacy costs in pulls, beside the prediction (σ_Y²/σ_X²)/κ².

The same problem with and without random answers, at ε = 0.5, 1, 2 and 4 per pull; means of the trials that
ended, at δ = 0.05. The prediction is about variances and the gap alone. The first case is the one for which
the theory states 20.6, 5.6, 1.9 and 1.09: twenty sites that differ, five options, gap 0.05, means over four
random instances; the prediction takes the average variance of all cells. The others take that of the two best
arms.

The prediction assumes that a run with smaller gaps is the same run with more pulls. So `bet` begins a private
run with 1/κ² times as many first pulls, and its stakes reach κ times as far down (``methods/bet/blocks.py``).
The last cases show what each of the two is worth: `only the first pulls adjusted` keeps the stakes of a run
without privacy, `nothing adjusted` also its first pulls.

The table of docs/privacy.md comes from these numbers: ``python -m benchmarks privacy``, then
``cp out/privacy.json docs/data`` and ``python docs/compare.py``.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np

import bestarm as ba
from bestarm.methods.bet.options import PREFERENCES
from bestarm.problem.privacy import price
from bestarm.problem.rewards import RewardModel
from bestarm.stats import betting

SEED, TRIALS, DELTA = 241_117, 1000, 0.05
EPSILONS = (0.5, 1.0, 2.0, 4.0)
WITHIN = 0.15
STATED = (20.6, 5.6, 1.9, 1.09)  # the theory's predictions, for the first case

VALUES = (0.55, 0.50, 0.48, 0.415, 0.35)  # of the options, on average over sites
SITES, SITE_SD, INTERACTION_SD = 20, 0.2, 0.05
INSTANCES = (1, 2, 3, 4)
OVERALL = "overall, 20 sites that differ, five options, gap 0.05"
TWO, FIVE = "anywhere, means 0.55 and 0.50", "anywhere, five arms from 0.75 down to 0.58"

Row = dict[str, Any]
Cost = tuple[float, float]  # mean pulls, and their relative standard error


def overall(seed: int) -> ba.Problem:
    """Twenty sites that differ, and five options whose averages are ``VALUES``."""
    rng, values = np.random.default_rng(seed), np.array(VALUES)
    site, interaction = rng.normal(0, SITE_SD, SITES), rng.normal(0, INTERACTION_SD, (SITES, len(values)))
    means = np.clip(
        values + (site - site.mean())[:, None] + interaction - interaction.mean(axis=0), 0.02, 0.98
    )
    means = np.clip(means + values - means.mean(axis=0), 0, 1)
    rows = {f"s{i}": dict(zip("abcde", row.tolist(), strict=True)) for i, row in enumerate(means)}
    return ba.Problem.from_rewards(rows).asking("overall")


def anywhere() -> dict[str, ba.Problem]:
    """Problems of the paper's question, best arms first."""
    five = [[0.75], [0.7], [0.68], [0.63], [0.58]]
    return {TWO: ba.Problem.bernoulli([[0.55], [0.5]]), FIVE: ba.Problem.bernoulli(five)}


def pulls(problem: ba.Problem, trials: int, options: Row) -> Cost:
    """The pulls of the trials that ended."""
    done = ba.study(problem, "bet", trials=trials, seed=SEED, delta=DELTA, **options)
    made = done["pulls_total"][done["status"] == "identified"].astype(float)
    return float(made.mean()), float(made.std(ddof=1) / math.sqrt(len(made)) / made.mean())


def _price(models: list[RewardModel], epsilon: float) -> float:
    found = price(models, epsilon)
    assert found is not None
    return found


def _row(case: str, epsilon: float, predicted: float, plain: list[Cost], dear: list[Cost]) -> Row:
    """One price: the mean over instances, and its relative standard error."""
    prices = [d[0] / p[0] for d, p in zip(dear, plain, strict=True)]
    found = float(np.mean(prices))
    squares = [(ratio * math.hypot(d[1], p[1])) ** 2 for ratio, d, p in zip(prices, dear, plain, strict=True)]
    return {
        "case": case,
        "ε": epsilon,
        "predicted": predicted,
        "measured": found,
        "relative error": math.sqrt(sum(squares)) / len(prices) / found,
        "within 15 %": bool(abs(found / predicted - 1) <= WITHIN),
        "pulls": float(np.mean([p[0] for p in plain])),
    }


def overall_rows(trials: int) -> list[Row]:
    """The theory's instance: means over four random ones."""
    problems, rows, options = [overall(seed) for seed in INSTANCES], [], {"q": 1.25}
    plain = [pulls(problem, trials, options) for problem in problems]
    for epsilon, stated in zip(EPSILONS, STATED, strict=True):
        cells = [[model for row in problem.rewards for model in row] for problem in problems]
        predicted = float(np.mean([_price(models, epsilon) for models in cells]))
        dear = [pulls(problem.private(epsilon), trials, options) for problem in problems]
        row = _row(OVERALL, epsilon, predicted, plain, dear)
        near = bool(abs(row["measured"] / stated - 1) <= WITHIN)
        rows.append(row | {"stated": stated, "near stated": near})
    return rows


def anywhere_rows(case: str, problem: ba.Problem, trials: int, dear: Row, label: str = "") -> list[Row]:
    """A problem of the paper's question; `dear`: options of the private runs alone."""
    options: Row = {"prefer": "pulls", "max_rounds": 120}
    plain, rows = pulls(problem, trials, options), []
    for epsilon in EPSILONS:
        predicted = _price([row[0] for row in problem.rewards[:2]], epsilon)
        found = pulls(problem.private(epsilon), trials, options | dear)
        rows.append(_row(case + label, epsilon, predicted, [plain], [found]))
    return rows


def without(problem: ba.Problem, trials: int) -> list[Row]:
    """What the first pulls and the stakes of a private run are worth, on one problem."""
    usual, n1 = betting.stake_count, PREFERENCES["pulls"][0]
    with mock.patch.object(betting, "stake_count", lambda pulls, slope=1.0: usual(pulls)):
        return [
            *anywhere_rows(FIVE, problem, trials, {}, "; only the first pulls adjusted"),
            *anywhere_rows(FIVE, problem, trials, {"n1": n1}, "; nothing adjusted"),
        ]


def measure(trials: int = TRIALS) -> list[Row]:
    rows, problems = overall_rows(trials), anywhere()
    for case, problem in problems.items():
        rows += anywhere_rows(case, problem, 4 * trials, {})
    return rows + without(problems[FIVE], 4 * trials)
