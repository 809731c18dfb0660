"""What the verification of a server's folder and of a peer's folder share: the result, and the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bestarm.deploy.envelope import Evidence
from bestarm.errors import InputError
from bestarm.records.record import Record
from bestarm.records.verify import EvidenceCheck, verify

NO_VERDICT = "there is a record, but the journal has no verdict yet"


@dataclass(frozen=True)
class Finding:
    """The result of verifying a folder, with what follows from its journal.

    Attributes
    ----------
    failures : tuple of str
        One sentence for each failed check.
    events : int
        The number of events in the journal.
    suspects : dict of str to str
        Each client under suspicion, with the reason.
    evidence : tuple of Evidence
        Conflicting messages of one signer.
    record : Record, optional
        The record that follows from the journal, if it has a verdict.
    """

    failures: tuple[str, ...]
    events: int
    suspects: dict[str, str]
    evidence: tuple[Evidence, ...]
    record: Record | None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures


def unreadable(error: object) -> str:
    """Return the failure for a journal whose events are not those of a run."""
    return f"the journal can't be read as a run: {error}"


def check_records(
    record: Record,
    path: Path,
    check: EvidenceCheck,
    differences: Callable[[Record, Record], Iterable[str]],
) -> Iterator[str]:
    """Check the record that follows from a journal and the saved one, if there is one.

    Parameters
    ----------
    record : Record
        The record that follows from the journal.
    path : Path
        Where the run saves its record.
    check : callable
        Says why a piece of evidence is invalid; see ``bestarm.deploy.evidence.checker``.
    differences : callable
        Takes the record of the journal and the saved one, and names the keys in which they must agree but
        do not.

    Yields
    ------
    str
        One sentence for each failed check.
    """
    yield from verify(record, check_evidence=check).failures
    if not path.exists():
        return
    try:
        saved = Record.load(path)
    except InputError as error:
        yield str(error)
        return
    yield from verify(saved, check_evidence=check).failures
    for key in differences(record, saved):
        yield f"{path.name}: {key} does not follow from the journal"
