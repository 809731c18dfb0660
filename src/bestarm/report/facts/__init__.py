"""The facts that reports and live pages show, as frozen structs. Numbers are on the user's scale.

``of_record`` takes a finished run, ``of_rerun`` a simulated run at any moment, ``of_desk`` a federation's
server at any moment, ``of_client`` one of its clients, ``of_node`` a node of a mesh, ``of_experiment`` a live
experiment, ``of_trials`` a study.
The pages of ``bestarm.report.page`` are functions of these facts alone.
"""

from __future__ import annotations

from bestarm.report.facts.forecast import as_it_looks, going_plan
from bestarm.report.facts.network import network_of_graph
from bestarm.report.facts.reading import MOST_POINTS
from bestarm.report.facts.run import drawable_facts, of_desk, of_experiment, of_record, of_rerun, so_far
from bestarm.report.facts.site import of_client, of_node
from bestarm.report.facts.structs import (
    BandFacts,
    BetFacts,
    CellFacts,
    ClientFacts,
    ExitFacts,
    Facts,
    LineFacts,
    MethodFacts,
    NetworkFacts,
    PlanFacts,
    RangeFacts,
    RunFacts,
    SiteFacts,
    StudyFacts,
    TraceFacts,
    WealthFacts,
)
from bestarm.report.facts.study import of_trials

__all__ = [
    "MOST_POINTS",
    "BandFacts",
    "BetFacts",
    "CellFacts",
    "ClientFacts",
    "ExitFacts",
    "Facts",
    "LineFacts",
    "MethodFacts",
    "NetworkFacts",
    "PlanFacts",
    "RangeFacts",
    "RunFacts",
    "SiteFacts",
    "StudyFacts",
    "TraceFacts",
    "WealthFacts",
    "as_it_looks",
    "drawable_facts",
    "going_plan",
    "network_of_graph",
    "of_client",
    "of_desk",
    "of_experiment",
    "of_node",
    "of_record",
    "of_rerun",
    "of_trials",
    "so_far",
]
