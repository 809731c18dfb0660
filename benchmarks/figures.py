"""The time to make the paper's figures: all of Figure 4 (15 σ, 5 H, 50 trials per point), and the others."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from bestarm.report import figures


def measure() -> list[dict[str, Any]]:
    rows = []
    for names in (["4"], ["1", "2", "3", "5"]):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            made = list(figures.make(folder, only=names))
            seconds = time.perf_counter() - begun
        runs = figures.TRIALS * len(figures.SIGMAS) * (len(figures.PERIODS) + 1 + len(figures.PREFERENCES))
        rows.append(
            {
                "figures": ", ".join(done.name for done in made),
                "runs": runs if names == ["4"] else 0,
                "files": sum(len(done.files) for done in made),
                "seconds": seconds,
            }
        )
    return rows
