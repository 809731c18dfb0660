"""Verification of a server's folder: replays its journal and compares it with the other files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bestarm.deploy import verification
from bestarm.deploy.evidence import checker
from bestarm.deploy.federation.client_folders import CLIENT, is_of_run, kept_keys
from bestarm.deploy.federation.desk import KIND, Desk, Note
from bestarm.deploy.federation.files import JOURNAL, RECORD, ROSTER, SETUP, Federation
from bestarm.deploy.identity import Roster, crypto
from bestarm.errors import InputError
from bestarm.records.record import Record
from bestarm.records.verify import as_before
from bestarm.util.journal import Journal
from bestarm.util.text import visible


@dataclass(frozen=True)
class Finding(verification.Finding):
    """The result of verifying a server's folder."""

    notes: tuple[Note, ...] = ()  # messages from clients to the operator
    changes: tuple[str, ...] = ()  # changes of keys, by the operator or by a forger of the journal


def verify(folder: Path, kept: Path | None = None) -> Finding:
    """Replay a server's journal and check every signature, the verdict, the certificate and the suspects.

    Parameters
    ----------
    folder : Path
        The server's folder, or its journal alone.
    kept : Path, optional
        A roster that was kept elsewhere, or a client's ``client.json``, which has a digest of it: only these
        keys may have signed the clients' messages. Without it, anyone with access to the server's folder can
        forge all of it, including the keys.

    Returns
    -------
    Finding
        The failures, if any, and the results that follow from the journal.
    """
    crypto()  # a missing package is not a fault of the journal
    path = folder / JOURNAL if folder.is_dir() else folder
    with Journal.open(path, KIND, write=False) as journal:
        events = journal.verify()
        try:
            desk = Desk(journal)
        except Exception as error:  # a forged header or event can raise anything
            return Finding((visible(verification.unreadable(repr(error))),), events, {}, (), None)
    failures = [*desk.failures, *_compare(desk, path.parent / RECORD)]
    if folder.is_dir():
        failures += _compare_folder(desk, folder)
    if kept is not None:
        failures += _compare_kept(desk, kept)
    record = desk.record() if desk.done else None
    return Finding(
        tuple(map(visible, failures)), events, desk.suspects(), tuple(desk.slots.evidence.values()), record,
        tuple(desk.notes), tuple(desk.changes),
    )  # fmt: skip


def _compare_folder(desk: Desk, folder: Path) -> Iterator[str]:
    """Compare the journal with the files next to it; the roster there may be newer than the journal."""
    try:
        federation, roster = Federation.load(folder), Roster.load(folder / ROSTER)
    except InputError as error:
        yield str(error)
        return
    if federation.setup != desk.setup:
        yield f"{SETUP} belongs to another run than the journal"
    mine = {member.key: member for member in roster.members}
    for member in desk.slots.roster.members:
        now = mine.get(member.key)
        if now is None or now.client != member.client or (member.revoked and not now.revoked):
            key = member.key.hex()[:16]
            yield f"{ROSTER} does not have the key {key} of {member.client} as the journal does"


def _compare_kept(desk: Desk, kept: Path) -> Iterator[str]:
    """Compare the journal with a roster that was kept elsewhere, or with a client's digest of it."""
    keys = kept_keys(kept, desk.slots.roster)
    if keys is None:
        yield f"the keys in the journal's roster are not those that {kept} has the digest of"
        return
    used = [(client, key) for client, signers in desk.slots.signers.items() for key in sorted(signers)]
    for client, key in used:
        if (client, key) not in keys:
            short = key.hex()[:16]
            yield f"a message from {client} is signed with key {short}, which is not in {kept}"
    own = kept.with_name(CLIENT)  # in a client's folder
    if own.exists() and not is_of_run(own, desk.setup):
        yield f"{own} is about another run than the journal"


def _compare(desk: Desk, path: Path) -> Iterator[str]:
    """Compare the saved record with the one that follows from the journal."""
    check = checker(desk.slots.roster)
    if not desk.done:
        if path.exists():
            yield verification.NO_VERDICT
        for evidence in desk.slots.evidence.values():
            if why := check(evidence.to_dict()):
                yield f"the evidence against {evidence.first.source} is not valid: {why}"
        return
    if not path.exists():
        yield f"there is no {RECORD}, although the run has ended"
    yield from verification.check_records(desk.record(), path, check, _differences)


def _differences(record: Record, saved: Record) -> Iterator[str]:
    """The keys in which the two records differ, except for those that depend on who wrote the file.

    A server that was stopped right after the verdict has saved a record without summaries.
    """
    plain, found = saved.to_dict(), record.to_dict()
    parts = found["verdict"]["certificate"]
    parts["server"] = as_before(parts["server"], plain["verdict"]["certificate"]["server"])
    early = () if saved.summaries else ("summaries", "refused_summaries", "bits", "evidence")
    for key, value in found.items():
        if key not in ("version", "digest", "name", "date", *early) and plain[key] != value:
            yield key
