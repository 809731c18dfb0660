"""Facts that follow their source: a growing journal, or a file that is rewritten.

``Journalled`` folds a journal once and then applies new events: of a simulated run, a federation's server, a
client, or a mesh's node. The journal may not exist yet, its writer may be killed and restarted, and another
journal may replace it. Nothing is written or locked. ``Filed`` reads a record or a study again whenever its
file has changed. ``source`` chooses between them for a path.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bestarm.errors import InputError
from bestarm.records.record import Record
from bestarm.report import facts as collect
from bestarm.report.facts import Facts, RunFacts
from bestarm.report.forecaster import Forecast
from bestarm.simulate import run_journal as kept
from bestarm.study.trials import Trials
from bestarm.util.journal import Event, Journal

if TYPE_CHECKING:
    from bestarm.deploy.experiment.settings import Settings
    from bestarm.deploy.experiment.status import Status
    from bestarm.report.page.parts import Section
    from bestarm.stats.alarms import Alarm

JOURNAL = "journal.db"
OURS = ("federation.json", "client.json", "peer.json")  # every folder with a journal has one of them
STUDIES = (".csv", ".jsonl", ".parquet")
MARKS, FIRST_MARK = 8, 1024  # most folds kept for looking back, and events between them at first
MOST_TRACED = 2000  # clients of a run in process whose arms are followed
MOST_SUMS = 2 * collect.MOST_POINTS  # that are kept of one arm
AGAIN_SECONDS, LONGEST_SECONDS = 1.0, 60.0  # before an unusable journal is read again
BROKEN = (KeyError, TypeError, ValueError, RuntimeError, AssertionError, LookupError)  # by a forged journal


@dataclass(frozen=True)
class Underway:
    """A live experiment that is still running, as its own page shows it after the journal's last entry."""

    status: Status
    alarms: Sequence[Alarm]
    settings: Settings

    @property
    def title(self) -> str:
        """The title of the page."""
        from bestarm.report.experiment import headline

        return f"bestarm: {headline(self.status)}"

    def sections(self) -> list[Section]:
        """The sections of the experiment's own page."""
        from bestarm.report.experiment import sections_of

        return sections_of(self.status, self.alarms, self.settings)


@dataclass(frozen=True)
class Beginning:
    """A journal before its first event: the input of a new fold."""

    path: Path
    kind: str
    header: dict[str, Any]

    def events(self) -> Iterator[Event]:
        return iter(())

    def hash_before(self, seq: int) -> bytes:
        """The hash of all events before this one, from the file."""
        with Journal.open(self.path, self.kind, write=False) as journal:
            return journal.hash_before(seq)

    def read(self, seq: int) -> Event:
        """One event, from the file."""
        with Journal.open(self.path, self.kind, write=False) as journal:
            return journal.read(seq)


class Fold:
    """The state of a run, a server, a client or a node after some events of its journal."""

    def __init__(self, beginning: Beginning) -> None:
        self.count = 0
        self.sums: dict[Any, dict[int, float]] = {}  # for each arm: pulls that count -> their sum
        self.state: Any = _begin(beginning)
        self.server, self.run = beginning.kind == "federation-server", beginning.kind == kept.KIND
        self.peer = beginning.kind == "mesh-peer"
        self.experiment = beginning.kind == "experiment"
        self.traced = list(self.state.firsts())[:MOST_TRACED] if self.run else []

    def take(self, event: Event) -> None:
        """Apply one more event."""
        if self.run:
            for batch in self.state.replay(event):
                for arm, pulls, total in batch.totals:
                    if batch.client in self.traced:
                        self._add((batch.client, arm), pulls, total)
        else:
            if event.kind == "rewards" and not self.server and self.state.pull is not None:
                plain, pull = json.loads(event.body), self.state.pull
                times, sums = plain["times"], plain["sums"]
                for arm, share, total in zip(pull.arms, pull.each, sums, strict=bool(times)):
                    self._add(arm, times * share, total)
            self.state.replay(event)
        self.count += 1

    def _add(self, arm: Any, times: int, total: float) -> None:
        line = self.sums.setdefault(arm, {})
        n, before = next(reversed(line.items()), (0, 0.0))
        line[n + times] = before + total
        if len(line) > MOST_SUMS:  # drop every second one; keep the last
            kept = list(line.items())
            self.sums[arm] = dict(kept[1::2] if len(kept) % 2 == 0 else kept[::2])

    def facts(self) -> Facts | Underway:
        """The facts to show."""
        if self.run:
            return collect.of_rerun(self.state, self.sums)
        if self.server:
            return collect.of_desk(self.state)
        if self.experiment:
            return collect.of_experiment(self.state.engine) if self.state.engine.over else self._underway()
        return (
            collect.of_node(self.state, self.sums) if self.peer else collect.of_client(self.state, self.sums)
        )

    def _underway(self) -> Underway:
        from bestarm.deploy.experiment.alarms import Watch
        from bestarm.deploy.experiment.status import status_of

        engine = self.state.engine
        now = engine.now if math.isfinite(engine.now) else time.time()  # nobody has come yet
        return Underway(status_of(engine, now), Watch(engine).alarms(), engine.settings)

    def record(self) -> bytes | None:
        """The record, if there is one yet."""
        if self.run:
            run = self.state.run
            return msgspec.json.encode(run.record().to_dict()) if run.over else None
        if self.experiment:
            engine = self.state.engine
            return msgspec.json.encode(engine.record().to_dict()) if engine.over else None
        if not self.server or not self.state.done:
            return None
        return msgspec.json.encode(self.state.record().to_dict())


def _begin(beginning: Beginning) -> Any:
    """A fold's state before the first event. Only the needed modules are imported."""
    journal: Any = beginning
    folder, header = beginning.path.parent, beginning.header
    if beginning.kind == kept.KIND:
        return kept.Rerun(beginning.path, header)
    if beginning.kind == "federation-server":
        from bestarm.deploy.federation.desk import Desk

        return Desk(journal)
    if beginning.kind == "federation-client":
        from bestarm.deploy.federation.files import Place
        from bestarm.deploy.federation.site import Site

        place = Place.load(folder)
        _demand(header["run"] == place.setup.run.hex() and header["client"] == place.client, beginning)
        return Site(place, journal, speak=False)
    if beginning.kind == "mesh-peer":
        from bestarm.deploy.mesh import files
        from bestarm.deploy.mesh.node import Node

        node = files.Place.load(folder)
        same = header["name"] == node.name and header["hears"] == list(node.hears)
        _demand(same and files.terms_from_dict(header["setup"]) == node.setup, beginning)
        return Node(node, journal, speak=False)
    if beginning.kind == "experiment":
        from bestarm.deploy.experiment.ledger import Replay, settings_from

        return Replay(settings_from(header, str(beginning.path)))
    raise InputError(f'the journal of a "{beginning.kind}" can\'t be shown', where=str(beginning.path))


def _demand(same: bool, beginning: Beginning) -> None:
    if not same:
        raise InputError("this journal does not belong to the run of its folder", where=str(beginning.path))


class Journalled:
    """One fold that follows the journal at a path. Can be used from two threads."""

    replays = True

    def __init__(self, path: Path) -> None:
        self.path = path / JOURNAL if path.is_dir() else path
        self.epoch = 0  # number of the journal: a replacement gets the next number
        self.trouble = ""  # why it can't be followed now
        self.journal: Journal | None = None
        self.fold: Fold | None = None
        self.known = 0  # events in the journal
        self._identity: tuple[int, int] | None = None
        self._again, self._pause = 0.0, AGAIN_SECONDS
        self._guard = threading.Lock()
        self._marks: dict[int, bytes] = {}  # number of events -> fold of a server
        self._spacing = FIRST_MARK
        self._back: tuple[int, Fold] | None = None  # the fold that looks back, and its epoch
        self._back_guard = threading.Lock()
        self._seen: dict[str, float] = {}  # when a message of each client was seen to arrive
        self._current = False  # whether the journal was read to its end once

    @property
    def count(self) -> int:
        """Events applied so far."""
        return self.fold.count if self.fold else 0

    def catch_up(self, seconds: float = 1e9) -> bool:
        """Apply new events for a limited time; return whether anything has changed."""
        with self._guard:
            before = (self.epoch, self.count, self.known, self.trouble)
            try:
                self._reopen()
                if self.journal is not None and self.fold is not None and not self.trouble:
                    self._take(seconds)
            except InputError as error:
                self._lose(str(error))
            except BROKEN as error:
                self._lose(f"the journal can't be read as a run: {error}")
            return before != (self.epoch, self.count, self.known, self.trouble)

    def _take(self, seconds: float) -> None:
        assert self.journal is not None
        assert self.fold is not None
        until = time.monotonic() + seconds
        before = dict(self.fold.state.next) if self.fold.server and self._current else None
        self.known = max(self.known, len(self.journal))
        for event in self.journal.events(self.count) if self.count < self.known else ():
            self.fold.take(event)
            self._mark(self.fold)
            if self.count >= self.known or time.monotonic() > until:  # its writer may be faster
                break
        if before is not None:
            arrived = {who for who, n in self.fold.state.next.items() if n != before.get(who, 0)}
            self._seen |= dict.fromkeys(arrived, time.time())
        self._current = self._current or self.count >= self.known

    def seen(self) -> dict[str, float]:
        """When a message of each client was last seen to arrive; only what came while this was open."""
        with self._guard:
            return dict(self._seen)

    def _mark(self, fold: Fold) -> None:
        """Keep a copy of a server's fold now and then, because its signatures are slow to check again.

        Other folds have few signatures, and contain private keys, which must not be copied.
        """
        if fold.server and fold.count % self._spacing == 0:
            self._marks[fold.count] = zlib.compress(pickle.dumps(fold), 1)
            if len(self._marks) > MARKS:
                self._spacing *= 2
                self._marks = {n: kept for n, kept in self._marks.items() if n % self._spacing == 0}

    def _lose(self, trouble: str) -> None:
        """Handle an unusable journal: keep the known facts and retry less and less often."""
        self.trouble, self._again = trouble, time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_SECONDS)

    def _reopen(self) -> None:
        """Open the journal if it is not open or has been replaced."""
        identity = None
        with contextlib.suppress(OSError):
            found = os.stat(self.path)
            identity = (found.st_dev, found.st_ino)
        if identity is None:
            return  # does not exist (any more): keep the known facts
        if identity == self._identity and (not self.trouble or time.monotonic() < self._again):
            return
        if identity != self._identity:
            self._pause = AGAIN_SECONDS
        self.close()  # only now: while it was open, no other file could have its inode number
        self._identity = identity
        self.journal = Journal.open(self.path, write=False)
        beginning = Beginning(self.path, self.journal.kind, self.journal.header)
        fold = Fold(beginning)
        self.fold, self.known, self.trouble, self.epoch = fold, 0, "", self.epoch + 1
        self._marks, self._spacing = {}, FIRST_MARK
        self._seen, self._current = {}, False

    def close(self) -> None:
        """Close the file."""
        if self.journal is not None:
            self.journal.close()
        self.journal, self._identity = None, None

    def facts(self) -> Facts | Underway | None:
        """What can be shown by now; None if there is nothing yet."""
        with self._guard:
            return self.fold.facts() if self.fold else None

    def forecast(self, facts: RunFacts) -> Forecast | None:
        """The forecast for these facts; a server gets another one when its rounds have doubled."""
        with self._guard:
            journal, epoch, fold = self.journal, self.epoch, self.fold
        if journal is None or fold is None:
            return None
        if fold.run:
            beginning = Beginning(self.path, journal.kind, journal.header)
            return Forecast(epoch, 0, lambda stop: collect.going_plan(Fold(beginning).state.run, stop))
        if not facts.rounds:
            return None
        return Forecast(epoch, facts.rounds.bit_length(), lambda stop: collect.as_it_looks(facts, stop))

    def record(self) -> bytes | None:
        """The record, if this is the server of a finished run."""
        with self._guard:
            return self.fold.record() if self.fold else None

    def at(self, n: int, stop: Callable[[], bool] = lambda: False) -> Facts | Underway | None:
        """The facts after n events, or None if stopped. Starts from the last such fold or a kept copy."""
        with self._back_guard:
            with self._guard:
                journal, epoch = self.journal, self.epoch
                n = min(n, self.count)
                mark = max((k for k in self._marks if k <= n), default=0)
                kept = self._marks.get(mark)
            if journal is None or stop():
                return None
            if self._back is None or self._back[0] != epoch or not mark <= self._back[1].count <= n:
                if kept is not None:
                    begun: Fold = pickle.loads(zlib.decompress(kept))
                else:
                    begun = Fold(Beginning(self.path, journal.kind, journal.header))
                self._back = (epoch, begun)
            fold = self._back[1]
            if fold.count < n:
                for event in journal.events(fold.count):
                    fold.take(event)
                    if fold.count == n:
                        break
                    if stop():
                        return None
            return fold.facts()

    def quiet(self) -> float | None:
        """Seconds since the last write; None if there is no file."""
        written = []
        for path in (self.path, Path(f"{self.path}-wal")):
            with contextlib.suppress(OSError):
                written.append(path.stat().st_mtime)
        return max(0.0, time.time() - max(written)) if written else None


class Filed:
    """A record or a study, read again whenever its file has changed."""

    replays = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.epoch, self.count, self.known, self.trouble = 0, 0, 0, ""
        self._seen: tuple[int, int, int] | None = None
        self._facts: Facts | None = None
        self._record: bytes | None = None

    def catch_up(self, seconds: float = 1e9) -> bool:
        """Read the file if it has changed; return whether it has."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            if self.path.suffix in STUDIES:
                self._facts = collect.of_trials(Trials.load(self.path))
            else:
                record = Record.load(self.path)
                self._facts = collect.of_record(record)
                self._record = msgspec.json.encode(record.to_dict())
            self.epoch, self.trouble = self.epoch + 1, ""
        except InputError as error:  # it may be half written
            self.trouble = str(error)
        return True

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def facts(self) -> Facts | None:
        """What can be shown by now; None if there is nothing yet."""
        return self._facts

    def record(self) -> bytes | None:
        """The record as a file; a study has none."""
        return self._record

    def forecast(self, facts: RunFacts) -> None:
        """Return None: what a file has is over."""

    def seen(self) -> dict[str, float]:
        """Return nothing: a file has no clients."""
        return {}

    def at(self, n: int, stop: Callable[[], bool] = lambda: False) -> Facts | None:
        """Return None: a file has no earlier moments."""
        return self._facts

    def quiet(self) -> float | None:
        """Seconds since it was written."""
        with contextlib.suppress(OSError):
            return max(0.0, time.time() - self.path.stat().st_mtime)
        return None


def source(path: str | Path) -> Journalled | Filed:
    """The source for this path. A journal or a record may appear later; its folder must exist."""
    path = Path(path)
    if path.is_dir():
        if (path / "mesh.json").is_file():
            raise InputError(
                "this is a whole mesh", where=str(path), fix=f"Name one of its nodes: {path / 'nodes'}/…"
            )
        if not any((path / name).is_file() for name in (JOURNAL, *OURS)):
            raise InputError(
                "there is no run here",
                where=str(path),
                expected="the folder of a federation's server, of a client or of a mesh node",
            )
        return Journalled(path)
    known = (".db", ".json", *STUDIES)
    if path.suffix not in known or not path.parent.is_dir():
        raise InputError(
            "there is nothing to watch here",
            where=str(path),
            expected=f"a folder, or a file that ends with {', '.join(known)}",
        )
    return Journalled(path) if path.suffix == ".db" else Filed(path)
