"""From the paper's method to the limit, step by step; and where the paper's method is not beaten.

δ = 0.1 throughout, H = 100. Each step changes one thing. Pulls are compared with T*(μ)·kl(δ, 1−δ), below
which no method can stay on average, and with Fed-SEL on the same instance in the same run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bestarm as ba

LADDER: dict[str, dict[str, Any]] = {
    "paper (c = 8)": {"method": "fed-sel"},
    "sharper radius": {"method": "fed-sel", "radius": "sharp"},
    "and c = 2": {"method": "fed-sel", "radius": "sharp", "c": 2.0},
    "Fed-Fisher, q = 1.5": {"method": "fisher"},
    "Fed-Fisher, q = 2, quiet = 3": {"method": "fisher", "q": 2.0, "quiet": 3},
    "Fed-Fisher, q = 2, quiet = 7": {"method": "fisher", "q": 2.0, "quiet": 7},
}
ENDS = {
    name: LADDER[name] for name in ("paper (c = 8)", "Fed-Fisher, q = 1.5", "Fed-Fisher, q = 2, quiet = 3")
}


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
        bound = ba.limit(problem, 0.1).total
        paper = None
        for step, options in steps.items():
            count = trials if options["method"] == "fed-sel" else max(trials, 1000)
            done = ba.study(problem, trials=count, seed=1, delta=0.1, **options)
            pulls = float(done["pulls_total"].mean())
            paper = pulls if paper is None else paper
            rows.append(
                {
                    "instance": instance,
                    "step": step,
                    "trials": count,
                    "rounds": float(done["rounds"].mean()),
                    "pulls": pulls,
                    "× limit": pulls / bound,
                    "÷ paper's": paper / pulls,
                    "bits up": float(done["bits_up"].mean()),
                    "errors": sum(not right for right in done["correct"]),
                }
            )
    return rows
