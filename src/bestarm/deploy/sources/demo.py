"""Made-up rewards for the demos: coins with means and a seed from environment variables."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping

MEANS, PAUSE, SEED = "BESTARM_DEMO_MEANS", "BESTARM_DEMO_PAUSE", "BESTARM_DEMO_SEED"


class Coins:
    """0/1 rewards with means from the environment, and a pause before each batch.

    With BESTARM_DEMO_SEED (any text; the demos give each client its own) reward number k of an arm is
    always the same, even after a restart. Without it the rewards are different each time.
    """

    def __init__(self) -> None:
        self.means: dict[str, float] = json.loads(os.environ[MEANS])
        self.pause = float(os.environ.get(PAUSE, "0"))
        self.seed = os.environ.get(SEED)
        self._streams: dict[str, random.Random] = {}

    def resume(self, made: Mapping[str, int]) -> None:
        """Continue after this many pulls of each arm."""
        for arm, times in made.items():
            stream = self._streams[arm] = self._stream(arm)
            for _ in range(times if self.seed is not None else 0):
                stream.random()

    def pull(self, arm: str, times: int) -> list[int]:
        time.sleep(self.pause)
        if arm not in self._streams:
            self._streams[arm] = self._stream(arm)
        return [int(self._streams[arm].random() < self.means[arm]) for _ in range(times)]

    def _stream(self, arm: str) -> random.Random:
        return random.Random(None if self.seed is None else f"{self.seed}/{arm}")
