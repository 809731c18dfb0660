"""The forecasts of a live page: when runs similar to the one shown end.

Similar runs may take seconds to simulate, so a thread of its own does that: the page never waits for it, and
shows the forecast once it is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from bestarm.report.facts import PlanFacts, RunFacts

PENDING = "Similar runs are being simulated."
TOO_LONG = "Runs like this one take too long to simulate here."
EARLIER = "No forecast was made at this moment."


@dataclass(frozen=True)
class Forecast:
    """A forecast of journal number `epoch` at `step` of its run, before `make`, which may take seconds."""

    epoch: int
    step: int
    make: Callable[[Callable[[], bool]], PlanFacts | None]  # gives up if its argument returns true


class Forecaster:
    """Makes forecasts, one at a time, and calls `ready` in its own thread after each."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self.made = 0  # forecasts so far
        self._ready = ready
        self._plans: dict[tuple[int, int], PlanFacts | None] = {}
        self._guard = threading.Lock()
        self._busy = self._closing = False

    def now(self, facts: RunFacts, forecast: Forecast) -> RunFacts:
        """Add the newest forecast that there is to a run's facts, and begin the one that is due."""
        at = (forecast.epoch, forecast.step)
        with self._guard:
            if at not in self._plans and not self._busy:
                self._busy = True
                # A daemon: the process may end while it simulates.
                threading.Thread(target=self._make, args=(forecast,), name="forecast", daemon=True).start()
            newest = max((one for one in self._plans if one[0] == at[0] and one <= at), default=None)
            plan = self._plans[newest] if newest else None
            known = facts.heterogeneity is not None  # it follows from the true means
            done = TOO_LONG if known and plan is None else ""
            return msgspec.structs.replace(facts, plan=plan, no_plan=done if newest == at else PENDING)

    def earlier(self, facts: RunFacts, forecast: Forecast | None) -> RunFacts:
        """Add the forecast that was made at an earlier moment, if there is one."""
        with self._guard:
            plan = self._plans.get((forecast.epoch, forecast.step)) if forecast else None
            return msgspec.structs.replace(facts, plan=plan, no_plan=EARLIER)

    def _make(self, forecast: Forecast) -> None:
        plan = None
        try:
            plan = forecast.make(lambda: self._closing)
        finally:  # also after a fault, which is not repeated
            with self._guard:
                self._plans[forecast.epoch, forecast.step] = plan
                self._busy, self.made = False, self.made + 1
            self._ready()

    def close(self) -> None:
        """Give up the forecast that is being made."""
        self._closing = True
