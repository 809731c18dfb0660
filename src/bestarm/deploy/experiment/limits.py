"""How many requests a caller may make: a token bucket for each, and the counts for the metrics."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from bestarm.errors import InputError

RATE = 1_000.0  # requests per second of one caller
BURST_SECONDS = 5.0  # that a caller which was quiet may make up for at once


class Limits:
    """Counts requests, and says when a caller has made too many.

    Each caller has a bucket of ``rate · BURST_SECONDS`` requests, which fills at `rate` per second.

    Parameters
    ----------
    rate : float
        Requests per second of one caller; ``math.inf`` for no limit.
    clock : callable
        Returns the time in seconds.

    Raises
    ------
    InputError
        If `rate` is not above 0.

    Examples
    --------
    >>> limits = Limits(1.0, clock=lambda: 0.0)
    >>> [limits.take("app") for _ in range(6)]
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    >>> limits.made["app"], limits.refused["app"]
    (5, 1)
    """

    def __init__(self, rate: float = RATE, clock: Callable[[], float] = time.monotonic) -> None:
        if not rate > 0:
            raise InputError(f"a rate of {rate:g} requests per second", expected="a number above 0, or inf")
        self.rate, self.burst, self._clock = rate, max(1.0, rate * BURST_SECONDS), clock
        self.made: Counter[str] = Counter()  # by caller: requests that were carried out
        self.refused: Counter[str] = Counter()  # by caller: requests above the limit
        self.strangers = 0  # requests without a caller's token
        self._left: dict[str, tuple[float, float]] = {}  # by caller: when, and how many requests were left

    def take(self, caller: str) -> float:
        """Count a request; 0 if it may be made now, else the seconds until it may."""
        now = self._clock()
        since, left = self._left.get(caller, (now, self.burst))
        left = self.burst if math.isinf(self.rate) else min(self.burst, left + self.rate * (now - since))
        if left < 1.0:
            self._left[caller] = (now, left)
            self.refused[caller] += 1
            return (1.0 - left) / self.rate
        self._left[caller] = (now, left - 1.0)
        self.made[caller] += 1
        return 0.0
