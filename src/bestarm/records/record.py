"""The record of one run.

A record can be saved, loaded, and reduced to what the server may know. ``bestarm.records.verify`` checks it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.protocol.summaries import RefusedSummary, Summary
from bestarm.protocol.verdict import Verdict
from bestarm.util.dates import today
from bestarm.util.files import as_json, write
from bestarm.util.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = 1
GOING = Verdict(status="undecided")  # of a run that is not over
INLINE_CLIENTS = 1000  # above this, the clients' part of the certificate goes to a side file


class Pulls(msgspec.Struct, frozen=True):
    """Pulls of all clients together, in each phase, of the busiest client, and of each client."""

    total: int
    phase1: int
    phase2: int
    max_per_client: int
    by_client: dict[str, int]


class Bits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Payload bits as encoded. A broadcast counts once; between peers each edge counts, as `up`.

    `after` counts messages that describe the answer after it is known: the mean of the winner, and the
    clients' summaries. Neither `up` nor studies include it. Between peers, each summary takes every edge.
    """

    up: int
    down: int
    after: int = 0


class Visitors(msgspec.Struct, frozen=True, kw_only=True):
    """The subjects of a live experiment: how many were given an option, and how many rewards came.

    `filled` of the rewards that count did not come by their deadline, and count as the value for that.
    """

    assigned: int
    told: int
    filled: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one run.

    Means in `verdict` are on the user's scale; means in its certificate are on [0, 1].

    Parameters
    ----------
    simulation : str
        A sentence, if rewards were drawn from a file with replacement: how many draws, from how many rows.
    schema : int
        Version of this format.
    version : str
        Version of bestarm that made the record.
    method : str
        Name of the method.
    delta : float
        The error probability that was asked for.
    seed : int or None
        The seed; null in a deployed run.
    options : dict
        All options of the method.
    problem : dict
        The problem as it takes to run it again. `scale` has `low` and `high` (numbers), `goal` (text) and, if
        given, `privacy` (number) and `unit` (text). `finite` (true or false) says whether rewards can run
        out. Each of `groups` has `name` (text), `clients` and `arms` (lists of text), `binary` (true or
        false) and `rewards` (null where they can't be stored). If several sites are asked about, `question`
        has the keys of the question, and `paired` is true for pairs. With data from a file, `data` has `csv`
        (the file's name), `reward` (the column), `rows`, `rewards`, `resample`, `skipped`, `counts`,
        `shuffled` and `notes`.
    verdict : Verdict
        The answer. In a network, that of the honest peers, if they all agree.
    rounds : int
        Exchanges with the server; in Fed-SEL the Phase I reports are the first, and Phase II has the others.
    pulls : Pulls or None
        How many pulls were made; null where the server does not know it.
    bits : Bits
        How many bits the messages hold.
    wire_bytes : int
        Bytes of all payloads, padding included.
    proven_faulty : list of dict
        Clients that sent what no honest client can send: `client` (text), `round` (integer), `reason` (text)
        and, without a server, `by` (text), the peer that found it.
    good_event : bool or None
        Whether the event occurred on which the promise rests: in Fed-SEL every mean that a decision used was
        within its radius; in Fed-Bet and Fed-Fisher the best arm was never dropped. Null if unknown.
    warnings : list of dict
        What a reader of the verdict must know: `group` (text), `round` (integer) and `text` (text).
    adversaries : list of dict
        Simulated liars: `group` (text), `clients` (list of text), `attack` (text) and its `options` (object).
    peers : dict or None
        Without a server: the verdict of each honest peer. The record of one peer of a mesh has only its own.
    network : dict or None
        Without a server: the network. `nodes` (integer), `names` (list of text or null), `edges` (list of
        [integer, integer]), `delay`, `loss` and `start` (numbers), `crashes` (integer), `broken` (text or
        null) and `messages` (integer). Null in the record of one peer of a mesh.
    evidence : list of dict
        Proof that a client signed two different messages with the same number: `accused` and `topic` (text),
        `sequence` (integer), and both signed envelopes as hex in `first` and `second` (text).
    interrupted : bool
        Whether the run was stopped before its end.
    time : int or None
        The simulator's clock at the verdict: each client makes one pull per step, all in parallel, and
        messages take no time unless the network has a delay. Without a server, when the last honest peer
        decides. Null in a deployed run.
    summaries : dict or None
        What each client sent after the verdict about all its arms; null with `summaries = false`. No verdict
        depends on it.
    refused_summaries : list of RefusedSummary
        Summaries that no rewards have, second ones, and those of clients that are proven faulty. They do not
        count.
    visitors : Visitors or None
        The subjects of a live experiment; left out of the JSON of other runs.
    name : str
        A label: the scenario's file, for a record of `bestarm run`; what was given to `identify`.
    date : str
        A label: the day of the run; of a deployed run, the day on which it was set up; of a live experiment,
        that of its first assignment.
    digest : str
        SHA-256 over the rest; an empty `evidence`, empty `answers` and a null `time` are left out.
    """

    simulation: str = ""
    schema: int
    version: str
    method: str
    delta: float
    seed: int | None
    options: dict[str, Any]
    problem: dict[str, Any]
    verdict: Verdict
    rounds: int
    pulls: Pulls | None
    bits: Bits
    wire_bytes: int
    proven_faulty: list[dict[str, Any]]
    good_event: bool | None
    warnings: list[dict[str, Any]] = []
    adversaries: list[dict[str, Any]] = []
    peers: dict[str, Verdict] | None = None
    network: dict[str, Any] | None = None
    evidence: list[dict[str, Any]] = []
    interrupted: bool = False
    time: int | None = None
    summaries: dict[str, Summary] | None = None
    refused_summaries: list[RefusedSummary] = []
    visitors: Visitors | None = None
    name: str = ""
    date: str = ""
    digest: str = ""

    def __repr__(self) -> str:
        pulls = "" if self.pulls is None else f", {counted(self.pulls.total, 'pull')}"
        rounds = f"{self.rounds:,} round" + "s" * (self.rounds != 1)
        time = "" if self.time is None else f", time {self.time:,}"
        bits = self.bits.up + self.bits.down
        return f"Record({self.method}, {self.verdict!r}{pulls}, {rounds}{time}, {bits:,} bits)"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the object that `bestarm run --json` prints.

        Returns
        -------
        dict
            The record as dicts, lists, numbers and text.
        """
        plain = plain_json(self)
        if not self.simulation:
            del plain["simulation"]
        if self.visitors is None:
            del plain["visitors"]
        return plain

    def sealed(self) -> Record:
        """Return this record with its digest."""
        return msgspec.structs.replace(self, digest=digest(self.to_dict()))

    def labelled(self, name: str) -> Record:
        """Return this record with a name and today's date; without a name it has neither."""
        return msgspec.structs.replace(self, name=name, date=today()).sealed() if name else self

    def public(self) -> Record:
        """Reduce the record to what the server may know.

        The seed, the true means and the clients' part are removed; of the clients it keeps only what they
        sent.

        Returns
        -------
        Record
            The reduced record, with a new digest.
        """
        problem = {
            **self.problem,
            "groups": [{k: v for k, v in g.items() if k != "rewards"} for g in self.problem["groups"]],
        }
        certificate, data = {**self.verdict.certificate, "local": None}, Data.from_dict(problem)
        verdict = msgspec.structs.replace(self.verdict, certificate=certificate)
        return msgspec.structs.replace(
            self,
            seed=None,
            pulls=None,
            good_event=None,
            adversaries=[],
            problem=problem,
            verdict=verdict,
            simulation="" if data is None else data.simulation(None),
        ).sealed()

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON.

        With more than 1,000 clients, the clients' part goes to a second file next to it.

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
        plain = self.to_dict()
        local = plain["verdict"]["certificate"].get("local")
        if local is not None and len(local) > INLINE_CLIENTS:
            side = path.with_name(path.stem + ".local.json")
            write(side, as_json(local))
            plain["verdict"]["certificate"] |= {"local": None, "local_file": side.name}
        write(path, as_json(plain))
        return path

    @staticmethod
    def load(path: str | Path) -> Record:
        """Read a record that ``save`` wrote.

        Parameters
        ----------
        path : str or Path
            The file to read.

        Returns
        -------
        Record

        Raises
        ------
        InputError
            If the file can't be read or is not a record.
        """
        path = Path(path)
        plain = _read(path)
        try:
            certificate = plain["verdict"]["certificate"]
            if "local_file" in certificate:
                side = path.with_name(Path(str(certificate.pop("local_file"))).name)
                certificate["local"] = _read(side)
            return msgspec.convert(plain, Record)
        except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            raise InputError(
                f"this is not a bestarm record ({error})",
                where=str(path),
                fix="Choose a file that bestarm saved",
            ) from None

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the race: the wealth of the bets, or the intervals (needs ``bestarm[report]``).

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from bestarm.report.plots import race

        return race(self, ax)

    def report(self, path: str | Path, *, quick: bool = False) -> Path:
        """Write a report as one HTML file.

        Parameters
        ----------
        path : str or Path
            The file to write.
        quick : bool
            Whether to omit what needs more runs: the plan and the traces of the arms.

        Returns
        -------
        Path
            The file that was written.
        """
        from bestarm.report import page

        return page.write(page.of_record(self, quick=quick), path)

    def _repr_html_(self) -> str:
        from bestarm.report.page import record_fragment

        return record_fragment(self)


def plain_json(value: object) -> dict[str, Any]:
    """A struct or a dict after a round trip through JSON: lists for tuples, dicts for structs."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def digest(plain: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a record without its digest."""
    # Without these fields, which older records lack, the digest equals theirs.
    rest = {
        k: v
        for k, v in plain.items()
        if k != "digest"
        and (v or k not in ("evidence", "simulation", "refused_summaries", "name", "date"))
        and (v is not None or k not in ("time", "summaries", "visitors"))
    }
    rest["verdict"] = _without_answers(plain["verdict"])
    if isinstance(peers := plain.get("peers"), Mapping):
        rest["peers"] = {name: _without_answers(verdict) for name, verdict in peers.items()}
    return hashlib.sha256(msgspec.json.encode(rest, order="sorted")).hexdigest()


def _without_answers(verdict: Any) -> Any:
    """A verdict without the fields that only questions about several sites fill; it may be forged."""
    if not isinstance(verdict, Mapping):
        return verdict
    rest = {key: value for key, value in verdict.items() if value or key != "answers"}
    if isinstance(answers := rest.get("answers"), list):
        rest["answers"] = [_without_lead(answer) for answer in answers]
    return rest


def _without_lead(answer: Any) -> Any:
    """An answer without the fields of its lead, if it has none."""
    if not isinstance(answer, Mapping):
        return answer
    return {k: v for k, v in answer.items() if v is not None or k not in ("over", "lead", "lead_interval")}


def _read(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"can't be read: {error.strerror}",
            where=str(path),
            fix="Check the path; bestarm run … --out FILE writes a record",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is not JSON ({error})", where=str(path)) from None
