"""The settings of Fed-Fisher and Fed-Bet: what each costs in pulls, rounds and uplink bits.

Geometric means over five instances, as ratios to Fed-Fisher with n₀ = 32, q = 1.5, quiet = 0 in the same run.

For Fed-Fisher, `prefer = "rounds"` is the setting with the fewest rounds among those that cost at most 1.6
times the pulls, `"bits"` the one with the fewest bits at no more than 1.3 times the pulls. `"pulls"` stays at
q = 1.5: a smaller q saves a few per cent of the pulls and doubles the rounds.

For Fed-Bet, "best found" is the setting with the fewest pulls among those with no more rounds than the one
in use; for `"bits"`, with no more bits; for `"pulls"`, among all. Means are over the trials that name an arm
(see costs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import bestarm as ba
from benchmarks.costs import capped, mean_costs
from bestarm.methods.bet.options import PREFERENCES as BET
from bestarm.methods.fisher.options import PREFERENCES as FISHER

TRIALS = 400
MOST_PULLS = {"rounds": 1.6, "bits": 1.3}
COSTS = ("pulls", "rounds", "bits up")
KEEPS = {"balanced": 1, "rounds": 1, "bits": 2}  # the column of COSTS that "best found" must not exceed

Ratios = Mapping[tuple[float, ...], np.ndarray]


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


def cost(**options: Any) -> np.ndarray:
    """Mean pulls, rounds and bits on each instance."""
    rows = []
    for problem in instances():
        found = mean_costs(ba.study(problem, trials=TRIALS, seed=1, delta=0.1, workers=1, **options))
        rows.append([found[name] for name in COSTS])
    return np.array(rows)


def fisher_rows(base: np.ndarray) -> list[dict[str, Any]]:
    found = {}
    for n0 in (16, 32, 64, 128):
        for q in (1.25, 1.5, 2.0, 3.0, 4.0):
            for quiet in range(7):
                here = cost(method="fisher", n0=n0, q=q, quiet=quiet)
                found[n0, q, quiet] = np.exp(np.log(here / base).mean(axis=0))
    best = {"pulls": min(found, key=lambda key: found[key][0])}
    for column, name in ((1, "rounds"), (2, "bits")):
        affordable = [key for key in found if found[key][0] <= MOST_PULLS[name]]
        best[name] = min(affordable, key=lambda key, column=column: found[key][column])
    return table("Fed-Fisher", ("n0", "q", "quiet"), found, FISHER, best)


def bet_rows(base: np.ndarray) -> list[dict[str, Any]]:
    found = {}
    for n1 in (16, 24, 32, 48, 64):
        for q in (1.15, 1.25, 1.5, 2.0, 3.0):
            found[n1, q] = np.exp(np.log(cost(**capped(n1, q)) / base).mean(axis=0))
    best = {}
    for name, chosen in BET.items():
        column = KEEPS.get(name)
        rivals = [key for key in found if column is None or found[key][column] <= found[chosen][column]]
        best[name] = min(rivals, key=lambda key: found[key][0])
    return table("Fed-Bet", ("n1", "q"), found, BET, best)


def table(
    method: str,
    names: tuple[str, ...],
    found: Ratios,
    chosen: Mapping[str, tuple[float, ...]],
    best: Mapping[str, tuple[float, ...]],
) -> list[dict[str, Any]]:
    """For each preference, the setting in use and the best one found."""
    rows = []
    for prefer, setting in chosen.items():
        for what, key in (("in use", setting), ("best found", best[prefer])):
            head = {"method": method, "prefer": prefer, "setting": what} | dict(zip(names, key, strict=True))
            rows.append(head | {f"× {name}": float(x) for name, x in zip(COSTS, found[key], strict=True)})
    return rows


def measure() -> list[dict[str, Any]]:
    base = cost(method="fisher", n0=32, q=1.5, quiet=0)
    return fisher_rows(base) + bet_rows(base)
