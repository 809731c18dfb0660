"""What Fed-Fisher states for plans: its preferences, its schedules and how costs scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from bestarm.methods.fisher.looks import looks_of
from bestarm.methods.fisher.options import PREFERENCES, Fisher
from bestarm.problem.layout import Layout
from bestarm.protocol.planning import Keys, PlanFacts, Scaling

SCALING = (
    Scaling("fisher", "delta", "x_r = δ·s_r/(K−1)", "pulls grow about linearly in ln(1/δ)", "measured"),
    Scaling(
        "fisher",
        "period",
        "rounds = r + 1 − quiet, where n_r = ⌈n₀·q^r⌉ is the last look",
        "no period: rounds grow with the logarithm of pulls, and a larger q reduces them",
        "proved",
    ),
    Scaling("fisher", "sigma", "none", "rounds hardly change with σ", "measured"),
    Scaling(
        "fisher",
        "arms",
        "x_r = δ·s_r/(K−1)",
        "an arm that is far behind costs two or three looks, about 2·n₀ pulls",
        "measured",
    ),
    Scaling(
        "fisher with groups",
        "byzantine",
        "h = G − 2f of G sums count, at level x_r/C(G−f, f)²",
        "with 10 clients per group and f = 0, 1, 2, each makes about 0.14, 0.24, 0.36 of the pulls of one",
        "measured",
    ),
)


def variants(layout: Layout, options: Fisher) -> Iterator[tuple[str, Keys]]:
    """Each preference that leads to a different schedule of looks."""
    seen = set()
    for prefer in PREFERENCES:
        looks = looks_of(layout, dataclasses.replace(options, prefer=prefer))
        if (looks.n0, looks.q, looks.quiet) not in seen:
            seen.add((looks.n0, looks.q, looks.quiet))
            yield prefer, {"prefer": prefer}


def schedules() -> Iterator[Keys]:
    """Growth factors, each with the first report at 32 to about 100,000 pulls per arm."""
    for q in (1.5, 2.0, 3.0, 4.0, 8.0):
        for quiet in range(int(np.ceil(np.log(4096.0) / np.log(q))) + 1):
            yield {"n0": 32, "q": q, "quiet": quiet}


FACTS = PlanFacts(
    budget_is_longest=True, scheduled=True, variants=variants, schedules=schedules, scaling=SCALING
)
