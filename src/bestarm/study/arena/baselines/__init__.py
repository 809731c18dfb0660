"""The central baselines, written from the papers. ``BASELINES`` lists them by name.

The federated ones are methods with machines, in ``methods/rivals``. ``known`` adds the baselines of installed
packages.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points

from bestarm.errors import InputError
from bestarm.protocol.registry import METHODS
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.baselines.batched import BATCHED, TRI_BBAI
from bestarm.study.arena.baselines.elimination import ELIMINATION, ROUND_ROBIN
from bestarm.study.arena.baselines.lil_ucb import LIL_UCB, LIL_UCB_HEURISTIC
from bestarm.study.arena.baselines.lucb import KL_LUCB, LUCB
from bestarm.study.arena.baselines.top_two import TOP_TWO, TOP_TWO_PRACTICE
from bestarm.study.arena.baselines.track_and_stop import TRACK_AND_STOP, TRACK_AND_STOP_PRACTICE
from bestarm.util.text import shorten

GROUP = "bestarm.baselines"  # the entry-point group

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        ROUND_ROBIN, ELIMINATION, LUCB, KL_LUCB, LIL_UCB, LIL_UCB_HEURISTIC, TRACK_AND_STOP,
        TRACK_AND_STOP_PRACTICE, TOP_TWO, TOP_TWO_PRACTICE, TRI_BBAI, BATCHED,
    )
}  # fmt: skip


@cache
def known() -> dict[str, Baseline]:
    """The baselines of bestarm, and those that installed packages declare in the entry-point group.

    One that cannot be loaded is skipped with a warning, so that the others still work.
    """
    found = dict(BASELINES)
    for point in entry_points(group=GROUP):
        try:
            baseline = point.load()
            if not isinstance(baseline, Baseline):
                raise InputError(f"expected a bestarm Baseline, got {shorten(baseline)}")
            if baseline.name in found or baseline.name in METHODS:
                raise InputError(f'there is already a method or baseline "{baseline.name}"')
            found[baseline.name] = baseline
        except Exception as error:
            text = f"the baseline {point.name} ({point.value}) is left out: {type(error).__name__}: {error}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return found
