"""What privacy costs in pulls, beside the prediction (σ_Y²/σ_X²)/κ².

Fed-Bet on the same problem with and without random answers, at ε = 0.5, 1, 2 and 4 per pull; means of the
trials that ended, at δ = 0.05. The prediction is about variances and the gap alone. Fed-Bet needs a bit more
than 1/gap² pulls as gaps shrink, so each row also has `gap alone`: what a gap that is smaller by the same
factor costs without privacy, over its square. ``cases`` has the problems, by question; the models beside each
are those of the arms whose variances the prediction uses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bestarm as ba
from bestarm.problem.privacy import price, slope
from bestarm.problem.rewards import RewardModel

SEED, TRIALS, DELTA = 241_117, 1000, 0.05
EPSILONS = (0.5, 1.0, 2.0, 4.0)
WITHIN = 0.15

VALUES = (0.55, 0.50, 0.48, 0.415, 0.35)  # of the options, on the average over sites
SITES, SITE_SD, INTERACTION_SD = 20, 0.2, 0.05

Row = dict[str, Any]
Case = tuple[ba.Problem, list[RewardModel], Row]


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


def cases() -> dict[str, Case]:
    """Problems, the rewards of the two best arms of each (at all sites), and the options of `bet`."""
    anywhere = {
        "anywhere, .55 and .50": ba.Problem.bernoulli([[0.55], [0.5]]),
        "anywhere, five sites from .75 down": ba.Problem.bernoulli([[0.75], [0.7], [0.68], [0.63], [0.58]]),
    }
    common = {f"overall, 20 sites, 5 options ({seed})": overall(seed) for seed in (1, 2)}
    few: Row = {"prefer": "pulls", "max_rounds": 90}
    return {
        **{name: (p, [row[0] for row in p.rewards[:2]], few) for name, p in anywhere.items()},
        **{name: (p, [m for row in p.rewards for m in row[:2]], {"q": 1.25}) for name, p in common.items()},
    }


def smaller_gap(epsilon: float, trials: int) -> float:
    """Pulls at gaps of 0.05·κ and 0.05 around ½, each times its gap squared: their ratio."""
    products = []
    for gap in (0.05 * slope(epsilon), 0.05):
        problem = ba.Problem.bernoulli([[0.5 + gap / 2], [0.5 - gap / 2]])
        products.append(pulls(problem, trials, {"prefer": "pulls"}) * gap**2)
    return products[0] / products[1]


def pulls(problem: ba.Problem, trials: int, options: Row) -> float:
    done = ba.study(problem, "bet", trials=trials, seed=SEED, delta=DELTA, **options)
    return float(np.mean(done["pulls_total"][done["status"] == "identified"]))


def measure(trials: int = TRIALS) -> list[Row]:
    rows = []
    alone = {epsilon: smaller_gap(epsilon, trials) for epsilon in EPSILONS}
    for name, (problem, models, options) in cases().items():
        plain = pulls(problem, trials, options)
        for epsilon in EPSILONS:
            predicted, found = (
                price(models, epsilon),
                pulls(problem.private(epsilon), trials, options) / plain,
            )
            assert predicted is not None
            row = {"case": name, "ε": epsilon, "predicted": predicted, "measured": found}
            rows.append(
                row
                | {"within 15 %": bool(abs(found / predicted - 1) <= WITHIN)}
                | {"gap alone": alone[epsilon], "measured without it": found / alone[epsilon]}
            )
    return rows
