"""Fed-Fisher's settings: what each n₀, q and quiet costs in pulls, rounds and uplink bits.

Geometric means over five instances, as ratios to n₀ = 32, q = 1.5, quiet = 0. `prefer = "rounds"` is the
setting with the fewest rounds among those that cost at most 1.6 times the pulls, `"bits"` the one with the
fewest bits at no more than 1.3 times the pulls. `"pulls"` stays at q = 1.5: a finer q saves a few per cent
of the pulls and doubles the rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bestarm as ba
from bestarm.protocol.fisher import PREFERENCES

TRIALS = 400
MOST_PULLS = {"rounds": 1.6, "bits": 1.3}


def instances() -> list[ba.Problem]:
    rng = np.random.default_rng(1)
    many = rng.uniform(0.1, 0.6, (20, 5))
    many[0, 0] = 0.7
    return [
        ba.Problem.paper_instance(1),
        ba.Problem.paper_instance(3),
        ba.Problem.paper_instance(15),
        ba.Problem.bernoulli([[0.52, 0.5], [0.49, 0.3]]),
        ba.Problem.bernoulli(many),
    ]


def cost(n0: int, q: float, quiet: int) -> np.ndarray:
    """Mean pulls, rounds and bits on each instance."""
    rows = []
    for problem in instances():
        trials = ba.study(
            problem, "fisher", trials=TRIALS, seed=1, delta=0.1, workers=1, n0=n0, q=q, quiet=quiet
        )
        rows.append([trials[name].mean() for name in ("pulls_total", "rounds", "bits_up")])
    return np.array(rows)


def measure() -> list[dict[str, Any]]:
    base = cost(32, 1.5, 0)
    found = {}
    for n0 in (16, 32, 64, 128):
        for q in (1.25, 1.5, 2.0, 3.0, 4.0):
            for quiet in range(7):
                found[n0, q, quiet] = np.exp(np.log(cost(n0, q, quiet) / base).mean(axis=0))
    best = {"pulls": min(found, key=lambda key: found[key][0])}
    for column, name in ((1, "rounds"), (2, "bits")):
        affordable = [key for key in found if found[key][0] <= MOST_PULLS[name]]
        best[name] = min(affordable, key=lambda key, column=column: found[key][column])
    rows = []
    for name, chosen in PREFERENCES.items():
        for what, key in (("in use", chosen), ("best found", best[name])):
            ratios = found[key]
            rows.append(
                {
                    "prefer": name, "setting": what, "n0": key[0], "q": key[1], "quiet": key[2],
                    "× pulls": float(ratios[0]), "× rounds": float(ratios[1]), "× bits": float(ratios[2]),
                }
            )  # fmt: skip
    return rows
