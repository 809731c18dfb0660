"""Rivals: federated methods of other papers, for comparison. All clients have the same options.

FedElim, FPE and collaborative exploration pull every option that is left equally often, average over the
clients and drop what is behind. They differ in their schedules only (``schedules.py``, with the proofs), so
they share their machines. They answer "overall" with equal weights, and "anywhere" in one group. Plans and
lists leave them out unless they are named; use `bet` for everything but comparisons.
"""

from __future__ import annotations

from bestarm.methods.rivals.audit import audit_client, good_event, pulls_of
from bestarm.methods.rivals.client import Client
from bestarm.methods.rivals.course import refuse
from bestarm.methods.rivals.kernel import kernel_for
from bestarm.methods.rivals.options import Collaborative, FedElim, Fpe, FpeHeuristic, Rival
from bestarm.methods.rivals.server import Server
from bestarm.methods.rivals.trace import Trace
from bestarm.protocol.registry import Method


def _method(name: str, title: str, summary: str, options: type[Rival], proof: str) -> Method:
    """A rival, with the machines that all of them share."""
    return Method(
        name=name,
        title=title,
        summary=summary,
        options=options,
        client=Client,
        server=Server,
        refuse=refuse,
        pulls_of=pulls_of,
        good_event=good_event,
        audit_client=audit_client,
        questions=("anywhere", "overall"),
        claims_intervals=lambda chosen: options.proved,
        epsilon=False,
        pools=True,
        axis="round",
        phases=("first round", "later rounds"),
        kernel=kernel_for,
        trace=Trace,
        proof=proof,
        rival=True,
    )


METHODS = (
    _method(
        "fed-elim",
        "FedElim, global part",
        "FedElim (Reddy, Karthik, Tan, arXiv 2208.09215): elimination at 1, 2, 4, … pulls",
        FedElim,
        "proved: docs, Other proofs, FedElim",
    ),
    _method(
        "fpe",
        "FPE, threshold of theory",
        "FPE (Réda, Vakili, Kaufmann, arXiv 2206.00121), with its proved threshold",
        Fpe,
        "proved: Réda, Vakili and Kaufmann 2022, with the threshold of Kaufmann and Koolen 2021",
    ),
    _method(
        "fpe-heuristic",
        "FPE, heuristic threshold",
        "FPE (Réda, Vakili, Kaufmann, arXiv 2206.00121), with the threshold of its experiments",
        FpeHeuristic,
        "",
    ),
    _method(
        "collaborative",
        "Collaborative exploration, several rounds",
        "Collaborative exploration (Hillel et al., arXiv 1311.0800), several rounds",
        Collaborative,
        "proved: docs, Other proofs, Collaborative exploration",
    ),
)
