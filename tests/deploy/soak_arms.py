"""Arms for the soak tests: coins that write down each batch that they pay, and that can be slowed down."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

from bestarm.deploy.sources import MEANS, PAUSE

LEDGER, HURRY = "BESTARM_SOAK_LEDGER", "BESTARM_SOAK_HURRY"
SOURCE = f"{__name__}:MeteredCoins"


class MeteredCoins:
    """0/1 rewards. Each reward takes a while, until the file HURRY exists; the file LEDGER has all batches.

    A line of the ledger is an arm, the number of its rewards and their sum. It is written at the moment at
    which the rewards are handed out.
    """

    def __init__(self):
        self.means, self.pause = json.loads(os.environ[MEANS]), float(os.environ[PAUSE])
        self.ledger, self.hurry = Path(os.environ[LEDGER]), Path(os.environ[HURRY])
        self.random = random.Random()

    def pull(self, arm, times):
        end = time.monotonic() + times * self.pause
        while time.monotonic() < end and not self.hurry.exists():
            time.sleep(0.02)
        rewards = [int(self.random.random() < self.means[arm]) for _ in range(times)]
        with self.ledger.open("ab", buffering=0) as file:
            file.write(f"{arm} {times} {sum(rewards)}\n".encode())
        return rewards


def paid(ledger):
    """The batches of a ledger, in order: (arm, number of rewards, their sum)."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [(arm, int(times), int(total)) for arm, times, total in map(str.split, lines)]


def lost_batches(calls, batches):
    """The number of paid calls that are not in the journal; AssertionError if the journal has others.

    `calls` come from ``paid``. Each of `batches` is a batch of the journal: the rewards by arm, and the sum
    of all of them. Each must be a run of calls in which arms may take turns, and no call may belong to two.
    """
    at = lost = 0
    for got, total in batches:
        while at < len(calls) and not (size := _size(calls[at:], dict(got), total)):
            at, lost = at + 1, lost + 1
        if at == len(calls):
            raise AssertionError(f"the journal has a batch that the source did not pay: {got}, {total}")
        at += size
    return lost + len(calls) - at


def _size(calls, wanted, total):
    """How many of the first calls are exactly this batch; 0 if it does not begin here."""
    have, paid = Counter(), 0
    for size, (arm, times, found) in enumerate(calls, 1):
        have[arm] += times
        paid += found
        if have[arm] > wanted.get(arm, 0):
            return 0
        if have == wanted:
            return size if paid == total else 0
    return 0
