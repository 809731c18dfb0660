"""The central baselines, written from the papers. ``BASELINES`` lists them by name.

The federated ones are methods with machines, in ``methods/rivals``.
"""

from __future__ import annotations

from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.batched import BATCHED, TRI_BBAI
from bestarm.study.arena.baselines.elimination import ELIMINATION, ROUND_ROBIN
from bestarm.study.arena.baselines.lil_ucb import LIL_UCB, LIL_UCB_HEURISTIC
from bestarm.study.arena.baselines.lucb import KL_LUCB, LUCB
from bestarm.study.arena.baselines.top_two import TOP_TWO, TOP_TWO_PRACTICE
from bestarm.study.arena.baselines.track_and_stop import TRACK_AND_STOP, TRACK_AND_STOP_PRACTICE

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        ROUND_ROBIN, ELIMINATION, LUCB, KL_LUCB, LIL_UCB, LIL_UCB_HEURISTIC, TRACK_AND_STOP,
        TRACK_AND_STOP_PRACTICE, TOP_TWO, TOP_TWO_PRACTICE, TRI_BBAI, BATCHED,
    )
}  # fmt: skip
