"""Evidence of equivocation, in records and files: two different messages signed for one slot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bestarm.deploy.envelope import Envelope, Evidence
from bestarm.deploy.identity import Roster
from bestarm.errors import InputError
from bestarm.protocol.codec import Malformed
from bestarm.records.record import Record
from bestarm.records.verify import Verification, verify
from bestarm.util.files import SCHEMA, as_json, read, write
from bestarm.util.journal import Journal

ROSTER = "roster.json"  # in every folder of a federation or a mesh

MOST_BYTES = 1 << 14  # the longest evidence file: two reports as hexadecimal digits


def checker(roster: Roster) -> Callable[[Mapping[str, Any]], str]:
    """Return a function for ``records.verify`` that says why evidence is invalid under this roster, or ""."""

    def check(plain: Mapping[str, Any]) -> str:
        try:
            evidence = Evidence.from_dict(plain)
        except Malformed as error:
            return str(error)
        return "" if evidence.verify(roster) else "no key in the roster signed both messages"

    return check


def verify_record(record: Record, roster: str | Path | None, replay: bool = False) -> Verification:
    """Verify a record, and its evidence against a roster if one is given."""
    return verify(record, replay, check_evidence=checker(Roster.load(roster)) if roster else None)


def earlier_evidence(path: Path, seq: int, second: Envelope, roster: Roster) -> Evidence | None:
    """Return the evidence that an event completes, with the first message for its slot in the journal.

    Earlier versions kept all messages and all evidence in memory, and accepted such evidence at any time.

    Parameters
    ----------
    path : Path
        The journal.
    seq : int
        The number of the event.
    second : Envelope
        The message in that event.
    roster : Roster
        Whose keys count.

    Returns
    -------
    Evidence or None
        None if the two messages prove nothing, or there is no earlier one.
    """
    with Journal.open(path, write=False) as journal:
        for event in journal.events():
            if event.seq == seq:
                return None
            if event.kind == second.topic and (first := Envelope.decode(event.body)).slot == second.slot:
                evidence = Evidence(first, second)
                return evidence if evidence.verify(roster) else None
    return None


def save_evidence(path: Path, evidence: Evidence) -> None:
    """Write a file that anyone with the roster can check."""
    plain = {"schema": SCHEMA, "accused": evidence.first.source, "evidence": evidence.encode().hex()}
    write(path, as_json(plain))


def verify_evidence(path: Path, roster: Path | None = None) -> tuple[str, bool]:
    """Return who this file accuses and whether it proves it, by this roster or the one next to the file."""
    plain = read(path, "Name a file that bestarm peer wrote")
    try:
        evidence = Evidence.decode(bytes.fromhex(plain["evidence"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"this is not a file of evidence ({error})", where=str(path)) from None
    return evidence.first.source, evidence.verify(Roster.load(roster or path.parent / ROSTER))


def is_evidence(path: Path) -> bool:
    """Whether ``save_evidence`` wrote this file, regardless of its name."""
    try:
        with path.open("rb") as file:
            plain = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(plain, dict) and {"accused", "evidence"} <= plain.keys()
