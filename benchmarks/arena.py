"""Whether every baseline with a proof keeps δ on instances of its own: exact bounds over 10,000 trials.

Baselines are the central ones and the methods that are there for comparison. ``most`` is the upper end of the
exact 95 % interval of the error rate; it must be at most δ. ``TRIALS=1000`` runs fewer. Then what FedElim and
its kin pay for communication: pulls, and numbers that clients send, by their machines. The last row is about
the headline table, with a tenth of the trials, which is written to out/arena.

The tables of docs/compare.md come from these numbers: ``python -m benchmarks arena``, then
``cp out/arena.json docs/data/baselines.json``, ``cp out/arena/arena.json docs/data`` and
``python docs/compare.py``. ``ONLY="kl-lucb batched"`` measures the error rates of these baselines only, and
takes all other rows from docs/data/baselines.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.methods.rivals.audit import uplinks
from bestarm.study.arena.entrants import everyone

TRIALS = int(os.environ.get("TRIALS", "10000"))
DELTA = 0.1
ONLY = os.environ.get("ONLY", "").split()
KEPT = Path("docs/data/baselines.json")
# Instances of the baseline's own paper or near to it.
OWN = {
    "round-robin": ("tas-2", "tas-1"),
    "elimination": ("zipf", "tas-1"),
    "lucb": ("lucb-b1",),
    "kl-lucb": ("kl-lucb-b2", "tas-2"),
    "track-and-stop": ("tas-2",),
    "top-two": ("tas-2",),
    "fpe": ("fpe-1",),
    "fed-elim": ("fedelim-2", "fedelim-1"),
    "collaborative": ("crew-hard", "crew"),
    "batched": ("bbai-uniform", "bbai-normal"),
}
HEADLINE = [
    "bet", "bet:prefer=pulls", "fisher", "fed-sel", "round-robin", "elimination", "lucb", "kl-lucb",
    "lil-ucb", "lil-ucb-heuristic", "track-and-stop", "track-and-stop-practice", "top-two",
    "top-two-practice", "fpe", "fpe-heuristic", "fed-elim", "collaborative", "tri-bbai", "batched",
]  # fmt: skip


def keeps(name: str, instance: str) -> dict[str, Any]:
    """The error rate of a baseline on an instance of its own."""
    (score,) = ba.arena([name], [instance], delta=DELTA, trials=TRIALS, seed=2).scores
    return {
        "baseline": name,
        "instance": instance,
        "trials": TRIALS,
        "wrong": score.errors,
        "undecided": score.undecided,
        "most": score.error[1],
        "keeps δ": score.keeps,
    }


def cost(name: str, instance: str, trials: int = 100) -> dict[str, Any]:
    """Mean pulls of all clients, and mean numbers that they send, in runs of the machines."""
    problem = ba.instances()[instance].problem.asking("overall")
    players = len(problem.layout.clients)
    found = [ba.identify(problem, name, delta=DELTA, seed=seed) for seed in range(trials)]
    sent = [uplinks(record.verdict.certificate["server"], players) for record in found]
    pulls = [record.pulls.total for record in found]
    row = {"rival": name, "instance": instance, "trials": trials}
    return row | {"pulls": float(np.mean(pulls)), "uplinks": float(np.mean(sent))}


def measure() -> list[dict[str, Any]]:
    rivals = [who.label for who in everyone() if who.method and who.method.rival]
    kept = json.loads(KEPT.read_text("utf-8")) if ONLY else []
    rows = []
    for name, instances in OWN.items():
        if ONLY and name not in ONLY:
            rows += [row for row in kept if row.get("baseline") == name]
        else:
            rows += [keeps(name, instance) for instance in instances]
    if ONLY:
        return rows + [row for row in kept if "baseline" not in row]
    rows += [cost(name, where) for where in ("fedelim-1", "fedelim-2") for name in rivals]
    return [*rows, headline()]


def headline() -> dict[str, Any]:
    """The processor time of the headline table."""
    used = sum(os.times()[:4])
    found = ba.arena(HEADLINE, delta=DELTA, trials=TRIALS // 10, seed=1, out=Path("out/arena"))
    return {
        "table": f"these {len(HEADLINE)} methods",
        "pairs": len(found.scores),
        "trials": found.trials,
        "cpu minutes": (sum(os.times()[:4]) - used) / 60,
    }
