"""What privacy costs in pulls, beside the prediction (σ_Y²/σ_X²)/κ².

The same problem with and without random answers, at ε = 0.5, 1, 2 and 4 per pull; means of the trials that
ended, at δ = 0.05. The prediction is about variances and the gap alone. ``cases`` has the problems. The first
is the one for which the theory states 20.6, 5.6, 1.9 and 1.09: twenty sites that differ, five options, gap
0.05, means over four random instances; the prediction takes the average variance of all cells.

Three rules are measured there:

- `bet` as it is: before each block it shifts its wealth to the stakes that suit the lead that it has seen.
- `nine fixed stakes`: the same bets with nine stakes, each of which keeps a ninth of the wealth for good,
  W = Σ_g Π_k F_k / 9. Then a gap that is smaller by κ costs 1/κ² times the pulls, if a stake suits it.
- `gap alone`: what a gap that is smaller by the same factor costs `bet` without privacy, over its square.

The theory's simulated figures, 19.3, 5.3, 1.8 and 1.03, are those of nine fixed stakes, the first of the two
kinds of wealth in its section 2. `bet` is the second kind. Its moving weights save pulls where the gap is
large, and lose some while the lead is smaller than its error, which takes longer with a smaller gap, with or
without privacy.

The table of docs/privacy.md comes from these numbers: ``python -m benchmarks privacy``, then
``cp out/privacy.json docs/data`` and ``python docs/compare.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import TRIMMED_STAKES, Block, TrimmedRace
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.problem.privacy import price, slope
from bestarm.problem.rewards import RewardModel
from bestarm.stats.sums import Sums

SEED, TRIALS, DELTA = 241_117, 1000, 0.05
EPSILONS = (0.5, 1.0, 2.0, 4.0)
WITHIN = 0.15
STATED = (20.6, 5.6, 1.9, 1.09)  # the theory's predictions, for the first case

VALUES = (0.55, 0.50, 0.48, 0.415, 0.35)  # of the options, on the average over sites
SITES, SITE_SD, INTERACTION_SD = 20, 0.2, 0.05
INSTANCES = (1, 2, 3, 4)
FIRST = "overall, 20 sites that differ, five options, gap 0.05"

Row = dict[str, Any]


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
    return {
        "anywhere, means 0.55 and 0.50": ba.Problem.bernoulli([[0.55], [0.5]]),
        "anywhere, five arms from 0.75 down to 0.58": ba.Problem.bernoulli(
            [[0.75], [0.7], [0.68], [0.63], [0.58]]
        ),
    }


def pulls(problem: ba.Problem, trials: int, options: Row) -> float:
    """The mean number of pulls of the trials that ended."""
    done = ba.study(problem, "bet", trials=trials, seed=SEED, delta=DELTA, **options)
    return float(np.mean(done["pulls_total"][done["status"] == "identified"]))


class NineStakes(TrimmedRace):
    """A race in which nine stakes, each half of the one before, keep a ninth of the wealth for good."""

    prior = np.where((np.arange(TRIMMED_STAKES) % 2 == 0) & (np.arange(TRIMMED_STAKES) < 18), 1.0 / 9.0, 0.0)


def fixed_stakes(problem: ba.Problem, trials: int) -> float:
    """The pulls of `overall`, q = 1.25, with nine fixed stakes."""
    course = Course(problem.layout, Bet(delta=DELTA, q=1.25))
    ledger = Ledger(course, np.ones(course.clients, dtype=bool), trials)
    race = NineStakes(np.arange(course.clients), ledger.races[0].weights, DELTA, trials)
    race.tolerate(course.cells.site, 0)  # nobody lies: nothing is trimmed
    ledger.races[:] = [race]
    means = np.array([[model.mean for model in row] for row in problem.rewards], dtype=float)
    rng, step, stands = np.random.default_rng(SEED), course.n1, ledger.stands()[:0]
    plan = np.broadcast_to(course.first(), (trials, *means.shape)) * 1
    made = np.zeros(trials)
    while plan.any():
        made += plan.sum(axis=(1, 2))
        n, ones = plan.astype(float), rng.binomial(plan, means).astype(float)
        seen = Sums(n, ones, ones, (n == 0).astype(float), (n > 0).astype(float))
        ledger.close(Block(plan, seen, np.zeros(plan.shape), True), stands, step)
        step, stands = course.blocks.step(ledger.n), ledger.stands()
        stands[0].inside &= ~race.over[:, None]
        plan = course.pulls(stands, step, course.steps(step))
        plan[race.over] = 0
    return float(made.mean())


def smaller_gap(epsilon: float, trials: int) -> float:
    """Pulls of `bet` at gaps of 0.05·κ and 0.05 around ½, each times its gap squared: their ratio."""
    products = []
    for gap in (0.05 * slope(epsilon), 0.05):
        problem = ba.Problem.bernoulli([[0.5 + gap / 2], [0.5 - gap / 2]])
        products.append(pulls(problem, trials, {"prefer": "pulls"}) * gap**2)
    return products[0] / products[1]


def _price(models: list[RewardModel], epsilon: float) -> float:
    found = price(models, epsilon)
    assert found is not None
    return found


def _row(case: str, rule: str, epsilon: float, predicted: float, found: float) -> Row:
    row = {"case": case, "rule": rule, "ε": epsilon, "predicted": predicted, "measured": found}
    return row | {"within 15 %": bool(abs(found / predicted - 1) <= WITHIN)}


def overall_rows(trials: int) -> list[Row]:
    """The theory's instance: means over four random ones, by `bet` and with nine fixed stakes."""
    problems, rows = [overall(seed) for seed in INSTANCES], []
    ways = {
        "bet": lambda problem: pulls(problem, trials, {"q": 1.25}),
        "nine fixed stakes": lambda problem: fixed_stakes(problem, trials),
    }
    for rule, way in ways.items():
        plain = [way(problem) for problem in problems]
        for epsilon, stated in zip(EPSILONS, STATED, strict=True):
            cells = [[model for row in problem.rewards for model in row] for problem in problems]
            predicted = float(np.mean([_price(models, epsilon) for models in cells]))
            dear = [way(problem.private(epsilon)) for problem in problems]
            found = float(np.mean(np.array(dear) / plain))
            row = _row(FIRST, rule, epsilon, predicted, found)
            near = bool(abs(found / stated - 1) <= WITHIN)
            rows.append(row | {"pulls": float(np.mean(plain)), "stated": stated, "near stated": near})
    return rows


def measure(trials: int = TRIALS) -> list[Row]:
    rows = overall_rows(trials)
    options: Row = {"prefer": "pulls", "max_rounds": 90}
    for name, problem in anywhere().items():
        plain = pulls(problem, trials, options)
        for epsilon in EPSILONS:
            predicted = _price([row[0] for row in problem.rewards[:2]], epsilon)
            found = pulls(problem.private(epsilon), trials, options) / plain
            rows.append(_row(name, "bet", epsilon, predicted, found) | {"pulls": plain})
    alone = [smaller_gap(epsilon, trials) for epsilon in EPSILONS]
    rows += [
        {"case": "gap alone", "ε": e, "measured": found} for e, found in zip(EPSILONS, alone, strict=True)
    ]
    return rows
