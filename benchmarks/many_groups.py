"""One run with thousands of groups: all clients at once beside one machine per client, and the kernel.

``GROUPS=3632 python -m benchmarks many_groups``. *Crowd* is what ``identify`` does, with the whole record;
*machines* is the same run with one machine per client, whose record is equal; *kernel* is one trial of a
study, which draws other rewards and keeps no certificate; *card* are the numbers that the command prints.
Processor time, since the machine may be shared.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import bestarm as ba
from bestarm.problem.counted_recording import CountedRecording
from bestarm.records.answer import answer_card
from bestarm.simulate.identify import identify, run_of

SEED = 1
OPTIONS = {"bet": ba.Bet(), "fisher": ba.Fisher()}
Found = TypeVar("Found")


def timed(work: Callable[[], Found]) -> tuple[Found, float]:
    """What a work returns, and its processor time."""
    begun = time.process_time()
    return work(), time.process_time() - begun


def problems(groups: int) -> dict[str, ba.Problem]:
    """Coins with two arms per group, and counted rows of which each is played once."""
    rng = np.random.default_rng(3)
    means = rng.uniform(0.1, 0.5, (groups, 2))
    means[0, 0] = 0.9
    rows = {
        f"g{j}": {
            f"a{k}": CountedRecording((0.0, 1.0), (2000 - int(2000 * p), int(2000 * p)), k)
            for k, p in enumerate(pair)
        }
        for j, pair in enumerate(means.tolist())
    }
    return {"coins": ba.Problem.bernoulli(means.tolist()), "rows, once": ba.Problem.from_rewards(rows)}


def measure() -> list[dict[str, Any]]:
    groups, found = int(os.environ.get("GROUPS", 3632)), []
    for method, name in itertools.product(OPTIONS, problems(2)):
        problem, again = (problems(groups)[name] for _ in range(2))  # recordings are not shuffled yet

        def machines(problem: ba.Problem = again, method: str = method) -> ba.Record:
            run = run_of(problem, method, OPTIONS[method], SEED)
            run.go()
            return run.record()

        record, crowd = timed(lambda problem=problem, method=method: identify(problem, method, seed=SEED))
        same, single = timed(machines)
        row: dict[str, Any] = {
            "groups": groups, "method": method, "rewards": name, "machines, seconds": single,
            "crowd, seconds": crowd, "× faster": single / crowd, "records equal": record == same,
        }  # fmt: skip
        if name == "coins":
            _, kernel = timed(lambda p=problem, m=method: ba.study(p, m, trials=1, seed=SEED, workers=1))
            row["kernel without a record, seconds"] = kernel
        _, row["card, seconds"] = timed(lambda record=record: answer_card(record))
        _, row["verify, seconds"] = timed(lambda record=record: ba.verify(record))
        found.append(row)
    return found
