"""Carries out requests: each is in the journal before it takes effect; those that wait share a write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.assignments import Assignments, Outcome
from bestarm.deploy.experiment.settings import check_reward
from bestarm.deploy.experiment.tokens import Tokens
from bestarm.errors import InputError
from bestarm.util.journal import Journal
from bestarm.util.text import nearest, shorten

MOST = 10_000  # assignments or rewards in one call
MOST_KEY = 200  # characters of a key
MOST_CALLER = 100  # and of what tells the keys of callers apart
REMEMBERED = 7 * 86_400.0  # seconds that a key is remembered


class ExperimentOver(InputError):
    """The experiment has ended, and its setting after="stop" gives nobody an option any more."""


class SecondReward(InputError):
    """A token has another reward already."""


class OtherRequest(InputError):
    """A key was used for another request."""


class Assignment(msgspec.Struct, frozen=True):
    """What a subject is given.

    Attributes
    ----------
    option : str
        The name of the option.
    token : str
        What to tell the reward with.
    """

    option: str
    token: str


class Answered(NamedTuple):
    """An earlier request that had a key: when it came, what it asked for, and the assignments."""

    time: float
    site: int
    times: int
    assigned: list[Assignment]


@dataclass(eq=False)
class Request:
    """Something that is asked of an experiment, and what came of it."""

    site: str | None = None
    times: int = 1
    key: str = ""
    rewards: Sequence[tuple[str, float]] = ()
    entry: ledger.Entry | None = None
    assigned: list[Assignment] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    error: InputError | None = None
    done: bool = False


class Clerk:
    """The requests of an experiment, or of one site of a federation. Can be used from any thread."""

    def __init__(self, engine: Assignments, journal: Journal | None, clock: Callable[[], float]) -> None:
        self.settings, self._engine, self._journal, self._clock = engine.settings, engine, journal, clock
        self._tokens = Tokens(self.settings.key)
        self._keys: dict[str, Answered] = {}  # the oldest first
        self._queue: list[Request] = []
        self._queueing, self.working = threading.Lock(), threading.RLock()
        self._closed = False
        try:
            for entry in ledger.entries(journal) if journal is not None else ():
                self._apply(Request(entry=entry))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the journal."""
        with self.working:
            self._closed = True
            if self._journal is not None:
                self._journal.close()

    def run(self, requests: Sequence[Request]) -> None:
        """Carry out requests in order, with one write to the disk; each has its results or its error."""
        with self.working:
            now, fresh, told = self._clock(), list[Request](), dict[int, float]()
            if self._closed:
                raise InputError("the experiment is closed", fix="Open it again from its journal")
            if self._engine.due(now):
                fresh.append(Request(entry=ledger.Tick(now)))
            for request in requests:
                try:
                    request.entry = self._entry(request, now, told)
                    fresh.append(request)
                except InputError as error:
                    request.error = error
            self.commit(fresh)
            for request in requests:
                request.done = True

    def one(self, request: Request) -> Request:
        """Carry out one request, with those of other threads that wait for the disk."""
        with self._queueing:
            self._queue.append(request)
        with self.working:
            if not request.done:
                with self._queueing:
                    waiting, self._queue = self._queue, []
                self.run(waiting)
        if request.error is not None:
            raise request.error
        return request

    def _entry(self, request: Request, now: float, told: dict[int, float]) -> ledger.Entry | None:
        """What the journal notes about a request; None if it changes nothing. InputError if it is invalid."""
        if request.site is None:
            return self._tell_entry(request, now, told)
        site, times, key = self.site(request.site), request.times, request.key
        if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= MOST:
            raise InputError(f"{shorten(times)} assignments", expected=f"a whole number from 1 to {MOST:,}")
        if not isinstance(key, str) or len(key) > MOST_KEY + MOST_CALLER + 1:
            raise InputError(f"key {shorten(key)}", expected=f"at most {MOST_KEY} characters")
        if self._known(key, now):
            self._demand_same(key, site, times)
            return None
        if self._engine.ended(site) and self.settings.after == "stop":
            raise ExperimentOver(self._why_ended(site), expected="no more assignments")
        return ledger.Ask(now, site, times, key)

    def _why_ended(self, site: int) -> str:
        name = self._engine.problem.layout.groups[site].name
        if self._engine.over:
            return "the experiment is over"
        return f"{name} was dropped" if self._engine.dropped_site(site) else f"the answer of {name} is known"

    def _tell_entry(self, request: Request, now: float, told: dict[int, float]) -> ledger.Tell:
        """The rewards of a request, all of them valid."""
        if len(request.rewards) > MOST:
            raise InputError(f"{len(request.rewards):,} rewards", expected=f"at most {MOST:,} at once")
        rewards, engine, own = list[tuple[int, float]](), self._engine, dict[int, float]()
        for place, (token, value) in enumerate(request.rewards):
            try:
                number, reward = self._read(token, value)
                known = own.get(number, told.get(number, engine.reward[number]))
                if known == known and known != reward:
                    raise SecondReward(
                        f"a second reward of {reward:g}",
                        where=f"token {token}",
                        expected=f"{known:g}, as before",
                    )
            except InputError as error:
                if len(request.rewards) == 1:
                    raise
                raise error.at(f"rewards[{place}], so none of the {len(request.rewards):,} counts") from None
            own[number] = reward
            rewards.append((number, reward))
        told.update(own)
        return ledger.Tell(now, rewards)

    def _read(self, token: str, value: float) -> tuple[int, float]:
        """The number of an assignment, and its reward."""
        number = self._tokens.read(token)
        if number >= len(self._engine.time):
            raise InputError("its assignment is not in the journal", where=f"token {shorten(token)}")
        return number, check_reward(value, self.settings, token)

    def commit(self, requests: Sequence[Request]) -> None:
        """Write the entries of requests to the journal, then let them take effect."""
        with self.working:
            if self._journal is not None:
                self._journal.append_many([ledger.packed(entry) for entry in self._news(requests)])
            for request in requests:
                self._apply(request)

    def _news(self, requests: Sequence[Request]) -> Iterator[ledger.Entry]:
        """What the journal does not have yet: nothing that is repeated is written again."""
        rewards, told, keys = self._engine.reward, set[int](), set[str]()
        for entry in (request.entry for request in requests):
            if isinstance(entry, ledger.Tell):
                fresh = dict[int, float]()
                for number, reward in entry.rewards:
                    if rewards[number] != rewards[number] and number not in told:  # NaN: not told yet
                        fresh[number] = reward
                        told.add(number)
                if fresh:
                    yield ledger.Tell(entry.time, list(fresh.items()))
            elif isinstance(entry, ledger.Ask) and entry.key:
                if entry.key not in keys:
                    yield entry
                keys.add(entry.key)
            elif entry is not None:
                yield entry

    def _apply(self, request: Request) -> None:
        """Let an entry take effect, and note the results."""
        entry = request.entry
        if entry is None:
            request.assigned = self._keys[request.key].assigned
            return
        arms = self._engine.problem.layout.groups
        if isinstance(entry, ledger.Ask):
            if self._known(entry.key, entry.time):  # twice in one write
                try:
                    self._demand_same(entry.key, entry.site, entry.times)
                except OtherRequest as error:
                    request.error = error
                else:
                    request.assigned = self._keys[entry.key].assigned
                return
            own = arms[entry.site].arms
            given = [self._engine.ask(entry.time, entry.site) for _ in range(entry.times)]
            request.assigned = [Assignment(own[g.arm], self._tokens.make(g.number)) for g in given]
            if entry.key:
                self._remember(entry, request.assigned)
        elif isinstance(entry, ledger.Tell):
            request.outcomes = [self._engine.tell(entry.time, k, reward) for k, reward in entry.rewards]
        else:
            ledger.apply(self._engine, entry)

    def _known(self, key: str, now: float) -> bool:
        """Whether a request with this key is remembered."""
        return key in self._keys and now <= self._keys[key].time + REMEMBERED

    def _remember(self, entry: ledger.Ask, assigned: list[Assignment]) -> None:
        """Note a request with a key, and forget those that are too old."""
        self._keys.pop(entry.key, None)
        self._keys[entry.key] = Answered(entry.time, entry.site, entry.times, assigned)
        while not self._known(oldest := next(iter(self._keys)), entry.time):
            del self._keys[oldest]

    def _demand_same(self, key: str, site: int, times: int) -> None:
        """Raise OtherRequest unless the earlier request with this key asked for the same."""
        known = self._keys[key]
        if (known.site, known.times) != (site, times):
            raise OtherRequest(
                "this key was used for another request", expected="a new key for a new request"
            )

    def tick(self) -> None:
        """Let deadlines take effect that passed since the last event."""
        if not self._closed and self._engine.due(now := self._clock()):
            self.commit([Request(entry=ledger.Tick(now))])

    def site(self, site: object) -> int:
        if not isinstance(site, str) or site not in self._engine.index:
            raise InputError(
                f"there is no site {shorten(site)}", fix=nearest(str(site), list(self._engine.index))
            )
        return self._engine.index[site]
