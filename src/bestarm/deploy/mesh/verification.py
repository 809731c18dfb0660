"""Verification of a peer's folder: replays its journal and compares it with the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bestarm.deploy import verification
from bestarm.deploy.evidence import checker
from bestarm.deploy.identity import Roster
from bestarm.deploy.mesh.files import JOURNAL, RECORD, Place
from bestarm.deploy.mesh.node import KIND, Node, belongs
from bestarm.protocol.verdict import Verdict
from bestarm.records.record import Record
from bestarm.util.journal import Journal

# Keys that the verdict fixes. Costs and the peer's own part still grow while it serves its neighbours.
FIXED = ("schema", "method", "delta", "seed", "options", "problem", "rounds", "peers", "network")


@dataclass(frozen=True)
class Finding(verification.Finding):
    """The result of verifying a peer's folder."""

    verdict: Verdict | None = None


def verify(folder: Path, roster: Path | None = None) -> Finding:
    """Replay a peer's journal and check every signature, own report, the verdict, the record, all evidence.

    Parameters
    ----------
    folder : Path
        The peer's folder. No private key is needed.
    roster : Path, optional
        The roster to check against; by default the one in the folder.

    Returns
    -------
    Finding
        The failures, if any, and the results that follow from the journal.
    """
    place = Place.load(folder, secret=False)
    if roster is not None:
        place = dataclasses.replace(place, roster=Roster.load(roster))
    with Journal.open(folder / JOURNAL, KIND, write=False) as journal:
        events = journal.verify()
        try:
            if not belongs(journal, place):
                raise ValueError("it belongs to another run or node")
            node = Node(place, journal, speak=False)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            return Finding((verification.unreadable(error),), events, {}, (), None)
    failures = (*node.failures, *_compare(node, folder / RECORD))
    record = node.record() if node.verdict is not None else None
    return Finding(failures, events, node.suspects(), tuple(node.evidence.values()), record, node.verdict)


def _compare(node: Node, path: Path) -> Iterator[str]:
    """Compare the saved record, which may be older, with the one that follows from the journal."""
    if node.verdict is None:
        if path.exists():
            yield verification.NO_VERDICT
        return
    # A peer killed at its verdict writes the record when it is run again, so that it may be missing.
    yield from verification.check_records(node.record(), path, checker(node.place.roster), _differences)


def _differences(record: Record, saved: Record) -> Iterator[str]:
    """The keys in which a saved record, which may be older, contradicts the journal's."""
    mine, theirs = record.to_dict(), saved.to_dict()
    for plain in (mine, theirs):
        plain["verdict"] = {**plain["verdict"], "certificate": None}
    for key in (*FIXED, "verdict"):
        if mine[key] != theirs[key]:
            yield key
    if any(each not in mine["evidence"] for each in theirs["evidence"]):
        yield "evidence"
    known = mine["summaries"] or {}
    if any(known.get(name) != summary for name, summary in (theirs["summaries"] or {}).items()):
        yield "summaries"
