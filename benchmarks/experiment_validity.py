"""Live experiments on virtual time: how often is the answer wrong if rewards come late, or stay away?

Every experiment is a ``ba.Experiment`` with its machines, lanes, deadlines and tokens, and a clock that the
simulation sets; only the journal is left out. All options are equally good, so every verdict rules out an
option that is a best one: for each option X, P(a verdict names another one) ≤ δ. Subjects arrive by a Poisson
process whose rate follows the hour and differs by site; delays of rewards depend on the site and the hour,
and some rewards never come, whatever they are.

*Because of its value*: a quarter of the failures of A are never reported and count as ½. The promise is then
broken, and the alarm that compares missing rewards speaks where it has seen 256 rewards of each option.

Results are kept in out/experiment_validity.jsonl, 250 experiments a row; a second run continues there.
"""

from __future__ import annotations

import heapq
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import bestarm as ba
from bestarm.deploy.experiment.experiment import Request

DELTA = 0.05
CHUNK = 250
STEP = 0.1  # hours
KEPT = Path("out/experiment_validity.jsonl")
HOUR = 3600.0
Floats = NDArray[np.float64]
Lost = Callable[[str, float, float], bool]  # option, reward, a uniform number: does the reward never come?


def _at_random(option: str, reward: float, u: float) -> bool:
    return u < 0.05


def _by_value(option: str, reward: float, u: float) -> bool:
    return option == "A" and reward == 0.0 and u < 0.25


@dataclass(frozen=True)
class Case:
    """A kind of experiment, and how many there are. `means`: of all options of a site."""

    experiments: int
    options: Any
    question: str
    hours: float = 8.0
    means: dict[str, float] = field(default_factory=lambda: {"us": 0.4, "eu": 0.6})
    keys: dict[str, Any] = field(default_factory=dict)
    lost: Lost = _at_random


CASES = {
    "overall": Case(20_000, ["A", "B"], "overall", keys={"missing": 0.0}),
    "each": Case(2_000, ["A", "B"], "each", keys={"missing": 0.0}),
    "anywhere": Case(
        2_000,
        {"us": ["A", "B"], "eu": ["C"]},
        "anywhere",
        means={"us": 0.5, "eu": 0.5},
        keys={"missing": 0.0},
    ),
    "because of its value": Case(
        100, ["A", "B"], "overall", hours=96.0, keys={"missing": 0.5, "binary": False}, lost=_by_value
    ),
}


def steps(case: Case, rng: np.random.Generator) -> Iterator[tuple[float, str, Floats, Floats, Floats]]:
    """In each step of six minutes, the subjects of each site: delays, and numbers for reward and loss.

    None of them knows a reward: on average 60 subjects per hour at us and 20 at eu, more by day than at
    night. Rewards come ten minutes later at us and 40 at eu, three times as late in the afternoon.
    """
    for k in range(round(case.hours / STEP)):
        hour = (k * STEP) % 24.0
        for site, rate, delay in (("us", 60.0, 600.0), ("eu", 20.0, 2400.0)):
            number = int(rng.poisson(rate * STEP * (1.0 + 0.8 * math.sin(2 * math.pi * hour / 24.0))))
            late = rng.exponential(delay, number) * (3.0 if hour > 12.0 else 1.0)
            yield k * STEP * HOUR, site, late, rng.random(number), rng.random(number)


def live(case: Case, seed: int) -> ba.Experiment:
    """Run one experiment until the arrivals or the verdict end it."""
    rng, now = np.random.default_rng((seed, 23)), 0.0
    sites = None if isinstance(case.options, dict) else ["us", "eu"]
    experiment = ba.Experiment(
        case.options, sites, case.question, delta=DELTA, seed=seed, clock=lambda: now,
        **{"binary": True, "deadline": 4 * HOUR, **case.keys},
    )  # fmt: skip
    due = list[tuple[float, str, float]]()
    for when, site, late, rewards, losses in steps(case, rng):
        now, told = when, list[tuple[str, float]]()
        while due and due[0][0] <= when:
            told.append(heapq.heappop(due)[1:])
        asked = Request(site=site, times=max(len(late), 1))
        experiment.run([Request(rewards=told), *([asked] if len(late) else [])])
        if experiment.verdict is not None:
            break
        for given, delay, x, u in zip(asked.assigned, late, rewards, losses, strict=True):
            reward = float(x < case.means[site])
            if not case.lost(given.option, reward, u):
                heapq.heappush(due, (when + delay, given.token, reward))
    return experiment


def outcome(case: Case, seed: int) -> list[str]:
    """What an experiment ended with: its answers, and "alarm" if there was one."""
    experiment = live(case, seed)
    verdict, named = experiment.verdict, list[str]()
    if case.question == "each":
        sites = experiment.status.sites
        named = [f"{site.site}: {site.answer}" for site in sites if site.answer is not None]
    elif verdict is not None and verdict.arm is not None:
        named = [verdict.arm]
    return [*named, "verdict" if named else "undecided", *(["alarm"] if experiment.alarms else [])]


def measure() -> list[dict[str, Any]]:
    KEPT.parent.mkdir(exist_ok=True)
    done = [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []
    for name, case in CASES.items():
        known = {row["first"] for row in done if row["case"] == name}
        for first in range(0, case.experiments, CHUNK):
            if first in known:
                continue
            begun, counts = time.process_time(), Counter[str]()
            some = min(CHUNK, case.experiments - first)
            for seed in range(first, first + some):
                counts.update(outcome(case, seed))
            row = {"case": name, "first": first, "experiments": some, "counts": counts}
            row["CPU seconds"] = time.process_time() - begun
            done.append(row)
            with KEPT.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return [_summary(name, [row for row in done if row["case"] == name]) for name in CASES]


def _summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of a case. The largest rate of wrong answers is that of the option that lost most often."""
    counts, trials = Counter[str](), sum(row["experiments"] for row in rows)
    for row in rows:
        counts.update(row["counts"])
    ended = {key: n for key, n in counts.items() if key not in ("verdict", "undecided", "alarm")}
    case = CASES[name]
    if case.question == "each":
        wrong = max(ended.values(), default=0)  # a site names A: B is ruled out
    elif len(ended) < len(_names(case)):
        wrong = sum(ended.values())  # an option that was never named
    else:
        wrong = sum(ended.values()) - min(ended.values())
    return {
        "what": f"{name}: {trials:,} experiments",
        **{key: n / trials for key, n in sorted(counts.items())},
        "an option lost, at most": wrong / trials,
        "upper end (99 %)": float(stats.beta.ppf(0.99, wrong + 1, trials - wrong)),
        "delta": DELTA,
        "CPU ms each": 1000.0 * math.fsum(row["CPU seconds"] for row in rows) / trials,
    }


def _names(case: Case) -> list[str]:
    if isinstance(case.options, dict):
        return [f"{site}/{option}" for site, own in case.options.items() for option in own]
    return list(case.options)
