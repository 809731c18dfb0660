"""The audit of the rivals: pulls, the good event, and whether a client's part fits what the server heard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bestarm.methods.rivals import decisions
from bestarm.methods.rivals.course import Course
from bestarm.methods.rivals.options import Rival
from bestarm.methods.rivals.server import Server
from bestarm.problem.layout import Layout


def pulls_of(part: Mapping[str, Any], arms: int, options: Rival) -> tuple[int, int]:
    """A client's pulls in the first round, and after it."""
    first, later = part["pulls"]
    return first, later


def good_event(
    layout: Layout, options: Rival, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool:
    """Whether no average that was compared is off by more than half its margin."""
    course = Course(layout, options)
    truth = course.values(means)
    for row in certificate["server"]["rounds"]:
        values, inside = np.zeros(course.number), np.zeros(course.number, dtype=bool)
        values[row["option"]], inside[row["option"]] = row["value"], True
        if not decisions.within(values, truth, inside, row["margin"]):
            return False
    return True


def uplinks(server: Mapping[str, Any], clients: int) -> int:
    """How many numbers the clients have sent: FedElim's cost is the pulls, and C for each of them.

    Parameters
    ----------
    server : mapping
        The server's part of a certificate.
    clients : int
        The number of clients.

    Returns
    -------
    int

    Examples
    --------
    >>> import bestarm as ba
    >>> problem = ba.Problem.bernoulli([[0.9, 0.1, 0.2]], clients=5)
    >>> record = ba.identify(problem, "fed-elim", delta=0.1, seed=1)
    >>> uplinks(record.verdict.certificate["server"], 5) % 5, record.verdict.arm
    (0, 'g1/a1')
    """
    return clients * sum(len(row["option"]) for row in server["rounds"])


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Compare a client's sums and pulls with the messages to the server and the rounds."""
    told, sent, course = server.told[name], part["sent"], server.course
    if [row["sums"] for row in sent][: len(told)] != told or len(sent) > len(told) + 1:
        yield "has sums that differ from those sent to the server"
    lines = server.history
    if any(row["options"] != line["option"] for row, line in zip(sent, lines, strict=False)):
        yield "has sums of options that were not asked for"
    done = course.size(len(sent) - 1)
    if not done <= part["count"] <= course.size(len(sent)):
        yield "made a number of pulls that does not match its rounds"
        return
    costs = [(course.size(r) - course.size(r - 1)) * len(row["options"]) for r, row in enumerate(sent)]
    inside = int(server.inside.sum()) if len(lines) == len(sent) else len(sent[-1]["options"])
    more = (part["count"] - done) * (course.number if not sent else inside)
    if sum(part["pulls"]) != sum(costs) + more or part["pulls"][0] != (costs[0] if costs else more):
        yield "made a number of pulls that does not match its rounds"
