"""What Fed-Bet states for plans: its preferences, its schedules and how costs scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from bestarm.methods.bet.blocks import Blocks
from bestarm.methods.bet.options import PREFERENCES, Bet
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.question import lead_said
from bestarm.protocol.planning import Averages, Keys, Measure, PlanFacts, Scaling

SCALING = (
    Scaling(
        "bet", "delta", "an arm leaves at wealth 1/δ", "pulls grow about linearly in ln(1/δ)", "measured"
    ),
    Scaling(
        "bet",
        "period",
        "rounds = blocks + 2, and each block multiplies pulls by q",
        "no period: rounds grow with the logarithm of pulls, and a larger q reduces them",
        "proved",
    ),
    Scaling("bet", "sigma", "none", "rounds hardly change with σ", "measured"),
    Scaling(
        "bet",
        "arms",
        "c = √(rivals), rounded, from 1 to 16",
        "no union over arms; the champion makes c pulls per pull of a rival",
        "proved",
    ),
)


def variants(layout: Layout, options: Bet) -> Iterator[tuple[str, Keys]]:
    """Each preference that leads to a different schedule of blocks."""
    seen = set()
    for prefer in PREFERENCES:
        blocks = Blocks(dataclasses.replace(options, prefer=prefer))
        if (blocks.n1, blocks.q) not in seen:
            seen.add((blocks.n1, blocks.q))
            yield prefer, {"prefer": prefer}


def schedules() -> Iterator[Keys]:
    """Growth factors, each with first pulls from 16 to about 8,000 per arm."""
    for q in (1.15, 1.5, 2.0, 3.0, 8.0):
        for power in range(10):
            yield {"n1": 16 << power, "q": q}


def advice(problem: Problem, options: Bet, now: Averages, measure: Measure) -> Iterator[str]:
    """Which lead is needed where sites that differ may lie."""
    question = problem.layout.question
    if question.kind == "overall" and options.byzantine:
        yield lead_said(question, options.byzantine, problem.scale)


FACTS = PlanFacts(
    advice=advice,
    budget_is_longest=True,
    scheduled=True,
    variants=variants,
    schedules=schedules,
    scaling=SCALING,
)
