"""From the paper's method to the limit, step by step; and instances where that method is not beaten.

δ = 0.1 throughout, H = 100. Each step changes one thing. Pulls are compared with the limit T*(μ)·kl(δ, 1−δ),
the fewest on average of any method that names the best arm with probability at least 1 − δ on every problem
with 0/1 rewards and a unique best arm, and with Fed-SEL on the same instance in the same run. Means are over
the trials that name an arm (see costs.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bestarm as ba
from benchmarks.costs import mean_costs, preferring

LADDER: dict[str, dict[str, Any]] = {
    "paper (c = 8)": {"method": "fed-sel"},
    "sharper radius": {"method": "fed-sel", "radius": "sharp"},
    "and c = 2": {"method": "fed-sel", "radius": "sharp", "c": 2.0},
    "Fed-Fisher, q = 1.5": {"method": "fisher"},
    "Fed-Fisher, q = 2, quiet = 3": {"method": "fisher", "q": 2.0, "quiet": 3},
    "Fed-Fisher, q = 2, quiet = 7": {"method": "fisher", "q": 2.0, "quiet": 7},
    "Fed-Bet, balanced": preferring("balanced"),
    "Fed-Bet, pulls": preferring("pulls"),
    "Fed-Bet, rounds": preferring("rounds"),
}
ENDS = {
    name: LADDER[name]
    for name in (
        "paper (c = 8)", "Fed-Fisher, q = 1.5", "Fed-Fisher, q = 2, quiet = 3", "Fed-Bet, balanced",
        "Fed-Bet, pulls",
    )
}  # fmt: skip


def many_clients() -> ba.Problem:
    """100 clients with 10 arms each, 0.03 apart: one holds the best, 0.9; elsewhere 0.75 to 0.85 is best."""
    tops = np.random.default_rng(1).uniform(0.75, 0.85, 100)
    tops[0] = 0.9
    return ba.Problem.bernoulli(tops[:, None] - 0.03 * np.arange(10))


INSTANCES: dict[str, tuple[ba.Problem, dict[str, dict[str, Any]], int]] = {
    "paper, σ = 1": (ba.Problem.paper_instance(1), LADDER, 1000),
    "paper, σ = 3": (ba.Problem.paper_instance(3), ENDS, 1000),
    "paper, σ = 7": (ba.Problem.paper_instance(7), ENDS, 1000),
    "paper, σ = 15": (ba.Problem.paper_instance(15), ENDS, 1000),
    "near-tie .9/.1, .895/.1": (ba.Problem.bernoulli([[0.9, 0.1], [0.895, 0.1]]), ENDS, 20),
    "100 clients × 10 arms": (many_clients(), ENDS, 4),
}


def measure() -> list[dict[str, Any]]:
    rows = []
    for instance, (problem, steps, trials) in INSTANCES.items():
        paper, limit = None, ba.limit(problem, 0.1).total
        for step, options in steps.items():
            count = trials if options["method"] == "fed-sel" else max(trials, 1000)
            done = ba.study(problem, trials=count, seed=1, delta=0.1, **options)
            found = mean_costs(done)
            pulls = found["pulls"]
            paper = pulls if paper is None else paper
            over = {"× limit": pulls / limit, "÷ paper's": paper / pulls}
            rows.append({"instance": instance, "step": step} | found | over)
    return rows
