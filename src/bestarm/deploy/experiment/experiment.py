"""``Experiment``: a live experiment. ``ask`` gives the next subject an option, ``tell`` takes its reward.

Questions and rewards are in the journal before they take effect, so that a program can be killed at any
moment and continue from the journal. Calls from several threads share one write to the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.alarms import Watch
from bestarm.deploy.experiment.engine import Engine, Outcome
from bestarm.deploy.experiment.settings import Settings, check_reward, make_settings
from bestarm.deploy.experiment.status import Status, status_of
from bestarm.deploy.experiment.tokens import Tokens
from bestarm.errors import InputError
from bestarm.evidence.alarms import Alarm
from bestarm.protocol.verdict import Verdict
from bestarm.records.build import on_user_scale
from bestarm.records.record import Record
from bestarm.util.journal import Journal
from bestarm.util.text import nearest, shorten

MOST = 10_000  # assignments or rewards in one call
MOST_KEY = 200  # characters of a key


class ExperimentOver(InputError):
    """The experiment has ended, and its setting after="stop" gives nobody an option any more."""


class SecondReward(InputError):
    """A token has another reward already."""


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


class Experiment:
    """A live experiment: which option is best, when subjects arrive and rewards come late.

    Parameters
    ----------
    options : sequence of str, or mapping
        The options, the same at all sites; or the options of each site.
    sites : sequence of str, optional
        The names of the sites; by default there is one, "site".
    question : {"overall", "each", "control", "anywhere"}, optional
        What is asked; see ``Problem.asking``. By default "overall", or "anywhere" if sites have options of
        their own.
    delta : float
        The probability of a wrong answer is at most this.
    journal : str or Path, optional
        The file that makes the experiment survive a crash. If it exists, the experiment resumes from it.
        Without one, everything is lost when the program ends.
    deadline : float, optional
        Seconds after which a reward that has not come counts as `missing`. A reward that comes later is
        recorded and not counted. By default the experiment waits for every reward.
    missing : float, optional
        What a missing reward counts as, such as 0 for a click that never came.
    after : {"winner", "stop"}
        What ``ask`` does after the verdict: give the winner, or raise ``ExperimentOver``.
    bounds : tuple of two float
        The smallest and the largest possible reward.
    goal : {"max", "min"}
        Whether higher or lower rewards are better.
    binary : bool
        Whether every reward is 0 or 1. Then less is rounded, and answers come a little sooner.
    seed : int, optional
        The seed of the order in which options are assigned. By default a random one.
    clock : callable
        Returns the time in seconds.
    **keys
        Further keys of the question (`weights`, `control`, …) and options of the method; see ``ba.Bet``.

    Raises
    ------
    InputError
        If an argument is invalid, or the journal is that of another experiment.

    Notes
    -----
    The promise needs rewards that are independent of each other, with means that do not depend on when they
    arrive; see the page "Live experiments" of the docs. What is missing *because of its value* breaks it.

    Examples
    --------
    >>> import random
    >>> import bestarm as ba
    >>> visitors, chance = random.Random(1), {"blue": 0.3, "green": 0.5}
    >>> experiment = ba.Experiment(["blue", "green"], delta=0.05, binary=True, seed=1)
    >>> while experiment.verdict is None:
    ...     given = experiment.ask()
    ...     _ = experiment.tell(given.token, visitors.random() < chance[given.option])
    >>> experiment.verdict.arm, experiment.ask().option
    ('green', 'green')
    """

    def __init__(
        self,
        options: Sequence[str] | Mapping[str, Sequence[str]],
        sites: Sequence[str] | None = None,
        question: str | None = None,
        *,
        delta: float = 0.05,
        journal: str | Path | None = None,
        deadline: float | None = None,
        missing: float | None = None,
        after: str = "winner",
        bounds: tuple[float, float] = (0.0, 1.0),
        goal: str = "max",
        binary: bool = False,
        seed: int | None = None,
        clock: Callable[[], float] = time.time,
        **keys: object,
    ) -> None:
        settings = make_settings(
            options, sites, question, delta=delta, bounds=bounds, goal=goal, binary=binary,
            deadline=deadline, missing=missing, after=after, seed=seed, keys=keys,
        )  # fmt: skip
        kept: Journal | None = None
        if journal is not None and Path(journal).exists():
            kept = ledger.open_journal(journal)
            settings = _same(settings, kept, drawn=seed is None)
        elif journal is not None:
            kept = ledger.create_journal(journal, settings)
        self._begin(settings, kept, clock)

    @classmethod
    def open(cls, journal: str | Path, *, clock: Callable[[], float] = time.time) -> Experiment:
        """Resume the experiment of a journal, with the settings that it was created with.

        Parameters
        ----------
        journal : str or Path
            The file of an experiment.
        clock : callable
            Returns the time in seconds.

        Returns
        -------
        Experiment
        """
        kept, found = ledger.open_journal(journal), cls.__new__(cls)
        found._begin(ledger.settings_of(kept), kept, clock)
        return found

    def _begin(self, settings: Settings, journal: Journal | None, clock: Callable[[], float]) -> None:
        self.settings, self._journal, self._clock = settings, journal, clock
        self._engine, self._tokens = Engine(settings), Tokens(settings.key)
        self._watch = Watch(self._engine)
        self._keys: dict[str, list[Assignment]] = {}  # of earlier requests that had one
        self._queue: list[Request] = []
        self._queueing, self._working = threading.Lock(), threading.RLock()
        self._closed = False
        try:
            for entry in ledger.entries(journal) if journal is not None else ():
                self._apply(Request(entry=entry))
        except BaseException:
            self.close()
            raise

    # What users call

    def ask(self, site: str | None = None, *, key: str = "") -> Assignment:
        """Give the next subject of a site an option.

        Parameters
        ----------
        site : str, optional
            The site; not needed if there is only one.
        key : str
            Identifies the request: a repeated one with the same key gets the same assignment.

        Returns
        -------
        Assignment
            The option, and the token to tell its reward with.

        Raises
        ------
        InputError
            If there is no such site.
        ExperimentOver
            After the verdict, with ``after="stop"``.
        """
        return self.ask_many(site, key=key)[0]

    def ask_many(self, site: str | None = None, times: int = 1, *, key: str = "") -> list[Assignment]:
        """Give several subjects of a site an option each; see ``ask``.

        Parameters
        ----------
        site : str, optional
            The site; not needed if there is only one.
        times : int
            How many.
        key : str
            See ``ask``.

        Returns
        -------
        list of Assignment
        """
        return self._one(Request(site=site or self._only_site(), times=times, key=key)).assigned

    def tell(self, token: str, reward: float) -> Outcome:
        """Tell the reward of an assignment. To tell it again is harmless.

        Parameters
        ----------
        token : str
            The token of the assignment.
        reward : float
            What came of it.

        Returns
        -------
        {"counted", "again", "late", "unplanned", "after"}
            Whether it counts. If not: it was told before; it came after its deadline; it was outside the
            plan, because the site has to wait for others; or it came after the verdict.

        Raises
        ------
        InputError
            If the token is not one of this experiment, or has another reward already, or the reward is out of
            bounds. Nothing is recorded then.
        """
        return self.tell_many([(token, reward)])[0]

    def tell_many(self, rewards: Iterable[tuple[str, float]]) -> list[Outcome]:
        """Tell several rewards at once, all or none of them; see ``tell``.

        Parameters
        ----------
        rewards : iterable of (str, float)
            Tokens and rewards.

        Returns
        -------
        list of str
            What ``tell`` returns for each.
        """
        return self._one(Request(rewards=list(rewards))).outcomes

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, on the scale of the rewards; None as long as there is none."""
        self._tick()
        found = self._engine.verdict
        return None if found is None else on_user_scale(found, self._engine.problem.scale)

    @property
    def status(self) -> Status:
        """What the experiment looks like now."""
        self._tick()
        with self._working:
            return status_of(self._engine, self._clock())

    @property
    def alarms(self) -> list[Alarm]:
        """What speaks against the assumptions so far: drift, dependence, or rewards that stay away.

        If the assumptions hold, the probability of any alarm in the whole run is at most 0.01.
        """
        self._tick()
        with self._working:
            return self._watch.alarms()

    def record(self) -> Record:
        """The record of the experiment so far, as every run has one.

        Returns
        -------
        Record
            ``ba.verify`` checks it, and ``bestarm report`` shows it.
        """
        self._tick()
        with self._working:
            return self._engine.record()

    def stop(self) -> Verdict:
        """End the experiment now; without an answer so far, it is undecided.

        Returns
        -------
        Verdict
        """
        self._commit([Request(entry=ledger.End(self._clock(), "interrupted"))])
        found = self.verdict
        assert found is not None
        return found

    def drop(self, site: str) -> None:
        """Continue without a site that does not come back: the question is then about the others.

        Parameters
        ----------
        site : str
            The site. Drop it for reasons that have nothing to do with its rewards.
        """
        self._commit([Request(entry=ledger.Leave(self._clock(), self._site(site)))])

    def close(self) -> None:
        """Close the journal. The experiment can be resumed from it."""
        with self._working:
            self._closed = True
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # How requests are carried out

    def run(self, requests: Sequence[Request]) -> None:
        """Carry out requests in order, with one write to the disk; each has its results or its error."""
        with self._working:
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
            self._commit(fresh)
            for request in requests:
                request.done = True

    def _one(self, request: Request) -> Request:
        """Carry out one request, with those of other threads that wait for the disk."""
        with self._queueing:
            self._queue.append(request)
        with self._working:
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
        site, times, key = self._site(request.site), request.times, request.key
        if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= MOST:
            raise InputError(f"{shorten(times)} assignments", expected=f"a whole number from 1 to {MOST:,}")
        if not isinstance(key, str) or len(key) > MOST_KEY:
            raise InputError(f"key {shorten(key)}", expected=f"at most {MOST_KEY} characters")
        if key in self._keys:
            return None
        if self._engine.over and self.settings.after == "stop":
            raise ExperimentOver("the experiment is over", expected="no more questions")
        return ledger.Ask(now, site, times, key)

    def _tell_entry(self, request: Request, now: float, told: dict[int, float]) -> ledger.Tell:
        """The rewards of a request, all of them valid."""
        if len(request.rewards) > MOST:
            raise InputError(f"{len(request.rewards):,} rewards", expected=f"at most {MOST:,} at once")
        rewards, engine, own = list[tuple[int, float]](), self._engine, dict[int, float]()
        for token, value in request.rewards:
            number = self._tokens.read(token)
            if number >= len(engine.time):
                raise InputError("its assignment is not in the journal", where=f"token {shorten(token)}")
            reward = check_reward(value, self.settings, f"token {shorten(token)}")
            known = own.get(number, told.get(number, engine.reward[number]))
            if known == known and known != reward:
                raise SecondReward(
                    f"a second reward of {reward:g}", where=f"token {token}", expected=f"{known:g}, as before"
                )
            own[number] = reward
            rewards.append((number, reward))
        told.update(own)
        return ledger.Tell(now, rewards)

    def _commit(self, requests: Sequence[Request]) -> None:
        """Write the entries of requests to the journal, then let them take effect."""
        with self._working:
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
            request.assigned = self._keys[request.key]
            return
        arms = self._engine.problem.layout.groups
        if isinstance(entry, ledger.Ask):
            if entry.key and entry.key in self._keys:  # twice in one write
                request.assigned = self._keys[entry.key]
                return
            own = arms[entry.site].arms
            given = [self._engine.ask(entry.time, entry.site) for _ in range(entry.times)]
            request.assigned = [Assignment(own[g.arm], self._tokens.make(g.number)) for g in given]
            if entry.key:
                self._keys[entry.key] = request.assigned
        elif isinstance(entry, ledger.Tell):
            request.outcomes = [self._engine.tell(entry.time, k, reward) for k, reward in entry.rewards]
        else:
            ledger.apply(self._engine, entry)

    def _tick(self) -> None:
        """Let deadlines take effect that passed since the last event."""
        if not self._closed and self._engine.due(now := self._clock()):
            self._commit([Request(entry=ledger.Tick(now))])

    def _only_site(self) -> str:
        names = [name for name, _ in self.settings.arms]
        if len(names) > 1:
            raise InputError("which site?", expected=f"one of: {', '.join(names)}")
        return names[0]

    def _site(self, site: object) -> int:
        if not isinstance(site, str) or site not in self._engine.index:
            raise InputError(
                f"there is no site {shorten(site)}", fix=nearest(str(site), list(self._engine.index))
            )
        return self._engine.index[site]


def _same(settings: Settings, journal: Journal, drawn: bool) -> Settings:
    """The settings of an existing journal; InputError if they differ from those that are given."""
    found = ledger.settings_of(journal)
    others = [name for name in settings.differences(found) if name != "seed" or not drawn]
    if others:
        journal.close()
        raise InputError(
            f"this is the journal of another experiment: it differs in {', '.join(others)}",
            where=str(journal.path),
            fix="Choose another file, or use the settings that it was created with",
        )
    return found
