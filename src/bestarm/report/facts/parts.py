"""Facts from a server's history and the clients' parts, for finished and unfinished runs."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.problem import Problem
from bestarm.protocol.events import Received, Start
from bestarm.protocol.options import make, on_unit_scale
from bestarm.protocol.registry import method_for, method_named
from bestarm.protocol.rounds import heard
from bestarm.protocol.summaries import Summary
from bestarm.protocol.verdict import Verdict
from bestarm.records.describe import (
    aim,
    are_shares,
    broken_by_data,
    coins_said,
    label_of,
    privacy_said,
    too_many,
)
from bestarm.records.questions import intent, option_table, question_of
from bestarm.report.colours import roster
from bestarm.report.facts.network import network_of
from bestarm.report.facts.reading import Reader
from bestarm.report.facts.structs import (
    ClientFacts,
    DataFacts,
    FaultFacts,
    GroupFacts,
    MethodFacts,
    RunFacts,
    WarningFacts,
)
from bestarm.version import __version__

Plain = Mapping[str, Any]  # of JSON


def of_parts(
    method: str,
    delta: float,
    options: Plain,
    problem: Plain,
    certificate: Plain,
    *,
    network: Plain | None = None,
    faults: Sequence[Plain] = (),
    warnings: Sequence[Plain] = (),
    adversaries: Sequence[Plain] = (),
    bits: Mapping[str, int] | None = None,
    verdict: Verdict | None = None,
    summaries: Mapping[str, Summary] | None = None,
) -> RunFacts:
    """The facts that follow from a certificate; `bits` has the bits of each client, if counted."""
    told = Reader(method, delta, options, problem, certificate)
    liars = {client: str(a["attack"]) for a in adversaries for client in a["clients"]}
    about = method_facts(method, delta, options)
    if about.peers:
        broken = (network or {}).get("broken") or ""
    else:
        broken = method_named(method).unproved or too_many(problem, options, liars)
    broken = broken or broken_by_data(warnings)
    if bits is None:
        bits = _bits_up(method, delta, options, problem, certificate)
    return RunFacts(
        method=about,
        delta=delta,
        options=dict(options),
        scale=told.scale,
        groups=tuple(GroupFacts(g["name"], tuple(g["arms"]), len(g["clients"])) for g in problem["groups"]),
        clients=tuple(
            ClientFacts(name=name, group=g["name"], bits_up=bits.get(name, 0) if bits else None)
            for g in problem["groups"]
            for name in g["clients"]
        ),
        percent=are_shares(problem),
        options_by_site=option_table(problem, verdict, certificate, summaries),
        lines=told.lines(),
        exits=told.exits(),
        traces=told.traces(),
        roster=roster(problem),
        wealths=told.wealths(),
        data=data_facts(Data.from_dict(problem)),
        aim=aim(problem),
        mean=label_of(problem),
        coins=coins_said(method, problem),
        privacy=privacy_said(problem),
        intent=intent(problem, delta, method_named(method).unproved),
        asked=_asked(problem),
        version=__version__,
        versions=versions(),
        faults=tuple(FaultFacts(f["client"], f["round"], f["reason"], f.get("by")) for f in faults),
        warnings=tuple(WarningFacts(w["round"], w["group"], w["text"]) for w in warnings),
        liars=liars,
        broken=broken,
        network=None if network is None else network_of(network, problem),
    )


def _asked(problem: Plain) -> dict[str, Any]:
    """The question in the form of the command line, without defaults."""
    keys = question_of(problem).keys([group["name"] for group in problem["groups"]])
    if "question" not in problem:
        return {}
    weights = keys.pop("weights", {})
    if len(set(weights.values())) > 1:
        keys["weights"] = ",".join(f"{site}={weight:.12g}" for site, weight in weights.items())
    return {**keys, "also": ",".join(keys["also"])} if "also" in keys else keys


def method_facts(name: str, delta: float, options: Plain) -> MethodFacts:
    """The method with these options."""
    method = method_named(name)
    made = make(method.options, {**options, "delta": delta}, where="options")
    return MethodFacts(
        name=name,
        title=method.title,
        summary=method.summary,
        axis=method.axis,
        peers=method.peers,
        claims_intervals=method.claims_intervals(made) and not method.unproved,
        premise=method.premise(made),
        interval_promise=method.interval_promise(made),
    )


def data_facts(data: Data | None) -> DataFacts | None:
    """Facts about the data file of the rewards, if there is one."""
    return None if data is None else DataFacts(str(data), data.resample)


def versions() -> dict[str, str]:
    """The versions of the software that makes the page."""
    ours = {"bestarm": __version__, "Python": platform.python_version()}
    return ours | {name: version(name.lower()) for name in ("NumPy", "SciPy")}


def _bits_up(
    method: str, delta: float, options: Plain, problem: Plain, certificate: Plain
) -> dict[str, int] | None:
    """Bits that each client sent up, counted by a server that gets the same messages again."""
    found: dict[str, int] = {}
    try:
        layout, scale = Problem.layout_from_dict(problem)
        made = make(method_named(method).options, {**options, "delta": delta}, where="options")
        room = method_for(method, layout, made)
        if room.server is None:
            return None
        server = room.server(layout, on_unit_scale(made, scale))
        server.handle(Start())
        for event in heard(certificate["server"]["events"]):
            before = server.bits_up
            server.handle(event)
            if isinstance(event, Received):
                found[event.sender] = found.get(event.sender, 0) + server.bits_up - before
    except InputError:  # the checks of the page report what is wrong
        return None
    return found
