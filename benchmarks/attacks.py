"""Every attack against every rule set, with the smallest groups that must tolerate it; 200 trials per cell.

For comparison, it also runs plain Fed-SEL where the only client of each group attacks, and a plain mean over
groups of three with one attacking client each. `wrong` counts wrong answers in trials in which the good event
held; the guarantee is that there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import bestarm as ba

TRIALS = 200
MEANS = [[0.95, 0.05], [0.8, 0.05]]
RULES: dict[str, tuple[int, dict[str, Any]]] = {
    "tight": (2, {"method": "robust-fed-sel", "rules": "tight", "period": 4000}),
    "paper": (3, {"method": "robust-fed-sel", "rules": "paper", "period": 4000}),
    "pooled": (2, {"method": "fisher"}),
}


def trials_of(clients: int, liars: int, options: Mapping[str, Any]) -> ba.Trials:
    problem = ba.Problem.bernoulli(MEANS, clients=clients)
    return ba.study(
        problem,
        trials=TRIALS,
        seed=7,
        delta=0.1,
        vary={"attack": ba.attacks()},
        adversaries=[ba.Adversary(g, "silent", liars) for g in ("g1", "g2")],
        **options,
    )


def count(trials: ba.Trials, attack: str) -> dict[str, int]:
    rows = trials["attack"] == attack
    decided = trials["status"][rows] == "identified"
    held = trials["good_event"][rows] == True  # noqa: E712
    right = trials["correct"][rows] == True  # noqa: E712
    return {
        "held": int(held.sum()),
        "wrong": int((held & decided & ~right).sum()),
        "undecided": int((~decided).sum()),
        "right": int((decided & right).sum()),
    }


def measure() -> list[dict[str, Any]]:
    found = {
        (name, f): trials_of(times * f + 1, f, {**options, "byzantine": f})
        for name, (times, options) in RULES.items()
        for f in (1, 2, 3)
    }
    plain = trials_of(1, 1, {"method": "fed-sel", "period": 4000})
    mean = trials_of(3, 1, {"method": "fisher", "byzantine": 0, "max_rounds": 30})
    rows: list[dict[str, Any]] = []
    for attack in ba.attacks():
        row: dict[str, Any] = {"attack": attack}
        for name in RULES:
            cells = [count(found[name, f], attack) for f in (1, 2, 3)]
            row[name] = "/".join(f"{cell['wrong']} of {cell['held']}" for cell in cells)
            if any(cell["undecided"] for cell in cells):
                row[f"{name} undecided"] = sum(cell["undecided"] for cell in cells)
        row["plain Fed-SEL right"] = f"{count(plain, attack)['right'] / TRIALS:.0%}"
        row["plain mean right"] = f"{count(mean, attack)['right'] / TRIALS:.0%}"
        rows.append(row)
    wrong = sum(count(trials, attack)["wrong"] for trials in found.values() for attack in ba.attacks())
    rows.append({"wrong answers on the good event, in all": wrong, "trials": TRIALS * len(found) * len(rows)})
    rows += pooling()
    return rows


def pooling() -> list[dict[str, Any]]:
    """Pooled Fed-Fisher on the paper's instance at σ = 3: pulls of the busiest honest client."""
    means = [list(row) for row in ba.Problem.paper_instance(3).means]
    rows = []
    for size, f, seen in ((1, 0, 1714), (10, 0, 173), (10, 1, 405), (10, 2, 619), (30, 3, 275)):
        row: dict[str, Any] = {"clients a group": size, "f": f, "seen before": seen}
        for name, liars in (("pulls", 0), ("pulls, attacked", f)):
            if name == "pulls" or f:
                trials = ba.study(
                    ba.Problem.bernoulli(means, clients=size),
                    "fisher",
                    trials=1000,
                    seed=3,
                    delta=0.1,
                    n0=8,
                    q=2.0,
                    byzantine=f,
                    adversaries=[ba.Adversary(f"g{j}", "extreme", liars) for j in (1, 2, 3)] if liars else [],
                )
                row[name] = float(np.mean(trials["pulls_max"]))
        rows.append(row)
    return rows
