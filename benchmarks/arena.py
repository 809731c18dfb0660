"""Whether every baseline with a proof keeps δ on an instance of its own: exact bounds over 10,000 trials.

Baselines are the central ones and the methods that are there for comparison. ``most`` is the upper end of the
exact 95 % interval of the error rate; it must be at most δ. ``TRIALS=1000`` runs fewer. The last row times a
table of ten methods on twelve instances, per trial and pair.

The table of docs/compare.md comes from these numbers: ``python -m benchmarks arena``, then
``cp out/arena.json docs/data/baselines.json`` and ``python docs/compare.py``.
"""

from __future__ import annotations

import os
import time
from typing import Any

import bestarm as ba
from bestarm.study.arena.entrants import everyone

TRIALS = int(os.environ.get("TRIALS", "10000"))
DELTA = 0.1
# An instance of the baseline's own paper or near to it, and small, so that this takes minutes.
OWN = {
    "round-robin": "tas-2",
    "elimination": "zipf",
    "lucb": "lil-0.6",
    "kl-lucb": "zipf",
    "track-and-stop": "tas-2",
    "top-two": "tas-2",
    "fpe": "crew-hard",
    "fed-elim": "fedelim-1",
    "collaborative": "crew-hard",
    "batched": "tas-1",
}
TEN = [
    "bet", "fisher", "round-robin", "elimination", "lucb", "kl-lucb", "lil-ucb-heuristic", "track-and-stop",
    "top-two", "top-two-practice",
]  # fmt: skip


def measure() -> list[dict[str, Any]]:
    rows = []
    for who in everyone():
        if not who.proof or not (who.baseline or (who.method and who.method.rival)):
            continue
        name = who.label
        begun = time.perf_counter()
        (score,) = ba.arena([name], [OWN[name]], delta=DELTA, trials=TRIALS, seed=2).scores
        rows.append(
            {
                "baseline": name,
                "instance": OWN[name],
                "trials": TRIALS,
                "wrong": score.errors,
                "undecided": score.undecided,
                "most": score.error[1],
                "keeps δ": score.keeps,
                "seconds": time.perf_counter() - begun,
            }
        )
    begun = time.perf_counter()
    found = ba.arena(TEN, delta=DELTA, trials=100, seed=2)
    spent = time.perf_counter() - begun
    rows.append({"table": f"{len(found.scores)} pairs of 100 trials", "seconds": spent})
    return rows
