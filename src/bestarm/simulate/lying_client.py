"""A lying client, for simulations: it runs an honest client and changes the messages that it sends.

A liar knows everything: the true means, the options, what each honest client has seen, and which other
clients lie. An attack decides what a liar claims; the method's ``Lies`` write it into the method's messages.

To add an attack, write a class with a name. Its docstring describes the attack:

>>> class Modest(Attack, name="modest"):
...     '''Claims that its arm is a little worse than it is.'''
...
...     def mean(self, arm: int, mean: float) -> float:
...         return 0.9 * mean
>>> "modest" in attacks()
True
>>> del ATTACKS["modest"]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.problem import Problem, target
from bestarm.problem.truth import values_of
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import ALL, Action, Event, PatienceOver, Send
from bestarm.protocol.lies import CLAIMS
from bestarm.protocol.machine import NEW, ClientMachine
from bestarm.protocol.options import Common
from bestarm.protocol.registry import Method
from bestarm.protocol.rounds import SERVER
from bestarm.protocol.summaries import Summary

ATTACKS: dict[str, type[Attack]] = {}


def attacks() -> list[str]:
    """The names of all attacks that liars can use in a simulation.

    Returns
    -------
    list of str
        The names, built-in attacks first.

    Examples
    --------
    >>> "bury" in attacks()
    True
    """
    return list(ATTACKS)


@dataclass
class World:
    """What liars know: the method, the problem with its true means, the options, and every client."""

    method: Method
    problem: Problem
    options: Common
    machines: list[Any] = field(default_factory=list)
    liars: set[str] = field(default_factory=set)

    def mean(self, group: int, arm: int) -> float:
        """The true mean of an arm, or 0.5 if it is unknown."""
        mean = self.problem.means[group][arm]
        return 0.5 if mean is None else mean

    @property
    def best(self) -> tuple[int, int]:
        """The group and the index of the best arm."""
        return target(self.problem)

    @property
    def shared(self) -> bool:
        """Whether the question is about options that the sites share."""
        return self.problem.layout.question.kind != "anywhere"

    def is_best(self, group: int, arm: int) -> bool:
        """Whether this arm is the best one; of shared options, whether its option is best over all sites."""
        if not self.shared:
            return (group, arm) == self.best
        cells, values = values_of(self.problem)
        return self.problem.layout.groups[group].arms[arm] == cells.options[int(np.argmax(values))]

    def heard_by(self, name: str) -> list[str]:
        """The peers that receive messages from this one, in a network."""
        return [m.name for m in self.machines if name in m.neighbours]

    def honest(self, group: int) -> list[Any]:
        """The honest clients of a group."""
        return [m for m in self.machines if m.group == group and m.name not in self.liars]

    def observed(self, group: int, arm: int) -> list[float]:
        """The empirical means of an arm at the honest clients of its group that have one.

        Of shared options, those at the honest clients of all sites, if all clients of the group lie.
        """
        if self.method.lies is None:
            return []
        groups, found = self.problem.layout.groups, list[float]()
        own = [group] if self.honest(group) or not self.shared else range(len(groups))
        name = groups[group].arms[arm]
        for j in own:
            if name in groups[j].arms:
                place = groups[j].arms.index(name)
                seen = [self.method.lies.observed(machine, place) for machine in self.honest(j)]
                found += [mean for mean in seen if mean is not None]
        return found


class Attack:
    """One lying client. The base class is honest; an attack overrides the methods that it lies with.

    The methods ``arm``, ``mean``, ``count``, ``interval`` and ``verdict`` change single claims; the simulated
    method writes them into its messages. ``speaks``, ``begins``, ``words`` and ``words_for`` change which
    bytes are sent. A run is refused if the messages of its method contain none of the claims that the attack
    changes.

    Attributes
    ----------
    machine
        The honest client. It keeps running, so that the attack knows what an honest client would send.
    world : World
        What the liar knows.
    rng : numpy.random.Generator
        For attacks with random choices.
    options : dict
        The attack's ``settings``, with values from the scenario where it sets them.
    subject : int
        The group that the current message is about.
    turn : int
        The number of messages that the honest client sent before this one.
    waits : bool
        If True, the liar sends its message only after all honest clients have sent theirs in the round.
    settings : dict
        The names and default values of the attack's options.
    needs : tuple of str
        The functions of the method's ``Lies`` that the attack requires.
    """

    title: ClassVar[str] = ""
    waits: ClassVar[bool] = False
    settings: ClassVar[dict[str, Any]] = {}
    needs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not name:
            return
        before = ATTACKS.get(name)
        # The same class may be defined again, for example when a notebook cell runs twice.
        if before and (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f'there is already an attack "{name}", in {before.__module__}', fix="Choose another name"
            )
        cls.title = name
        ATTACKS[name] = cls

    def __init__(
        self, machine: ClientMachine, world: World, rng: np.random.Generator, **options: object
    ) -> None:
        self.machine, self.world, self.rng = machine, world, rng
        self.options: Mapping[str, Any] = {**self.settings, **options}
        self.subject: int = machine.group
        self.turn = 0
        self.held: list[Send] = []

    @classmethod
    def obstacle(cls, method: Method, options: Common) -> str:
        """Why the messages of a method cannot express this attack; empty if they can."""
        lies = method.lies
        for function in cls.needs:
            if getattr(lies, function, None) is None:
                return f"the method does not define the lie {function!r}"
        claims = [claim for claim in CLAIMS if cls._overrides(claim)]
        if not claims or any(cls._overrides(way) for way in ("begins", "speaks", "words", "words_for")):
            return ""
        if lies is None:
            return "the method does not define how a liar alters its messages"
        if lies.claims(options).isdisjoint(claims):
            return f"with these options its messages contain no {' or '.join(claims)}"
        return ""

    @classmethod
    def _overrides(cls, method: str) -> bool:
        return getattr(cls, method) is not getattr(Attack, method)

    def begins(self) -> list[bytes]:
        """The messages that it sends before its first pull.

        Returns
        -------
        list of bytes
            The payloads; none by default.
        """
        return []

    def speaks(self) -> bool:
        """Whether it sends this message at all.

        Returns
        -------
        bool
            True by default.
        """
        return True

    def arm(self, arm: int) -> int:
        """The arm that it claims is its best.

        Parameters
        ----------
        arm : int
            The arm that an honest client would name.

        Returns
        -------
        int
            The arm that it names.
        """
        return arm

    def mean(self, arm: int, mean: float) -> float:
        """The mean that it claims for an arm.

        Parameters
        ----------
        arm : int
            The arm.
        mean : float
            The mean that an honest client would report, in [0, 1].

        Returns
        -------
        float
            The mean that it reports.
        """
        return mean

    def count(self, count: int) -> int:
        """The number of pulls that it claims.

        Parameters
        ----------
        count : int
            The number that an honest client would report.

        Returns
        -------
        int
            The number that it reports.
        """
        return count

    def interval(self, lower: float, upper: float) -> tuple[float, float]:
        """The bounds on a mean that it claims, where messages hold bounds.

        Parameters
        ----------
        lower, upper : float
            The bounds that an honest peer would report.

        Returns
        -------
        tuple of two float
            The bounds that it reports.
        """
        return lower, upper

    def verdict(self, group: int, arm: int) -> tuple[int, int]:
        """The winner that a peer announces: by default a false one if it lies about arms or means.

        Parameters
        ----------
        group, arm : int
            The winner that an honest peer would announce.

        Returns
        -------
        tuple of two int
            The group and the arm that it announces.
        """
        if self.mean(arm, 0.5) == 0.5 and self.arm(arm) == arm:
            return group, arm
        return (group + 1) % len(self.machine.layout.groups), 0

    def words(self, payload: bytes) -> list[bytes]:
        """The messages that it sends instead of this one.

        Parameters
        ----------
        payload : bytes
            The message, with the claims of this attack in it.

        Returns
        -------
        list of bytes
            The payloads; by default this one.
        """
        return [payload]

    def words_for(self, place: int, payload: bytes) -> list[bytes]:
        """The messages that a peer sends to one neighbour instead of this one.

        Parameters
        ----------
        place : int
            The number of the neighbour, from 0.
        payload : bytes
            The message, with the claims of this attack in it.

        Returns
        -------
        list of bytes
            The payloads; by default those of ``words``.
        """
        return self.words(payload)

    def summary(self, own: Summary) -> list[bytes]:
        """What it sends after the verdict instead of its summary: the counts and the means that it claims."""
        self.subject = self.machine.group
        if not self.speaks():
            return []
        count = [self.count(n) if n else 0 for n in own.count]
        total = []
        for arm, (n, s, claimed) in enumerate(zip(own.count, own.total, count, strict=True)):
            with np.errstate(invalid="ignore"):  # of an arm that has left, some attacks know nothing
                mean = self.mean(arm, s / n) if n else 0.0
            mean = min(max(mean, 0.0), 1.0) if np.isfinite(mean) else s / n
            total.append(float(round(mean * claimed)) if own.ones else mean * claimed)
        squares = None if own.squares is None else tuple(total)
        if own.squares is not None and total == list(own.total):
            squares = own.squares
        try:
            payload = Summary(tuple(count), tuple(total), squares).encode()[0]
        except ValueError:  # a count that the message cannot express
            payload = own.encode()[0]
        return self.words(payload)

    @property
    def in_best_group(self) -> bool:
        """Whether the current message is about the group that has the best arm."""
        return bool(self.world.best[0] == self.subject)

    def helps_best(self, arm: int) -> bool:
        """Whether a high mean of this arm helps the right answer.

        It does for all arms of the best group, and, where sites share their options, for the best option.
        """
        return self.world.is_best(self.subject, arm) if self.world.shared else self.in_best_group

    def __getattr__(self, key: str) -> Any:
        if key == "machine":
            raise AttributeError(key)
        return getattr(self.machine, key)

    def local(self) -> dict[str, Any]:
        """Its part of the certificate: the name of the attack."""
        return {"attack": self.title}

    def handle(self, event: Event) -> list[Action]:
        """Pass an event to the honest client, and change what it sends."""
        actions: list[Action] = []
        peers = self.world.method.peers
        if isinstance(event, PatienceOver):
            held, self.held = self.held, []
            actions = [new for send in held for new in self._say(send)]
            if not peers:
                return actions
        elif self.machine.state == NEW:
            to = ALL if peers else SERVER
            actions = [Send(to, payload, 8 * len(payload)) for payload in self.begins()]
        for action in self.machine.handle(event):
            if not isinstance(action, Send):
                actions.append(action)
            elif self.waits:
                self.held.append(action)
            else:
                actions += self._say(action)
        return actions

    def _say(self, send: Send) -> list[Action]:
        try:
            if not self.speaks():
                return []
            payload = self._altered(send.payload)
            if self.world.method.peers:
                hearers = self.world.heard_by(self.name)
                stories = [(to, self.words_for(place, payload)) for place, to in enumerate(hearers)]
            else:
                stories = [(SERVER, self.words(payload))]
        finally:
            self.turn += 1
        return [Send(to, words, 8 * len(words)) for to, several in stories for words in several]

    def _altered(self, payload: bytes) -> bytes:
        """An honest message with this attack's claims in it."""
        method = self.world.method
        if method.lies is None:
            return payload
        questions = Questions(self)
        try:
            said = method.lies.alter(questions, payload)
        except Malformed as error:
            raise RuntimeError(f'the lies of method "{method.name}" cannot read its own messages') from error
        if said is None:
            return payload
        if not questions.asked:
            raise RuntimeError(f'the lies of method "{method.name}" never use the claims of the liar')
        return said


class Questions:
    """The claims of an attack about one message: a ``Liar`` that notes whether a claim was requested."""

    def __init__(self, attack: Attack) -> None:
        self._attack = attack
        self.machine, self.turn = attack.machine, attack.turn
        self.asked = False

    @property
    def subject(self) -> int:
        """The group that the message is about."""
        return self._attack.subject

    @subject.setter
    def subject(self, group: int) -> None:
        self._attack.subject = group

    def arm(self, arm: int) -> int:
        """The arm that the attack claims is its best."""
        self.asked = True
        return self._attack.arm(arm)

    def mean(self, arm: int, mean: float) -> float:
        """The mean that the attack claims for an arm."""
        self.asked = True
        return self._attack.mean(arm, mean)

    def count(self, count: int) -> int:
        """The number of pulls that the attack claims."""
        self.asked = True
        return self._attack.count(count)

    def interval(self, lower: float, upper: float) -> tuple[float, float]:
        """The bounds that the attack claims."""
        self.asked = True
        return self._attack.interval(lower, upper)

    def verdict(self, group: int, arm: int) -> tuple[int, int]:
        """The winner that the attack announces."""
        self.asked = True
        return self._attack.verdict(group, arm)
