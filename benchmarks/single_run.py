"""One Fed-SEL run on the paper's instance: batches against epochs, and its speed against pull by pull.

The baseline is a plain NumPy loop of Algorithm 1, one epoch per step, for one second.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.methods import fed_sel
from bestarm.protocol.events import Pulled
from bestarm.stats.radii import radius


def pull_by_pull(seconds: float) -> float:
    """Pulls per second of Algorithm 1, epoch by epoch, on the best client's arms at σ = 1."""
    rng = np.random.default_rng(1)
    means = np.array([0.9, 0.85, 0.1])
    alpha = radius("paper", 3, 3, 0.1).alpha
    sums, t, t_before, begun = np.zeros(3), 0, 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        t += 1
        sums += rng.random(3) < means
        if (sums.max() - sums >= t * 8 * alpha(t)).any():
            sums, t_before, t = np.zeros(3), t_before + t, 0
    return 3 * (t_before + t) / (time.perf_counter() - begun)


def measure() -> list[dict[str, Any]]:
    baseline = pull_by_pull(1.0)
    rows = []
    for sigma in (1, 3, 7, 15):
        batches = 0
        original = fed_sel.Client.handle

        def handle(self: Any, event: Any, original: Any = original) -> Any:
            nonlocal batches
            batches += isinstance(event, Pulled) and self.state == "exploring"
            return original(self, event)

        fed_sel.Client.handle = handle  # type: ignore[method-assign]
        begun = time.perf_counter()
        record = ba.identify(ba.Problem.paper_instance(sigma), "fed-sel", delta=0.1, seed=1)
        seconds = time.perf_counter() - begun
        fed_sel.Client.handle = original  # type: ignore[method-assign]
        assert record.pulls is not None
        epochs = max(part["epoch"] for part in record.verdict.certificate["local"].values())
        rows.append(
            {
                "σ": sigma,
                "rounds": record.rounds,
                "pulls": record.pulls.total,
                "longest Phase I, epochs": epochs,
                "Phase I batches": batches,
                "seconds": seconds,
                "pulls/s": record.pulls.total / seconds,
                "× pull by pull": record.pulls.total / seconds / baseline,
            }
        )
    return rows
