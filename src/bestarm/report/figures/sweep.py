"""The runs for Figure 4, and the parts of every figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bestarm.methods.fisher.options import PREFERENCES
from bestarm.problem.problem import Problem
from bestarm.study.study import StudyProgress, study

# The paper's Section 7: σ in [1, 15], 50 trials, δ = 0.1, no quantiser. It does not print its values of H.
SIGMAS = tuple(range(1, 16))

PERIODS = (100, 200, 400, 800, 1600)

DELTA = 0.1

TRIALS = 50

Rows = list[dict[str, Any]]

Watch = Callable[[StudyProgress], None]


@dataclass(frozen=True)
class Drawing:
    """A figure: Matplotlib's object, tables (end of the file name -> rows), and its caption."""

    picture: Any
    tables: Mapping[str, Rows]
    caption: str


class Sweep:
    """The runs for Figure 4, made on first use."""

    def __init__(self, trials: int, seed: int, workers: int | None = None, watch: Watch | None = None):
        self.trials, self.seed, self.workers, self.watch = trials, seed, workers, watch

    def _run(self, method: str, vary: Mapping[str, Sequence[Any]], **options: Any) -> Rows:
        done = study(
            Problem.paper_instance, method, trials=self.trials, seed=self.seed, workers=self.workers,
            watch=self.watch, vary={"sigma": SIGMAS, **vary}, delta=DELTA, **options,
        )  # fmt: skip
        return done.summary(limits=False)

    @cached_property
    def fed_sel(self) -> Rows:
        """Without the quantiser, as in the paper's simulation: for each σ and each H."""
        return self._run("fed-sel", {"period": PERIODS}, quantiser=False)

    @cached_property
    def quantised(self) -> Rows:
        """The algorithm as the paper writes it, at the shortest H."""
        return self._run("fed-sel", {"period": PERIODS[:1]}, quantiser=True)

    @cached_property
    def fisher(self) -> Rows:
        """For each σ and each preference."""
        return self._run("fisher", {"prefer": list(PREFERENCES)})
