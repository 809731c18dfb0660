"""The journal of a run in one process: the rewards in order, so that the run can be watched and resumed.

The header (problem, method, options, seed, network, liars) and the rewards determine the whole run;
everything else is computed. An event ``rewards`` contains the number of steps since the previous event and
the batches drawn in the last of them; ``end`` contains the number of steps after the last batch. ``keep``
makes a run write a journal, after it has replayed what an earlier process drew. ``Rerun`` replays the run as
far as the journal goes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.problem import Problem
from bestarm.problem.reward_specs import KINDS, from_spec
from bestarm.problem.rewards import RewardModel, Unknown
from bestarm.protocol.events import Pull, Pulled
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.records.record import plain_json
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.draw import Drawn
from bestarm.simulate.identify import run_of
from bestarm.simulate.lying_client import ATTACKS, Attack
from bestarm.simulate.network import Network
from bestarm.simulate.network_run import NetworkRun
from bestarm.simulate.run import Run
from bestarm.util.journal import Event, Journal
from bestarm.util.text import shorten

KIND = "run"
REWARDS, END = "rewards", "end"
FLUSH_SECONDS = 0.2  # how long rewards that the seed can reproduce are buffered before they are written


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """The rewards of a client: what it asked for, how often that was `given`, and the moments if it asked.

    In the journal it is a list, without the fields after `given` that it does not need.
    """

    client: int
    arms: tuple[int, ...]
    times: int
    sums: tuple[float, ...]
    given: int
    shares: tuple[int, ...] = ()
    squares: tuple[float, ...] = ()
    least: tuple[float, ...] = ()
    most: tuple[float, ...] = ()
    against: int | None = None
    pairs: tuple[tuple[float, float, float, float], ...] = ()

    @classmethod
    def of(cls, client: int, pull: Pull, times: int, pulled: Pulled | None) -> Batch:
        """The batch of a pull that was to be carried out `times` times."""
        got = pulled or Pulled((), 0)
        moments = (got.squares, got.least, got.most)
        asked = (client, pull.arms, times, got.sums, got.times, pull.shares)
        return cls(*asked, *moments, pull.against, got.pairs)

    @property
    def pulled(self) -> Pulled | None:
        """What the client got."""
        if not self.given:
            return None
        return Pulled(self.sums, self.given, self.squares, self.least, self.most, self.pairs)

    @property
    def totals(self) -> Iterator[tuple[int, int, float]]:
        """For each arm its number, its pulls, and the sum of their rewards."""
        if self.given:
            each = Pull(self.arms, self.times, self.shares).each
            for arm, share, total in zip(self.arms, each, self.sums, strict=True):
                yield arm, self.given * share, total

    def plain(self) -> tuple[object, ...]:
        """The fields that the journal needs."""
        fields = 11 if self.against is not None else 9 if self.squares else 6 if self.shares else 5
        return msgspec.structs.astuple(self)[:fields]


class Step(msgspec.Struct):
    """An event: a number of steps, and the batches drawn in the last of them."""

    steps: int
    drawn: list[Batch] = []


class Drew:
    """A source of rewards that first replays what was drawn before."""

    def __init__(self, where: Path, source: Drawn | None = None) -> None:
        self.where, self.source = where, source
        self.before: deque[Batch] = deque()
        self.fresh: list[Batch] = []

    def draw(self, client: int, pull: Pull, times: int) -> Pulled | None:
        if self.before:
            batch = self.before.popleft()
            pulled = batch.pulled
            other = pulled is not None and bool(pulled.squares) != pull.moments
            if other or batch != Batch.of(client, pull, times, pulled):
                self._refuse("its rewards are not those that this run asks for")
            if self.source is not None and not self.source.agrees(client, pull, pulled):
                self._refuse("its rewards differ from those of this seed")
            return pulled
        if self.source is None:
            self._refuse("it lacks rewards that this run asks for")
        pulled = self.source.draw(client, pull, times)
        self.fresh.append(Batch.of(client, pull, times, pulled))
        return pulled

    def demand_used(self) -> None:
        """InputError if there are rewards left that the run did not ask for."""
        if self.before:
            self._refuse("it has rewards that this run did not ask for")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"the journal does not reproduce this run: {what}",
            where=str(self.where),
            fix="Use the versions of bestarm and NumPy that wrote it",
        )


class Keeper:
    """Writes the rewards of a run to the journal: those of a user's function at once, others in batches."""

    def __init__(self, journal: Journal, source: Drawn) -> None:
        self.journal, self.drew = journal, Drew(journal.path, source)
        self.steps, self.ended = 0, False
        again = all(model.spec() is not None for row in source.problem.rewards for model in row)
        self.pause = FLUSH_SECONDS if again else 0.0
        self.unwritten: list[tuple[str, bytes]] = []
        self.written = time.monotonic()
        for event in journal.events():
            self.drew.before.extend(_step(event).drawn)
            self.ended = event.kind == END
        self.left = len(self.drew.before)

    def stepped(self) -> None:
        """Note that the run has taken a step."""
        self.steps += 1
        if len(self.drew.before) < self.left:  # replayed, so already in the journal
            self.left, self.steps = len(self.drew.before), 0
        elif self.drew.fresh:
            self._add(REWARDS)
            if time.monotonic() - self.written >= self.pause:
                self.write()

    def end(self) -> None:
        """Note that the run is over."""
        if not self.ended:
            self._add(END)
        self.write()

    def _add(self, kind: str) -> None:
        body = {"steps": self.steps, "drawn": [batch.plain() for batch in self.drew.fresh]}
        self.unwritten.append((kind, msgspec.json.encode(body)))
        self.steps, self.drew.fresh = 0, []

    def write(self) -> None:
        """Write buffered events to the disk."""
        todo, self.unwritten = self.unwritten, []  # first: an interrupt must not write them twice
        self.journal.append_many(todo)
        self.written = time.monotonic()


def _step(event: Event) -> Step:
    return msgspec.json.decode(event.body, type=Step)


@contextlib.contextmanager
def keep(run: Run | NetworkRun, path: Path) -> Iterator[None]:
    """Make a run that has not started write a journal, and resume from what the journal contains."""
    if path.suffix != ".db":
        raise InputError("not a valid name for a journal", where=str(path), expected="a name such as run.db")
    header = plain_json(_header(run))
    journal = Journal.open(path, KIND) if path.exists() else Journal.create(path, KIND, header)
    with journal:
        others = [key for key, value in header.items() if journal.header.get(key) != value]
        if others:
            raise InputError(
                f"this is the journal of another run: it differs in {', '.join(others)}",
                where=str(path),
                fix="Choose another file, or use the settings that it was written with",
            )
        assert isinstance(run.source, Drawn)
        keeper = Keeper(journal, run.source)
        run.source, run.stepped = keeper.drew, keeper.stepped
        try:
            yield
            keeper.end()
        finally:
            with contextlib.suppress(InputError):  # do not hide the first error
                keeper.write()


def is_one(path: Path) -> bool:
    """Whether this file is the journal of a run in process."""
    with Journal.open(path, write=False) as journal:
        return journal.kind == KIND


def seed_of(path: Path) -> int | None:
    """The seed of the run whose journal this is; None if there is no journal yet."""
    if not path.exists():
        return None
    with Journal.open(path, KIND, write=False) as journal:
        seed: int = journal.header["seed"]
        return seed


def _header(run: Run | NetworkRun) -> dict[str, Any]:
    problem = run.problem
    return {
        "problem": problem.to_dict(),
        "means": [[model.mean for model in row] for row in problem.rewards],
        "method": run.method,
        "options": dataclasses.asdict(run.options),
        "seed": run.seed,
        "adversaries": [adversary.to_dict(problem.layout) for adversary in run.adversaries],
        "network": run.network.to_dict() if isinstance(run, NetworkRun) else None,
    }


class Rerun:
    """A run rebuilt from its journal, event by event. Nothing is drawn."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        method, problem = header["method"], _problem(header)
        options = make(METHODS[method].options, header["options"], where="options")
        network = None if header["network"] is None else Network.from_dict(header["network"])
        liars = [Adversary(**keys) for keys in header["adversaries"]]
        if strange := {liar.attack for liar in liars} - set(ATTACKS):
            raise InputError(
                f"the attack {', '.join(map(shorten, sorted(strange)))} is not defined in this program",
                where=str(path),
                fix="Use the record of the run for a report",
            )
        self.run = run_of(problem, method, options, header["seed"], network, adversaries=liars)
        self.drew = self.run.source = Drew(path)
        self.run.begin()

    def firsts(self) -> dict[int, int]:
        """The first honest client of each group that has one: client number -> group number."""
        layout, run = self.run.problem.layout, self.run
        machines = run.peers if isinstance(run, NetworkRun) else run.clients
        found: dict[int, int] = {}
        for i, name in enumerate(layout.clients):
            if not isinstance(machines[i], Attack):
                found.setdefault(layout.group_of[name], i)
        return {i: j for j, i in found.items()}

    def replay(self, event: Event) -> list[Batch]:
        """Replay an event of the journal, and return the batches drawn in it."""
        step = _step(event)
        self.drew.before.extend(step.drawn)
        for _ in range(step.steps):
            self.run.step()
        self.drew.demand_used()
        return step.drawn


def _problem(header: dict[str, Any]) -> Problem:
    """The problem of a header. Arms of a user's function become ``Unknown``."""
    layout, scale = Problem.layout_from_dict(header["problem"])
    rewards: list[tuple[RewardModel, ...]] = []
    for group in header["problem"]["groups"]:
        means = header["means"][len(rewards) :]
        rows = [
            tuple(
                from_spec(spec) if spec and spec.get("kind") in KINDS else Unknown(mean)
                for spec, mean in zip(row, own, strict=True)
            )
            for row, own in zip(group["rewards"], means, strict=False)
        ]
        rewards.extend(rows * len(group["clients"]) if len(rows) == 1 else rows)
    return Problem(layout, tuple(rewards), scale, Data.from_dict(header["problem"]))
