"""A program that runs a whole campaign of visitors, kills itself on the way, and is started again."""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import threading

import bestarm as ba
from bestarm.deploy.experiment.experiment import Request
from visitors import seconds, visitors

SITES = {"us": (60.0, (0.30, 0.33, 0.28)), "eu": (20.0, (0.40, 0.42, 0.36))}
DEADLINE = 300.0


def kill_soon() -> None:
    """Kill this process within milliseconds, whatever it is doing then."""
    threading.Timer(0.02 * random.random(), os.kill, (os.getpid(), signal.SIGKILL)).start()


def campaign(path, count: int, repeats: float, keys: bool, end: float = math.inf) -> ba.Experiment:
    """Let all visitors come, from the first one on: what an earlier process did is only repeated.

    The process is killed a moment after visitor number `end`.
    """
    now = 0.0
    experiment = ba.Experiment(
        ["A", "B", "C"], list(SITES), delta=0.01, binary=True, seed=11, deadline=DEADLINE, missing=0.0,
        journal=path, clock=lambda: now, q=1.2,
    )  # fmt: skip
    given = {}
    for second, arriving, told in seconds(visitors(5, count, SITES, delay=60.0, lost=0.05, repeats=repeats)):
        now = float(second)
        if any(person.number == end for person in arriving):
            kill_soon()
        asked = [Request(site=person.site, key=str(person.number) if keys else "") for person in arriving]
        rewards = []
        experiment.run(asked)
        for person, request in zip(arriving, asked, strict=True):
            (given[person.number],) = request.assigned
        for person in told:
            own = given[person.number]
            rewards.append((own.token, person.rewards["ABC".index(own.option)]))
        if rewards:
            experiment.tell_many(rewards)
    now = 1e9  # every deadline is over
    assert experiment.verdict is None or experiment.verdict.status == "identified"
    return experiment


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    campaign(path, int(numbers[0]), 1.0, True, *map(int, numbers[1:])).close()
    print("done")
