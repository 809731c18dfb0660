"""``Experiment``: a live experiment. ``ask`` gives the next subject an option, ``tell`` takes its reward.

Questions and rewards are in the journal before they take effect, so that a program can be killed at any
moment and continue from the journal. Calls from several threads share one write to the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.alarms import Watch
from bestarm.deploy.experiment.assignments import Outcome
from bestarm.deploy.experiment.clerk import Assignment, Clerk, ExperimentOver, Request, SecondReward
from bestarm.deploy.experiment.engine import Engine
from bestarm.deploy.experiment.settings import Settings, make_settings
from bestarm.deploy.experiment.status import Status, status_of
from bestarm.errors import InputError
from bestarm.protocol.verdict import Verdict
from bestarm.records.build import on_user_scale
from bestarm.records.record import Record
from bestarm.stats.alarms import Alarm
from bestarm.util.journal import Journal

__all__ = ["Assignment", "Experiment", "ExperimentOver", "Request", "SecondReward"]


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
    deadline : float or str, optional
        Seconds after which a reward that has not come counts as `missing`, or a text such as "24h" ("s",
        "m", "h" or "d"). A reward that comes later is recorded and not counted. By default the experiment
        waits for every reward.
    missing : float, optional
        What a missing reward counts as, such as 0 for a click that never came.
    after : {"winner", "stop"}
        What ``ask`` does after the verdict: give the winner, or raise ``ExperimentOver``.
    bounds : tuple of two float
        The smallest and the largest possible reward.
    goal : {"max", "min"}
        Whether higher or lower rewards are better.
    unit : str
        What rewards are measured in, such as "ms"; it is shown beside means.
    binary : bool
        Whether every reward is 0 or 1 (or one of the two bounds). Then less is rounded, and answers come a
        little sooner.
    seed : int, optional
        The seed of the order in which options are assigned. By default a random one.
    name : str
        A label for status, page, webhooks and record.
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
        deadline: float | str | None = None,
        missing: float | None = None,
        after: str = "winner",
        bounds: tuple[float, float] = (0.0, 1.0),
        goal: str = "max",
        unit: str = "",
        binary: bool = False,
        seed: int | None = None,
        name: str = "",
        clock: Callable[[], float] = time.time,
        **keys: object,
    ) -> None:
        settings = make_settings(
            options, sites, question, delta=delta, bounds=bounds, goal=goal, unit=unit, binary=binary,
            deadline=deadline, missing=missing, after=after, seed=seed, keys=keys, name=name,
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
        self.settings, self._clock, self._engine = settings, clock, Engine(settings)
        self._watch = Watch(self._engine)
        self._clerk = Clerk(self._engine, journal, clock)

    def run(self, requests: Sequence[Request]) -> None:
        """Carry out requests in order, with one write to the disk; each has its results or its error."""
        self._clerk.run(requests)

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
            After the verdict, or at a site that was dropped, with ``after="stop"``.
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
        return self._clerk.one(Request(site=site or self._only_site(), times=times, key=key)).assigned

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
            plan, because the site has to wait for others; or it came after the verdict, or after its site
            was dropped.

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
        return self._clerk.one(Request(rewards=list(rewards))).outcomes

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, on the scale of the rewards; None as long as there is none."""
        self._clerk.tick()
        found = self._engine.verdict
        return None if found is None else on_user_scale(found, self._engine.problem.scale)

    @property
    def status(self) -> Status:
        """What the experiment looks like now."""
        self._clerk.tick()
        with self._clerk.working:
            return status_of(self._engine, self._clock())

    @property
    def alarms(self) -> list[Alarm]:
        """What speaks against the assumptions so far: drift, dependence, or rewards that stay away.

        If the assumptions hold, the probability of any alarm in the whole run is at most 0.01.
        """
        self._clerk.tick()
        with self._clerk.working:
            return self._watch.alarms()

    def record(self) -> Record:
        """The record of the experiment so far, as every run has one.

        Returns
        -------
        Record
            ``ba.verify`` checks it, and ``bestarm report`` shows it.
        """
        self._clerk.tick()
        with self._clerk.working:
            return self._engine.record()

    def stop(self) -> Verdict:
        """End the experiment now; without an answer so far, it is undecided.

        Returns
        -------
        Verdict
        """
        self._clerk.commit([Request(entry=ledger.End(self._clock(), "interrupted"))])
        found = self.verdict
        assert found is not None
        return found

    def drop(self, site: str) -> None:
        """Continue without a site that does not come back: the question is then about the others.

        Its subjects get the option that leads there, after the verdict the winner, and do not count; with
        ``after="stop"``, ``ask`` raises ``ExperimentOver``. The status says that the site was dropped.

        Parameters
        ----------
        site : str
            The site. Drop it for reasons that have nothing to do with its rewards.
        """
        self._clerk.commit([Request(entry=ledger.Leave(self._clock(), self._clerk.site(site)))])

    def close(self) -> None:
        """Close the journal. The experiment can be resumed from it."""
        self._clerk.close()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _only_site(self) -> str:
        names = [name for name, _ in self.settings.arms]
        if len(names) > 1:
            raise InputError("the site is missing", expected=f"one of: {', '.join(names)}")
        return names[0]


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
