"""The facts of one client of a federation, or of one node of a mesh, from its own fold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bestarm.protocol.events import Pull
from bestarm.protocol.registry import method_named
from bestarm.protocol.verdict import Verdict
from bestarm.records.answer import answer_card
from bestarm.records.build import on_user_scale
from bestarm.records.estimates import estimates, shares
from bestarm.records.questions import Situation, promise, title
from bestarm.records.ranking import ALPHA
from bestarm.report.facts.parts import of_parts
from bestarm.report.facts.reading import Reader
from bestarm.report.facts.structs import (
    CostFacts,
    FaultFacts,
    NeighbourFacts,
    OwnArmFacts,
    RunFacts,
    SeenGroupFacts,
    SiteFacts,
    WantsFacts,
)

if TYPE_CHECKING:  # their packages are optional
    from bestarm.deploy.federation.site import Site
    from bestarm.deploy.mesh.node import Node
    from bestarm.deploy.terms import Terms

Sums = Mapping[int, dict[int, float]]  # for each arm: number of pulls -> sum of the rewards


def of_client(site: Site, sums: Sums) -> SiteFacts:
    """The facts of one client of a federation, and what it knows about the run."""
    facts = _of_fold(site, site.place.client, sums)
    if facts.verdict is not None:
        facts = msgspec.structs.replace(facts, arms=tuple(_settled(site, facts)))
    return msgspec.structs.replace(facts, sent=len(site.ups), heard=site.heard)


def _settled(site: Site, facts: SiteFacts) -> Iterator[OwnArmFacts]:
    """The arms after the verdict, with the intervals that the server's answer card has for them.

    An arm has none here if that interval does not follow from this client's rewards alone: other clients try
    it too, or the server states an interval of its own.
    """
    setup, verdict = site.place.setup, facts.verdict
    assert verdict is not None
    j = setup.layout.group_of[facts.me]
    group, options, method = setup.layout.groups[j], setup.options, setup.room
    alone = len(group.clients) == 1 and setup.layout.question.kind == "anywhere"
    proved = not method_named(setup.method).unproved
    stated = proved and bool(method.interval_promise(options))
    alpha = float(getattr(options, "alpha", ALPHA))
    level, named = shares(
        alpha, sum(setup.layout.arm_counts), fixed=proved and not options.epsilon, stated=stated
    )
    found = estimates(setup.layout, {facts.me: site.tally.summary()}, level) if alone else []
    best = estimates(setup.layout, {facts.me: site.tally.summary()}, named) if alone else []
    exact = stated and group.binary and not options.epsilon  # then the server's interval is this one
    for a, arm in enumerate(facts.arms):
        won, ends = verdict.arm == f"{group.name}/{arm.name}", None
        if won and (exact or not (stated or (proved and method.claims_intervals(options)))):
            ends = next((row.interval for row in best if (row.group, row.arm) == (j, a)), None)
        elif not won:
            ends = next((row.interval for row in found if (row.group, row.arm) == (j, a)), None)
        low, high = (None, None) if ends is None else setup.scale.user_interval(*ends)
        yield msgspec.structs.replace(arm, lower=low, upper=high)


def of_node(node: Node, sums: Sums) -> SiteFacts:
    """The facts of one node of a mesh: what it knows about the run, the other arm-sets and its neighbours."""
    machine = node.machine
    votes = (machine.votes >= 0).sum(axis=1)
    return msgspec.structs.replace(
        _of_fold(node, node.place.name, sums),
        peer=True,
        sent=len(node.own),
        heard=len(node.slots.accepted),
        view=_view(node),
        hears=tuple(
            NeighbourFacts(name, int(votes[i]), bool(machine.out[i]))
            for name, i in machine.neighbours.items()
        ),
        tells=tuple(neighbour.name for neighbour in node.place.heard),
        faults=tuple(FaultFacts(who, None, why) for who, why in node.suspects().items()),
        checks=tuple(node.failures),
        card=None if node.verdict is None else answer_card(node.record()),
    )


def _view(node: Node) -> tuple[SeenGroupFacts, ...]:
    """What a node knows about each arm-set, from the reports it received."""
    machine, setup = node.machine, node.place.setup
    means, scale = setup.room.exchange(setup.unit) == "means", setup.scale
    found = []
    for j, group in enumerate(setup.layout.groups):
        known, mean = machine.arms[j] >= 0, float(machine.means[j])
        span = scale.user_interval(float(machine.lower[j]), float(machine.upper[j]))
        found.append(
            SeenGroupFacts(
                group=group.name,
                arm=group.arms[machine.arms[j]] if known else None,
                mean=scale.user(mean) if means and not np.isnan(mean) else None,
                interval=span if known and not means else None,
                standing=None if means else bool(machine.standing[j]),
            )
        )
    return tuple(found)


def _of_fold(fold: Site | Node, me: str, sums: Sums) -> SiteFacts:
    """The facts that clients and nodes share."""
    setup, machine = fold.place.setup, fold.machine
    j = setup.layout.group_of[me]
    options = {k: v for k, v in vars(setup.options).items() if k != "delta"}
    certificate = {"server": {"rounds": [], "events": []}, "local": {me: machine.local()}}
    run = of_parts(setup.method, setup.options.delta, options, setup.problem, certificate, bits={})
    told = Reader(setup.method, setup.options.delta, options, setup.problem, certificate)
    verdict = None
    if fold.verdict is not None:
        verdict = msgspec.structs.replace(on_user_scale(fold.verdict, setup.scale), certificate={})
    common = {name: getattr(run, name) for name in RunFacts.__struct_fields__}
    common |= {
        "traces": told.drawn({(me, j, a): sums[a] for a in sorted(sums)}),
        "costs": CostFacts(pulls=fold.pulls),
        "verdict": verdict,
        **_answers(setup, verdict),
        "name": setup.name,
        "date": setup.date,
    }
    return SiteFacts(
        **common,
        peer=False,
        me=me,
        group=setup.layout.groups[j].name,
        state=str(machine.state),
        wants=None if fold.pull is None else _wants(fold.pull),
        arms=_own_arms(fold, told, j, sums, {exit_.name for exit_ in run.exits}),
        sent=0,
        heard=0,
        kept=sum(map(len, fold.kept)),
    )


def _answers(setup: Terms, verdict: Verdict | None) -> dict[str, Any]:
    """The answers to a question about several sites in words, and what is promised about them."""
    if verdict is None or not verdict.answers:
        return {}
    found = Situation(
        problem=setup.problem,
        verdict=verdict,
        delta=setup.options.delta,
        margin=getattr(setup.options, "margin", 0.0),
        liars=setup.options.byzantine,
    )
    plain = [msgspec.structs.replace(answer, value=None, interval=None) for answer in verdict.answers]
    silent = msgspec.structs.replace(found, verdict=msgspec.structs.replace(verdict, answers=tuple(plain)))
    return {"headline": title(silent), "promises": tuple(promise(silent))}


def _wants(pull: Pull) -> WantsFacts:
    same = len(set(pull.each)) == 1
    return WantsFacts(len(pull.arms), pull.times * pull.each[0] if same else None, pull.times * pull.width)


def _own_arms(
    fold: Site | Node, told: Reader, j: int, sums: Sums, dropped: set[str]
) -> tuple[OwnArmFacts, ...]:
    arms = []
    for a, name in enumerate(fold.group.arms):
        n, total = next(reversed(sums.get(a, {}).items()), (0, 0.0))
        band = told.around(j, [n], [total]) if n else None
        wanted = fold.pull is not None and a in fold.pull.arms
        arms.append(
            OwnArmFacts(
                name=name,
                pulls=fold.made[name],
                counted=n,
                fate="out" if told.arm(j, a) in dropped else "pulled now" if wanted else "in",
                mean=None if band is None else band.mean[0],
                lower=None if band is None else band.lower[0],
                upper=None if band is None else band.upper[0],
            )
        )
    return tuple(arms)
