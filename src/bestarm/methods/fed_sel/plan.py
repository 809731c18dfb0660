"""What Fed-SEL states for plans: its schedules, its advice, its proved bounds and how costs scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bestarm.methods.fed_sel.options import FedSel
from bestarm.methods.fed_sel.theorem import bounds_of_runs, one_round
from bestarm.problem.problem import Problem
from bestarm.protocol.planning import Averages, Keys, Measure, PlanFacts, Scaling, change
from bestarm.stats.heterogeneity import heterogeneity

MOST_PULLS = 2e10  # per client: simulating a study of such runs takes about half a minute

SCALING = (
    Scaling("fed-sel", "delta", "τ_i(x) ~ x⁻²·ln(1/δ) as δ → 0", "pulls grow with ln(1/δ)", "proved"),
    Scaling(
        "fed-sel",
        "period",
        "κ_i(H) = ⌈κ_i(1)/H⌉ beyond round 0",
        "the bound on rounds falls as 1/H; the bound on a client's Phase II pulls grows by less than H",
        "proved",
    ),
    Scaling(
        "fed-sel",
        "sigma",
        "κ_i·H < H + max over j in {i, 1} of τ_j(Δ_1i/7) − τ_j(σ·Δ_1i/6), σ = σ_i1 or σ_1i",
        "rounds grow with σ up to a ceiling; one round if σ_i1 + σ_1i ≤ 2 (c = 8)",
        "proved",
    ),
    Scaling(
        "fed-sel",
        "arms",
        "M_i + Σ_ℓ τ_i(Δ_ℓ/(c+2)) over a client's own arms",
        "the arms of other clients cost nothing; other clients only add ln|C|",
        "proved",
    ),
)


def schedules() -> Iterator[Keys]:
    """Periods from short to long, constant or growing."""
    for period in (100, 1_000, 10_000, 100_000, 1_000_000):
        for growth in (1.0, 2.0, 4.0):
            yield {"period": period, "period_growth": growth}


def advice(problem: Problem, options: FedSel, now: Averages, measure: Measure) -> Iterator[str]:
    """What a longer period and the sharp radius would change."""
    if options.c == 8.0 and one_round(problem):
        yield "sigma_i1 + sigma_1i is at most 2 for every group: on the good event fed-sel needs one round."
    elif now.rounds > 1.5:
        period = 2 * options.period
        other = measure({"period": period})
        yield (
            f"sigma = {heterogeneity(problem).largest:.2g}: with the period doubled to {period:,}, fed-sel "
            f"takes {other.rounds:.1f} rounds instead of {now.rounds:.1f}, "
            f"for {change(other.pulls, now.pulls, 'pulls')}."
        )
    if options.radius == "paper":
        other = measure({"radius": "sharp"})
        yield (
            f'radius = "sharp" would take fed-sel {change(other.pulls, now.pulls, "pulls")}, '
            "with the same delta."
        )


def too_long(problem: Problem, options: FedSel, most_rounds: float) -> str:
    """Why runs are too long to simulate, if they may take as long as Theorem 1 allows."""
    promised = bounds_of_runs(problem, options)
    if promised is None:
        return ""
    rounds = min(promised.rounds, options.max_rounds or np.inf)
    if rounds > most_rounds:
        return f"up to {rounds:,.0f} rounds, too many to simulate here; a longer period reduces them"
    if (pulls := promised.phase1_most.max()) > MOST_PULLS:
        return f"up to {pulls:.1g} pulls of one client, too many to simulate here; epsilon reduces them"
    return ""


FACTS = PlanFacts(
    periodic=True,
    scheduled=True,
    schedules=schedules,
    advice=advice,
    too_long=too_long,
    bounds=bounds_of_runs,
    scaling=SCALING,
)
