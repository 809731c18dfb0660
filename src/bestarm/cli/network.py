"""``bestarm network``: how many liars a network tolerates, and where it is weak."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from bestarm.cli.exit_codes import NOT_VERIFIED, OK
from bestarm.cli.options import Json, check_folder
from bestarm.cli.render.network import show_network
from bestarm.cli.terminal import out, safe
from bestarm.errors import InputError
from bestarm.graphs import robustness
from bestarm.graphs.graph import Graph, members
from bestarm.protocol.options import make
from bestarm.protocol.registry import method_named, options_for
from bestarm.scenario.load import load
from bestarm.simulate.identify import default_method

GroupsOption = Annotated[
    str | None,
    typer.Option(metavar="A=1,2;B=3,4", help="the nodes of each group [default: the scenario's]"),
]


def network(
    graph: Annotated[
        Path, typer.Argument(metavar="GRAPH", help="GraphML, edge list, adjacency CSV, or SCENARIO.toml")
    ],
    groups: GroupsOption = None,
    byzantine: Annotated[
        int | None,
        typer.Option(min=0, help="fail (exit code 4) unless it tolerates this many liars around each client"),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(
            help="the protocol: means (3f+1) or intervals (2f+1) [default: the scenario's, or means]"
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg", help="draw it, with the weak part marked (.png, .svg, .pdf)"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say how many liars a network tolerates, where it is weak, and which edges would help."""
    made, by_group, declared = read_network(graph, groups)
    exchange = exchange or declared.exchange
    byzantine = declared.byzantine if byzantine is None else byzantine
    if plot is not None:
        check_folder(plot)
        from bestarm.report import network_plot, plots

        plots.check_format(plot)
    found = {name: robustness.strong_robustness(made, nodes) for name, nodes in by_group.items()}
    weakest = min(found, key=lambda name: found[name][0])
    r, witness = found[weakest]
    tolerated = {kind: robustness.tolerance(made, by_group, kind) for kind in robustness.SHARES}
    if exchange not in tolerated:
        raise InputError(f'exchange = "{exchange}"', expected=" or ".join(tolerated))
    try:
        more: list[tuple[Any, Any]] | None = robustness.weak_points(made, by_group, exchange)
        remedy = None
    except InputError as error:
        more, remedy = None, str(error)
    facts = {
        "nodes": made.n,
        "edges": len(made.targets),
        "robustness": {name: None if value[0] == math.inf else value[0] for name, value in found.items()},
        "tolerance": tolerated,
        "weakest": weakest,
        "witness": sorted(witness, key=str),
        "add": more,
        "remedy": remedy,
    }
    if as_json:
        print(json.dumps(facts))
    else:
        show_network(facts, r, exchange)
    if plot is not None:
        plots.save(network_plot.network(made, by_group, witness), str(plot))
        if not as_json:
            out.print(f"picture: {safe(str(plot))}")
    return NOT_VERIFIED if byzantine is not None and tolerated[exchange] < byzantine else OK


class Declared(NamedTuple):
    """The largest number of liars in each group, and what peers send each other."""

    byzantine: int | None = None
    exchange: str = "means"


def read_network(path: Path, groups: str | None) -> tuple[Graph, dict[str, list[Any]], Declared]:
    """The graph, its groups, and what a scenario says about liars."""
    if path.suffix == ".toml":
        if groups is not None:
            raise InputError("a scenario has its own groups", fix="Leave out --groups")
        loaded = load(path)
        if loaded.network is None:
            raise InputError("the scenario has no [network]", where=str(path))
        method = method_named(loaded.method or default_method(loaded.options, loaded.problem.layout))
        options = make(method.options, options_for(method.name, loaded.options), where=str(path))
        declared = Declared(loaded.options.get("byzantine"), method.exchange(options))
        named = loaded.network.named(loaded.problem.layout)
        return named.graph, named.groups(loaded.problem.layout), declared
    made = Graph.read(path)
    if groups is None:
        raise InputError(
            "a graph does not say which nodes belong together", expected='--groups "A=1,2;B=3,4"'
        )
    by_group = _parse_groups(groups, numbered=made.names is None)
    members(made, by_group)  # checks them
    return made, by_group, Declared()


def _parse_groups(text: str, numbered: bool) -> dict[str, list[Any]]:
    """The nodes of each group; `numbered` if the graph's nodes are numbers, not names."""
    by_group: dict[str, list[Any]] = {}
    for part in text.split(";"):
        name, equals, rest = part.partition("=")
        nodes: list[Any] = [node.strip() for node in rest.split(",") if node.strip()]
        if not equals or not name.strip() or not nodes or name.strip() in by_group:
            raise InputError(f'--groups "{part}" can\'t be read', expected='"A=1,2;B=3,4", each group once')
        if numbered:
            nodes = [int(n) if n.isascii() and n.isdigit() and len(n) < 19 else n for n in nodes]
        by_group[name.strip()] = nodes
    return by_group
