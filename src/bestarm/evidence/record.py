"""The record of what recorded data show: everything that is needed to derive its conclusions again.

It has the settings that were fixed before the data were read, the rewards as counts (or, for looks at any
time, as sums of blocks), and every conclusion. ``bestarm.evidence.verify`` checks it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.problem.counted import Rows
from bestarm.stats.alarms import Alarm, Check
from bestarm.stats.sums import Sums
from bestarm.util.files import as_json, write
from bestarm.util.text import counted

SCHEMA = 1
LARGEST = 1e300  # e-values above this are cut off
MOST_NAMED = 5  # sites in the text of a record

Status = Literal["identified", "undecided"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed before the data are read. `weights` are frozen at the first look.

    `bounds` is null if rewards were declared to be 0 or 1. `order` is the column of the time, "file" for the
    order of the rows, or null if the order means nothing. `unit` is what rewards are measured in.
    With `percent` the table has percentages, which are read as shares and shown in per cent.
    """

    question: str
    look: Literal["once", "any-time"]
    looks: int
    delta: float
    alpha: float
    goal: str
    bounds: tuple[float, float] | None
    weights: dict[str, float]
    weighted: str  # "equal", "rows" or "given"
    control: str | None
    margin: float
    simultaneous: bool
    seed: int
    orders: int
    order: str | None
    columns: dict[str, str]
    unit: str = ""
    percent: bool = False


class Test(msgspec.Struct, frozen=True):
    """The evidence against one claim about an option, and whether it is rejected.

    `pvalue` is there where Fisher's exact test decides; otherwise the claim is rejected if `evalue` is at
    least 1/`level`.
    """

    claim: str
    level: float
    evalue: float
    pvalue: float | None
    rejected: bool


class Option(msgspec.Struct, frozen=True):
    """One option: its rows, mean and interval on the user's scale, the tests of it, and its status.

    The status is "best", "in" or "out"; for the question control it is "better", "worse", "within", "open"
    or "control". `site` is set for the question each. `gap` is the lead over the control. There is no mean
    as long as no block of a look at any time is closed.
    """

    name: str
    site: str
    rows: int
    mean: float | None
    interval: tuple[float, float]
    status: str
    tests: list[Test]
    gap: float | None = None
    gap_interval: tuple[float, float] | None = None

    @property
    def evalue(self) -> float:
        """The evidence against "this is the best", or against the first claim; 1 if there is none."""
        return self.tests[0].evalue if self.tests else 1.0


class Lead(msgspec.Struct, frozen=True):
    """How far an option is ahead of the next best one, on the user's scale; positive is better.

    It is the best option, or the one with the best mean if none is found best. The interval is that of its
    lead over all other options at once. `site` is set for the question each.
    """

    site: str
    option: str
    over: str
    value: float
    interval: tuple[float, float]


class Counts(msgspec.Struct, frozen=True):
    """Recorded rewards as counts, in the user's unit: parallel lists of one entry per distinct value.

    With a `width`, values were rounded down to a grid of this step.
    """

    sites: list[str]
    options: list[str]
    site: list[int]
    option: list[int]
    value: list[float]
    count: list[int]
    width: float = 0.0

    @staticmethod
    def of(rows: Rows) -> Counts:
        return Counts(
            list(rows.sites),
            list(rows.options),
            rows.site.tolist(),
            rows.option.tolist(),
            rows.value.tolist(),
            rows.count.tolist(),
            rows.width,
        )

    def rows(self) -> Rows:
        """The same as arrays."""
        return Rows(
            tuple(self.sites),
            tuple(self.options),
            np.array(self.site, dtype=np.int64),
            np.array(self.option, dtype=np.int64),
            np.array(self.value, dtype=np.float64),
            np.array(self.count, dtype=np.int64),
            self.width,
        )

    @property
    def total(self) -> int:
        """How many rewards there are."""
        return sum(self.count)

    def contains(self, other: Counts) -> bool:
        """Whether each reward occurs at least as often as in other counts with the same names.

        >>> few, more = (Counts(["s"], ["a"], [0], [0], [1.0], [n]) for n in (2, 3))
        >>> more.contains(few), few.contains(more)
        (True, False)
        """
        own = dict(zip(zip(self.site, self.option, self.value, strict=True), self.count, strict=True))
        cells = zip(other.site, other.option, other.value, strict=True)
        return all(own.get(cell, 0) >= n for cell, n in zip(cells, other.count, strict=True))


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look: the rewards, and for each contest and claim the logarithm of the e-value, and a p-value."""

    counts: Counts
    log_evalues: list[list[float]]
    pvalues: list[list[float] | None]


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """The closed blocks of a look at any time.

    For each contest and block the numbers, sums, sums of squares, smallest and largest rewards on [0, 1] of
    each option at each site. `digest` is over the rows that were used, and `waiting` counts the others.
    """

    sites: list[str]
    options: list[str]
    cells: list[tuple[int, int]]
    used: list[int]
    digest: str
    waiting: int
    sums: list[list[list[list[list[float]]]]]

    def sums_of(self, contest: int) -> tuple[Sums, ...]:
        """The blocks of a contest as arrays."""
        return tuple(Sums(*np.array(block, dtype=np.float64)) for block in self.sums[contest])


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What recorded data show: the evidence about each option, the verdict, and what is promised.

    Parameters
    ----------
    kind : str
        What this file is: `evidence`.
    schema : int
        Version of this format.
    version : str
        Version of bestarm that made the record.
    source : str
        The table: a file's name, or what was given.
    settings : Settings
        What was fixed before the data were read.
    test : str
        `exact` if Fisher's exact tests decide, which the layout of the table says; else `e-value`.
    status : str
        Whether every question was answered.
    best : dict
        The best option: of each site for the question each, under the empty name otherwise; null if
        undecided.
    promise : str
        `withdrawn` if an alarm says that an assumption does not hold.
    options : list of Option
        Every option, with its evidence.
    leads : list of Lead
        How far the best option is ahead, or the one that leads; one per site for the question each, and none
        for the question control.
    rows : int
        Rewards that count.
    alarms : list of Alarm
        Assumptions that do not hold.
    checks : list of Check
        The sums behind the alarms.
    notes : list of str
        Remarks that do not affect the promise.
    looks : list of Look
        The counts and the evidence of each look; empty for looks at any time.
    blocks : Blocks or None
        The closed blocks of looks at any time; null otherwise.
    date : str
        A label: the day of the last look.
    digest : str
        SHA-256 over the rest.
    """

    kind: Literal["evidence"]
    schema: int
    version: str
    source: str
    settings: Settings
    test: str
    status: Status
    best: dict[str, str | None]
    promise: Literal["stands", "withdrawn"]
    options: list[Option]
    leads: list[Lead]
    rows: int
    alarms: list[Alarm]
    checks: list[Check]
    notes: list[str]
    looks: list[Look] = []
    blocks: Blocks | None = None
    date: str = ""
    digest: str = ""

    def __repr__(self) -> str:
        named = [f"{site or 'best'}: {name or 'undecided'}" for site, name in self.best.items()]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        found = ", ".join(named[:MOST_NAMED]) + more
        withdrawn = ", promise withdrawn" if self.promise == "withdrawn" else ""
        return f"Evidence({self.status}, {found}, {counted(self.rows, 'row')}{withdrawn})"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the object that ``bestarm evidence --json`` prints.

        Returns
        -------
        dict
            The record as dicts, lists, numbers and text.
        """
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, Any])

    def sealed(self) -> Evidence:
        """Return this record with its digest."""
        return msgspec.structs.replace(self, digest=digest(self))

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON.

        Parameters
        ----------
        path : str or Path
            The file to write.

        Returns
        -------
        Path
            The file that was written.
        """
        path = Path(path)
        write(path, as_json(self))
        return path

    @staticmethod
    def load(path: str | Path) -> Evidence:
        """Read a record that ``save`` wrote.

        Parameters
        ----------
        path : str or Path
            The file to read.

        Returns
        -------
        Evidence
            The record.

        Raises
        ------
        InputError
            If the file can't be read or is not such a record.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=Evidence)
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(
                f"this is not a record of evidence ({error})",
                where=str(path),
                fix="Choose a file that bestarm evidence wrote",
            ) from None

    def report(self, path: str | Path) -> Path:
        """Write a report as one HTML file.

        Parameters
        ----------
        path : str or Path
            The file to write.

        Returns
        -------
        Path
            The file that was written.
        """
        from bestarm.report.page import of_evidence, write

        return write(of_evidence(self), path)

    def _repr_html_(self) -> str:
        from bestarm.report.page import evidence_fragment

        return evidence_fragment(self)


def digest(evidence: Evidence) -> str:
    """SHA-256 over the canonical JSON of a record without its digest."""
    plain = msgspec.to_builtins(msgspec.structs.replace(evidence, digest=""))
    if not evidence.date:  # older records have none
        del plain["date"]
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def is_evidence(path: Path) -> bool:
    """Whether a file is a record of evidence."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return head.replace(b" ", b"").replace(b"\n", b"").startswith(b'{"kind":"evidence"')
