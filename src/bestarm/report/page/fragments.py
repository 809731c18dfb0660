"""Fragments for notebooks: a record, a study, a problem or a graph, with the page's style."""

from __future__ import annotations

from functools import partial

from bestarm.evidence.record import Evidence
from bestarm.graphs.graph import Graph
from bestarm.problem.problem import Problem
from bestarm.records.record import Record
from bestarm.report import facts as collect
from bestarm.report import svg
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.page.evidence import evidence_sections
from bestarm.report.page.leaderboard import leaderboard
from bestarm.report.page.parts import MOST_ROWS, WIDE, figure, notebook_style
from bestarm.report.page.run import top
from bestarm.report.page.study import study_sections
from bestarm.report.svg import number
from bestarm.study.trials import Trials
from bestarm.util.text import counted


def _fragment(body: Html) -> str:
    """A part of a page with a style that applies to nothing else."""
    return tag("div", tag("style", Html(notebook_style())), body, class_="bestarm")


def record_fragment(record: Record) -> str:
    """A record in a notebook."""
    facts = collect.of_record(record, quick=True)
    drawn = figure(partial(svg.race if facts.wealths is None else svg.wealth_race, facts), "")
    return _fragment(join(top(facts), leaderboard(facts), drawn))


def evidence_fragment(evidence: Evidence) -> str:
    """What recorded data show, in a notebook."""
    made = {key: body for key, _, body in evidence_sections(evidence, None)}
    return _fragment(join(made["top"], made["options"]))


def study_fragment(trials: Trials) -> str:
    """A study in a notebook."""
    made = {key: body for key, _, body in study_sections(collect.of_trials(trials), None)}
    return _fragment(made["table"])


def problem_fragment(problem: Problem) -> str:
    """A problem in a notebook: the arms of each group, with their means if known."""
    rows = []
    for group, means in zip(problem.layout.groups[:MOST_ROWS], problem.means, strict=False):
        arms = [
            [
                ", " if k else None,
                name(arm, 40),
                "" if mean is None else f" {number(problem.scale.user(mean))}",
            ]
            for k, (arm, mean) in enumerate(zip(group.arms[:30], means, strict=False))
        ]
        more = f" and {len(group.arms) - 30} more" if len(group.arms) > 30 else ""
        rows.append([name(group.name, 60), number(len(group.clients)), join(*arms, more)])
    return _fragment(
        table(["group", "clients", "arms, with their means"], rows, numbers={1}, caption="The problem")
    )


def graph_fragment(graph: Graph) -> str:
    """A network in a notebook."""
    edges = [(u, v) for u, v in graph.edges.tolist()]
    names = list(graph.names or map(str, range(graph.n)))
    drawn = svg.graph(collect.network_of_graph(names, edges, graph.positions), WIDE)
    return _fragment(join(tag("p", f"{counted(graph.n, 'node')}, {counted(len(edges), 'edge')}"), drawn))
