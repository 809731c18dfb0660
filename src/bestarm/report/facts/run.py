"""The facts of a simulated run or a federation, from its record or at any moment before its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from bestarm.errors import InputError
from bestarm.problem.problem import Problem
from bestarm.records.answer import answer_card
from bestarm.records.describe import leading, nothing_promised, still_in, what_helps, why_undecided
from bestarm.records.pulls import known_pulls
from bestarm.records.questions import Situation, promise, title
from bestarm.records.record import Record
from bestarm.records.verify import verify
from bestarm.report.facts.again import so_far_of, traces_again
from bestarm.report.facts.forecast import with_true_means
from bestarm.report.facts.parts import of_parts
from bestarm.report.facts.reading import Reader
from bestarm.report.facts.structs import (
    CostFacts,
    FaultFacts,
    LineFacts,
    NoteFacts,
    RunFacts,
    UndecidedFacts,
)
from bestarm.simulate.run_journal import Rerun
from bestarm.study.outlook import outlook

if TYPE_CHECKING:  # its packages are optional
    from bestarm.deploy.experiment.engine import Engine
    from bestarm.deploy.federation.desk import Desk

replace = msgspec.structs.replace


def of_record(
    record: Record, *, quick: bool = False, check: bool = True, command: str | None = None
) -> RunFacts:
    """The facts of a run.

    Parameters
    ----------
    record : Record
        The run.
    quick : bool
        Whether to omit everything that needs further runs: the forecast and the arms' traces.
    check : bool
        Whether to verify the record; otherwise it is trusted.
    command : str or None
        The command that started the run, if known.

    Returns
    -------
    RunFacts
        What can be shown of it.

    Raises
    ------
    InputError
        If the record can't be read as a run.
    """
    try:
        return _of_record(record, quick, check, command)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"this record can't be read as a run ({type(error).__name__}: {error})",
            fix='"bestarm verify" says what is wrong with it',
        ) from None


def _of_record(record: Record, quick: bool, check: bool, command: str | None) -> RunFacts:
    verdict = replace(record.verdict, certificate={})
    situation = Situation.of(record)
    facts = of_parts(
        record.method,
        record.delta,
        record.options,
        record.problem,
        record.verdict.certificate,
        network=record.network,
        faults=record.proven_faulty,
        warnings=record.warnings,
        adversaries=record.adversaries,
        verdict=record.verdict,
        summaries=record.summaries,
    )
    by_client = known_pulls(record)
    facts = replace(
        facts,
        lines=tuple(_as_said(line, verdict.arm, verdict.mean) for line in facts.lines),
        clients=tuple(replace(row, pulls=by_client.get(row.name)) for row in facts.clients),
        costs=_costs(record),
        verdict=verdict,
        headline=title(situation) if verdict.answers else "",
        promises=tuple(promise(situation)) if verdict.answers else (),
        undecided=_undecided(record),
        private=record.peers is not None or bool(record.verdict.certificate.get("local")),
        rounds=record.rounds,
        name=record.name,
        date=record.date,
        seed=record.seed,
        version=record.version,
        digest=record.digest,
        visitors=record.visitors,
        command=command,
        good_event=record.good_event,
        peers=_peers(record),
        checks=verify(record).failures if check else (),
        data=facts.data and replace(facts.data, simulation=record.simulation),
        card=answer_card(record) if verdict.arm or verdict.reason or verdict.answers else None,
        outlook=None if quick else outlook(record),
    )
    problem = problem_of(record)
    if problem is not None and all(mean is not None for row in problem.means for mean in row):
        facts = with_true_means(facts, problem, record, quick)
    if problem is not None and not quick:
        facts = replace(facts, traces=traces_again(problem, record) or facts.traces)
        facts = replace(facts, so_far=() if facts.lines else so_far_of(problem, facts.traces))
    return facts


def drawable_facts(record: Record) -> RunFacts:
    """What a plot of a record needs: its lines, exits and verdict, and nothing that takes long."""
    facts = of_parts(
        record.method,
        record.delta,
        record.options,
        record.problem,
        record.verdict.certificate,
        warnings=record.warnings,
        bits={},
        verdict=record.verdict,
    )
    verdict = replace(record.verdict, certificate={})
    return replace(
        facts,
        lines=tuple(_as_said(line, verdict.arm, verdict.mean) for line in facts.lines),
        verdict=verdict,
        undecided=_undecided(record),
        broken=nothing_promised(record).rstrip("."),
    )


def _costs(record: Record) -> CostFacts:
    peers, made = record.peers is not None, known_pulls(record)
    return CostFacts(
        rounds=None if peers else record.rounds,
        time=record.time,
        pulls=sum(made.values()) if made else None,
        longest=max(made.values()) if made else None,
        bits_up=record.bits.up,
        bits_down=None if peers else record.bits.down,
        wire_bytes=record.wire_bytes,
    )


def _undecided(record: Record) -> UndecidedFacts | None:
    if record.verdict.status != "undecided" or not record.verdict.reason:
        return None
    return UndecidedFacts(why_undecided(record), what_helps(record), still_in(record), leading(record))


def _as_said(line: LineFacts, arm: str | None, mean: float | None) -> LineFacts:
    """End the winner's line at the mean of the verdict, which may be the middle of a bin."""
    if line.name != arm or mean is None:
        return line
    return replace(line, mean=(*line.mean[:-1], mean))


def _peers(record: Record) -> dict[str, int] | None:
    if record.peers is None:
        return None
    answers: dict[str, int] = {}
    for verdict in record.peers.values():
        answer = verdict.arm or f"undecided ({verdict.reason})"
        answers[answer] = answers.get(answer, 0) + 1
    return answers


def problem_of(record: Record) -> Problem | None:
    """The problem, if the record contains its rewards."""
    try:
        return Problem.from_dict(record.problem)
    except (InputError, KeyError):
        return None


def so_far(record: Record) -> list[tuple[str, int, float]]:
    """Arms with their pulls and means, from a rerun; empty if it can't be rerun."""
    problem = problem_of(record)
    if problem is None:
        return []
    found = so_far_of(problem, traces_again(problem, record) or ())
    return [(arm.name, arm.pulls, arm.mean) for arm in found]


def of_rerun(rerun: Rerun, sums: Mapping[tuple[int, int], Mapping[int, float]]) -> RunFacts:
    """The facts of a simulated run at the current end of its journal.

    Parameters
    ----------
    rerun : Rerun
        The run, brought to this moment.
    sums : mapping
        By the first honest client of each group and arm: number of pulls -> sum of the rewards.

    Returns
    -------
    RunFacts
        What can be shown of it.
    """
    record = rerun.run.record()
    facts = of_record(record, quick=True, check=rerun.run.over)
    if not rerun.run.over:
        facts = replace(facts, verdict=None, digest=None, card=None)
    told = Reader(record.method, record.delta, record.options, record.problem, record.verdict.certificate)
    clients, firsts, drawn = rerun.run.problem.layout.clients, rerun.firsts(), set(told.leading())
    lines = {(clients[i], firsts[i], a): sums[i, a] for i, a in sorted(sums) if firsts[i] in drawn}
    return replace(facts, traces=told.drawn(lines))


def of_experiment(engine: Engine) -> RunFacts:
    """The facts of a live experiment at the current end of its journal."""
    facts = of_record(engine.record(), quick=True, check=engine.over)
    return facts if engine.over else replace(facts, verdict=None, digest=None)


def of_desk(desk: Desk) -> RunFacts:
    """The facts of a federation, as far as its server's desk knows them by now."""
    if desk.done:
        facts = of_record(desk.record(), quick=True)
    else:
        m, setup = desk.machine, desk.setup
        facts = of_parts(
            setup.method,
            setup.options.delta,
            {k: v for k, v in vars(setup.options).items() if k != "delta"},
            setup.problem,
            {"server": m.certificate(), "local": None},
            faults=m.faulty,
            warnings=desk.warnings,
            bits=desk.bits,
        )
        costs = CostFacts(rounds=m.rounds, bits_up=m.bits_up, bits_down=m.bits_down, wire_bytes=m.bytes)
        facts = replace(facts, rounds=m.rounds, costs=costs, name=setup.name, date=setup.date)
    known = {fault.client for fault in facts.faults}
    suspects = [FaultFacts(who, None, why) for who, why in desk.suspects().items() if who not in known]
    refused: dict[str, int] = {}
    for (who, why), times in desk.refused.items():
        refused[f"{who}: {why}"] = refused.get(f"{who}: {why}", 0) + times
    return replace(
        facts,
        checks=(*facts.checks, *desk.failures),
        faults=(*facts.faults, *suspects),
        clients=tuple(replace(row, messages=desk.next[row.name]) for row in facts.clients),
        waiting=tuple(desk.waiting_for()),
        dropped=tuple(desk.dropped),
        refused=refused,
        notes=tuple(NoteFacts(*note) for note in desk.notes if not note.routine),
    )
