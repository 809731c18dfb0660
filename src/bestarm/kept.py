"""The journal of a run in one process: what was drawn, in order, so that it can be watched and can go on.

The header (problem, method, options, seed, network, liars) and the rewards lead to the whole run again; all
else is computed. An event ``rewards`` has the steps that the run took since the last one and the batches that
it drew in the last of them; ``end`` has the steps after the last batch. ``keep`` lets a run write one, and
first takes from it what an earlier process has drawn. ``Rerun`` is the run as a journal has it by now.
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

from bestarm.adversary import ATTACKS, Adversary, Attack
from bestarm.errors import InputError, shorten
from bestarm.journal import Event, Journal
from bestarm.network import Network
from bestarm.peers import NetworkRun
from bestarm.problem import Data, Problem
from bestarm.protocol import METHODS
from bestarm.protocol.options import make
from bestarm.record import plain_json
from bestarm.rewards import KINDS, Unknown, from_spec
from bestarm.simulate import Drawn, Run, run_of

KIND = "run"
REWARDS, END = "rewards", "end"
FLUSH_SECONDS = 0.2  # that rewards which a seed can draw again wait for others to go to the disk with

Batch = tuple[int, tuple[int, ...], int, tuple[float, ...], int]  # client, arms, times, sums, given


class Step(msgspec.Struct):
    """An event: so many steps, and what was drawn in the last of them."""

    steps: int
    drawn: list[Batch] = []


class Drew:
    """A source of rewards that first gives what was drawn before."""

    def __init__(self, where: Path, source: Drawn | None = None) -> None:
        self.where, self.source = where, source
        self.before: deque[Batch] = deque()
        self.fresh: list[Batch] = []

    def draw(self, client: int, arms: tuple[int, ...], times: int) -> tuple[tuple[float, ...], int]:
        if self.before:
            batch = self.before.popleft()
            if batch[:3] != (client, arms, times):
                self._refuse("its rewards are not those that this run asks for")
            _, _, _, sums, given = batch
            if self.source is not None and not self.source.agrees(client, arms, given, sums):
                self._refuse("it has other rewards than this seed gives")
            return sums, given
        if self.source is None:
            self._refuse("it lacks rewards that this run asks for")
        sums, given = self.source.draw(client, arms, times)
        self.fresh.append((client, arms, times, sums, given))
        return sums, given

    def demand_used(self) -> None:
        """InputError if there is something that nobody asked for."""
        if self.before:
            self._refuse("it has rewards that this run did not ask for")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"the journal does not lead to this run again: {what}",
            where=str(self.where),
            fix="Use the version of bestarm, and of NumPy, that wrote it",
        )


class Keeper:
    """Writes to the journal what a run draws: what a user's function gave at once, else now and then."""

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
        """The run has taken a step."""
        self.steps += 1
        if len(self.drew.before) < self.left:  # these are there already
            self.left, self.steps = len(self.drew.before), 0
        elif self.drew.fresh:
            self._add(REWARDS)
            if time.monotonic() - self.written >= self.pause:
                self.write()

    def end(self) -> None:
        """The run is over."""
        if not self.ended:
            self._add(END)
        self.write()

    def _add(self, kind: str) -> None:
        self.unwritten.append((kind, msgspec.json.encode(Step(self.steps, self.drew.fresh))))
        self.steps, self.drew.fresh = 0, []

    def write(self) -> None:
        """To the disk."""
        todo, self.unwritten = self.unwritten, []  # first: an interrupt must not write them twice
        self.journal.append_many(todo)
        self.written = time.monotonic()


def _step(event: Event) -> Step:
    return msgspec.json.decode(event.body, type=Step)


@contextlib.contextmanager
def keep(run: Run | NetworkRun, path: Path) -> Iterator[None]:
    """Let a run that has not begun write its journal, and go on from what is in it."""
    if path.suffix != ".db":
        raise InputError("this name is not a journal's", where=str(path), expected="a name such as run.db")
    header = plain_json(_header(run))
    journal = Journal.open(path, KIND) if path.exists() else Journal.create(path, KIND, header)
    with journal:
        others = [key for key, value in header.items() if journal.header.get(key) != value]
        if others:
            raise InputError(
                f"this is the journal of another run: it has another {', '.join(others)}",
                where=str(path),
                fix="Name another file, or run what it was written for",
            )
        assert isinstance(run.source, Drawn)
        keeper = Keeper(journal, run.source)
        run.source, run.stepped = keeper.drew, keeper.stepped
        try:
            yield
            keeper.end()
        finally:
            with contextlib.suppress(InputError):  # what went wrong before is told
                keeper.write()


def is_one(path: Path) -> bool:
    """Whether this is the journal of a run in process."""
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
    """A run as its journal has it: made from the header, and brought on event by event. Nothing is drawn."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        method, problem = header["method"], _problem(header)
        options = make(METHODS[method].options, header["options"], where="options")
        network = None if header["network"] is None else Network.from_dict(header["network"])
        liars = [Adversary(**keys) for keys in header["adversaries"]]
        if strange := {liar.attack for liar in liars} - set(ATTACKS):
            raise InputError(
                f"only the program that ran knows the attack {', '.join(map(shorten, sorted(strange)))}",
                where=str(path),
                fix="Report its record",
            )
        self.run = run_of(problem, method, options, header["seed"], network, adversaries=liars)
        self.drew = self.run.source = Drew(path)
        self.run.begin()

    def firsts(self) -> dict[int, int]:
        """The first honest client of each group that has one: its number, and the group's."""
        layout, run = self.run.problem.layout, self.run
        machines = run.peers if isinstance(run, NetworkRun) else run.clients
        found: dict[int, int] = {}
        for i, name in enumerate(layout.clients):
            if not isinstance(machines[i], Attack):
                found.setdefault(layout.group_of[name], i)
        return {i: j for j, i in found.items()}

    def replay(self, event: Event) -> list[Batch]:
        """An event of the journal takes place again; what was drawn in it."""
        step = _step(event)
        self.drew.before.extend(step.drawn)
        for _ in range(step.steps):
            self.run.step()
        self.drew.demand_used()
        return step.drawn


def _problem(header: dict[str, Any]) -> Problem:
    """The problem of a header. A user's function stands there without what it does."""
    layout, scale = Problem.layout_from_dict(header["problem"])
    specs: list[Any] = []
    for group in header["problem"]["groups"]:
        rows = group["rewards"]
        specs += rows * len(group["clients"]) if len(rows) == 1 else rows
    rewards = tuple(
        tuple(
            from_spec(spec) if spec and spec.get("kind") in KINDS else Unknown(mean)
            for spec, mean in zip(row, means, strict=True)
        )
        for row, means in zip(specs, header["means"], strict=True)
    )
    return Problem(layout, rewards, scale, Data.from_dict(header["problem"]))
