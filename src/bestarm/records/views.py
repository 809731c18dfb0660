"""What a server knew about each group, round by round, as a method reads it from the certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bestarm.problem.problem import Problem
from bestarm.problem.question import Cells
from bestarm.protocol.options import make
from bestarm.protocol.registry import method_named
from bestarm.protocol.trace import Certificate, Trace, View
from bestarm.records.record import Record

__all__ = ["View", "fallen", "read_certificate", "subject", "trace_of", "views"]


def read_certificate(
    method: str,
    delta: float,
    options: Mapping[str, Any],
    problem: Mapping[str, Any],
    certificate: Mapping[str, Any],
) -> Trace:
    """The trace of a run, which may still be in progress.

    Parameters
    ----------
    method : str
        The name of the method.
    delta : float
        The error probability.
    options : mapping
        The other options, as in a record.
    problem : mapping
        The problem, as in a record.
    certificate : mapping
        The parts of the server and of the clients.

    Returns
    -------
    Trace
        What the method reads from the certificate, on [0, 1].

    Raises
    ------
    InputError
        If the method or an option is unknown.
    """
    groups, found = problem["groups"], method_named(method)
    chosen = make(found.options, {**options, "delta": delta}, where="options")
    several = any(len(group["clients"]) > 1 for group in groups)  # names are not checked here
    question = (problem.get("question") or {}).get("question", "anywhere")
    return found.variant(question, several, chosen).trace(
        Certificate(
            options=chosen,
            arms=tuple(len(group["arms"]) for group in groups),
            clients=tuple(tuple(group["clients"]) for group in groups),
            server=certificate["server"],
            local=certificate.get("local") or {},
        )
    )


def subject(problem: Mapping[str, Any], group: int, arm: int | None = None) -> str:
    """What a line of a trace is about: an arm's full name, a group, or an option of all sites.

    Parameters
    ----------
    problem : mapping
        The problem, as in a record.
    group, arm : int
        The position in the trace.

    Returns
    -------
    str
    """
    if (problem.get("question") or {}).get("question", "anywhere") != "anywhere":
        return Cells.of(Problem.layout_from_dict(problem)[0]).options[group]
    named = problem["groups"][group]  # a record may be forged: names are not checked here
    return str(named["name"]) if arm is None else f"{named['name']}/{named['arms'][arm]}"


def trace_of(record: Record) -> Trace:
    """The trace of a record."""
    return read_certificate(
        record.method, record.delta, record.options, record.problem, record.verdict.certificate
    )


def views(record: Record) -> list[View]:
    """What the server knew, round by round, on [0, 1]; empty for peers, which have no server."""
    found = [view for line in trace_of(record).lines() for view in line.views if view.round is not None]
    return sorted(found, key=lambda view: view.round or 0)


def fallen(record: Record) -> dict[int, int]:
    """The groups that the server dropped, and the round of each."""
    return {line.group: line.out for line in trace_of(record).lines() if line.out is not None}
