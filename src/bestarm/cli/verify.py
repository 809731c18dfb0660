"""``bestarm verify``: check a record, the journal of a server or a peer, or evidence against a client."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm.cli.exit_codes import NOT_VERIFIED, OK
from bestarm.cli.options import Json
from bestarm.cli.render.federation import told
from bestarm.cli.terminal import out, safe, say
from bestarm.deploy.experiment.folder import is_experiment
from bestarm.errors import InputError
from bestarm.evidence.record import Evidence
from bestarm.evidence.record import is_evidence as is_recorded_evidence
from bestarm.records.describe import nothing_promised
from bestarm.records.record import Record
from bestarm.records.verify import verify as verify_run
from bestarm.simulate import run_journal
from bestarm.util.text import counted

if TYPE_CHECKING:  # its packages are optional
    from bestarm.deploy.verification import Finding


def verify(
    record: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="a saved record, evidence from a table, the folder of a federation's server, a peer or "
            "an experiment, or a file of evidence against a client",
        ),
    ],
    replay: Annotated[
        bool, typer.Option("--replay", help="also run again from the seed and compare")
    ] = False,
    roster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="a client.json, or a roster.json that you kept: only its keys count"
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Check a saved record: its digest, its certificate, its counts; with --replay also by a fresh run.

    In the folder of a federation's server or of a peer: replay its journal with all signatures, and name
    every suspect. A file evidence-NAME.json: whether it proves that NAME signed two different reports.
    """
    journalled = record.is_dir() or record.suffix == ".db"
    if journalled and replay:
        raise InputError(
            "--replay runs a record again from its seed",
            where=str(record),
            fix="A journal is replayed without it",
        )
    if is_experiment(record):
        return _verify_experiment(record, roster, as_json)
    if (record / "peer.json").exists():
        return _verify_peer(record, roster, as_json)
    if journalled:
        return verify_federation(record, roster, as_json)
    if is_recorded_evidence(record):
        return _verify_recorded(record, replay, roster, as_json)
    from bestarm.deploy.evidence import is_evidence

    if is_evidence(record):
        return _verify_evidence(record, roster, as_json)
    return _verify_record(record, replay, roster, as_json)


def _verify_record(path: Path, replay: bool, roster: Path | None, as_json: bool) -> int:
    from bestarm.deploy.evidence import verify_record

    loaded = Record.load(path)
    if roster is not None and not loaded.evidence:
        raise InputError(
            "this record has no signatures, so --roster has nothing to check",
            where=str(path),
            fix="Leave it out",
        )
    result = verify_record(loaded, roster, replay=replay and loaded.seed is not None)
    if result.ok and replay and loaded.seed is None and loaded.time is not None:
        raise InputError(
            "the record is sound, but a private run on real rewards has no seed in its record: with it, "
            "anyone could undo the random answers",
            where=str(path),
            fix="Leave out --replay",
        )
    if result.ok and replay and loaded.seed is None:
        raise InputError(
            "the record is sound, but a federation's record has no seed to replay it from",
            where=str(path),
            fix=f"Its journal can be replayed: bestarm verify {shlex.quote(str(path.parent))}",
        )
    if as_json:
        print(json.dumps({"ok": result.ok, "failures": result.failures}))
    elif result.ok:
        if why := nothing_promised(loaded):
            out.print(f"Nothing is promised: {safe(why)}.", style="red", soft_wrap=True)
        out.print(f"{safe(str(path))} is sound.")
        if loaded.peers is not None and not replay:
            how = "only --replay checks their verdicts"
            if loaded.seed is None:
                how = "bestarm verify FOLDER checks the verdict against the peer's journal"
            out.print(f"The record does not contain the messages that each peer received: {how}.")
    else:
        _show_failures(result.failures)
        _show_not_sound(path, result.failures)
    return OK if result.ok else NOT_VERIFIED


def _verify_experiment(path: Path, roster: Path | None, as_json: bool) -> int:
    """Replay the journal of a live experiment, count every reward anew, and check its record."""
    from bestarm.deploy.experiment.audit import audit
    from bestarm.deploy.experiment.folder import journal_of, read

    if roster is not None:
        raise InputError("an experiment has no signatures", where=str(path), fix="Leave out --roster")
    journal = journal_of(path)
    found, engine = audit(journal), read(journal)
    failures = list(found.failures)
    if engine.over:
        failures += verify_run(engine.record()).failures
    verdict = engine.verdict
    facts = {
        "ok": not failures, "failures": failures, "assigned": found.assigned, "told": found.told,
        "counted": found.counted, "missing": found.filled, "arm": verdict.summary if verdict else None,
    }  # fmt: skip
    if as_json:
        print(json.dumps(facts))
    elif failures:
        _show_failures(failures)
        _show_not_sound(path, failures)
    else:
        end = "it is not finished" if verdict is None else verdict.summary or f"undecided ({verdict.reason})"
        counts = f"{counted(found.assigned, 'assignment')}, {counted(found.told, 'reward')}"
        out.print(
            f"{safe(str(path))} is sound: {counts}, each once; {found.counted:,} count; {safe(end)}.",
            soft_wrap=True,
        )
    return OK if not failures else NOT_VERIFIED


def _verify_recorded(path: Path, replay: bool, roster: Path | None, as_json: bool) -> int:
    """Check a record of what recorded data show."""
    from bestarm.evidence.verify import verify as verify_evidence

    if replay or roster is not None:
        given = "--replay" if replay else "--roster"
        raise InputError(
            f"{given} is about runs; evidence is always computed again", where=str(path), fix="Leave it out"
        )
    result = verify_evidence(Evidence.load(path))
    if as_json:
        print(json.dumps({"ok": result.ok, "failures": result.failures}))
    elif result.ok:
        out.print(f"{safe(str(path))} is sound: every conclusion follows from its counts.", soft_wrap=True)
    else:
        _show_failures(result.failures)
        _show_not_sound(path, result.failures)
    return OK if result.ok else NOT_VERIFIED


def _show_failures(failures: Sequence[str]) -> None:
    for failure in failures:
        out.print(f"- {safe(failure)}")


def _show_not_sound(path: Path, failures: Sequence[str]) -> None:
    """Print the last line after failures."""
    reasons = counted(len(failures), "reason")
    out.print(f"{safe(str(path))} is NOT sound, for {reasons} (see above).", style="red", soft_wrap=True)


def verify_federation(folder: Path, roster: Path | None, as_json: bool) -> int:
    """Replay the journal of a federation's server."""
    from bestarm.deploy.federation.verification import verify as verify_journal

    place = folder if folder.is_dir() else folder.parent
    if folder.is_file() and run_journal.is_one(folder):
        raise InputError(
            "this is the journal of a run in process, which has no signatures",
            where=str(folder),
            fix="Verify its record: bestarm run … --out FILE, then bestarm verify FILE --replay",
        )
    if (place / "client.json").exists():
        raise InputError(
            "a client's folder can be watched or reported, not verified",
            where=str(place),
            fix=f"Verify the server's: bestarm verify FOLDER --roster {place / 'client.json'}",
        )
    found = verify_journal(folder, roster)
    if as_json:
        notes = [note._asdict() for note in found.notes]
        print(json.dumps({**_facts_of(found), "notes": notes, "key_changes": found.changes}))
        return OK if found.ok else NOT_VERIFIED
    remarks = [told(note) for note in found.notes if not note.routine] + [
        f"Keys, {text}." for text in found.changes
    ]
    return _show_finding(folder, found, remarks)


def _verify_peer(folder: Path, roster: Path | None, as_json: bool) -> int:
    from bestarm.deploy.mesh.verification import verify as verify_journal

    found = verify_journal(folder, roster)
    if as_json:
        print(json.dumps(_facts_of(found)))
        return OK if found.ok else NOT_VERIFIED
    return _show_finding(folder, found)


def _facts_of(found: Finding) -> dict[str, object]:
    """What the verification of a folder found, for JSON."""
    return {
        "ok": found.ok,
        "failures": found.failures,
        "events": found.events,
        "arm": found.record.verdict.summary if found.record else None,
        "suspects": found.suspects,
        "evidence": [{"client": e.first.source, "evidence": e.encode().hex()} for e in found.evidence],
    }


def _show_finding(folder: Path, found: Finding, remarks: Sequence[str] = ()) -> int:
    """Print what the verification of a folder found, and return the exit code."""
    if found.record and (why := nothing_promised(found.record)):
        out.print(f"Nothing is promised: {safe(why)}.", style="red", soft_wrap=True)
    _show_failures(found.failures)
    for client, why in found.suspects.items():
        out.print(f"Proven faulty: {safe(client)}, {safe(why)}.", style="red")
    for text in remarks:
        out.print(safe(text), soft_wrap=True)
    if not found.ok:
        _show_not_sound(folder, found.failures)
        return NOT_VERIFIED
    verdict = found.record.verdict if found.record else None
    end = "it is not finished" if verdict is None else verdict.summary or f"undecided ({verdict.reason})"
    out.print(f"{safe(str(folder))} is sound: {found.events} events; {safe(end)}.", soft_wrap=True)
    return OK


def _verify_evidence(path: Path, roster: Path | None, as_json: bool) -> int:
    from bestarm.deploy.evidence import verify_evidence

    accused, holds = verify_evidence(path, roster)
    text = f"{accused} signed two different reports for one place" if holds else "this proves nothing"
    say({"ok": holds, "accused": accused}, text, as_json)
    return OK if holds else NOT_VERIFIED
