"""Which clients lie in a simulation, with which attack, and whether the attack can be simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.protocol.options import Common
from bestarm.protocol.registry import Method, method_named
from bestarm.simulate.lying_client import ATTACKS, World
from bestarm.util.seeds import stream
from bestarm.util.text import nearest, shorten


@dataclass(frozen=True)
class Adversary:
    """Clients of one group that lie in a simulation.

    Parameters
    ----------
    group : str
        The name of the group.
    attack : str
        How they lie; ``attacks()`` lists the names.
    clients : int or sequence of str
        How many clients of the group lie (the first ones), or their names.
    options : mapping
        Values for the attack's options, if it has any.

    Examples
    --------
    >>> Adversary("north", "sleeper", clients=2, options={"turns": 3}).attack
    'sleeper'
    """

    group: str
    attack: str
    clients: int | Sequence[str] = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _where(self) -> str:
        return f"adversary of group {shorten(self.group)}"

    def names(self, layout: Layout) -> tuple[str, ...]:
        """The names of the clients that lie; InputError if the group, the attack or a client is unknown."""
        groups = {group.name: group for group in layout.groups}
        if not isinstance(self.group, str) or self.group not in groups:
            raise InputError(
                "there is no such group", where=self._where, fix=nearest(str(self.group), groups)
            )
        self._check_attack()
        known = groups[self.group].clients
        if isinstance(self.clients, int) and not isinstance(self.clients, bool):
            if not 1 <= self.clients <= len(known):
                raise InputError(
                    f"clients = {self.clients}",
                    where=self._where,
                    expected=f"a number from 1 to {len(known)}, or names",
                )
            return known[: self.clients]
        if isinstance(self.clients, str) or not isinstance(self.clients, Sequence):
            raise InputError(
                f"clients = {shorten(self.clients)}", where=self._where, expected="a number, or names"
            )
        for name in self.clients:
            if name not in known:
                raise InputError(
                    f"there is no client {shorten(name)}", where=self._where, fix=nearest(str(name), known)
                )
        return tuple(self.clients)

    def _check_attack(self) -> None:
        """InputError unless the attack exists and has these options."""
        if not isinstance(self.attack, str) or self.attack not in ATTACKS:
            raise InputError(
                f"attack {shorten(self.attack)} is unknown",
                where=self._where,
                fix=nearest(str(self.attack), ATTACKS),
            )
        settings = ATTACKS[self.attack].settings
        if not isinstance(self.options, Mapping) or not all(key in settings for key in self.options):
            raise InputError(
                f"options = {shorten(self.options)}",
                where=self._where,
                expected=f"a table with keys among: {', '.join(settings) or 'none'}",
            )
        for key, value in self.options.items():
            negative = isinstance(value, int | float) and value < 0
            if type(value) is not type(settings[key]) or negative:
                raise InputError(
                    f"options: {key} = {shorten(value)}",
                    where=self._where,
                    expected=f"a value like {settings[key]!r}",
                )

    def to_dict(self, layout: Layout) -> dict[str, Any]:
        """This adversary as plain values, with the clients by name."""
        return {
            "group": self.group,
            "clients": list(self.names(layout)),
            "attack": self.attack,
            "options": dict(self.options),
        }


def check_adversaries(layout: Layout, adversaries: Sequence[Adversary]) -> dict[str, Adversary]:
    """The adversary of each client that lies, by the client's name; InputError if a client has two."""
    liars: dict[str, Adversary] = {}
    for adversary in adversaries:
        for name in adversary.names(layout):
            if name in liars:
                raise InputError(
                    f'client "{name}" has two attacks',
                    where="[[adversary]]",
                    expected="one attack per client",
                )
            liars[name] = adversary
    return liars


def refuse_attacks(method: Method, options: Common, adversaries: Sequence[Adversary]) -> None:
    """Raise InputError for an attack that the messages of a method cannot express.

    Parameters
    ----------
    method : Method
        The method, as it serves the layout (``method_for``).
    options : Common
        Its options; they may determine what messages contain.
    adversaries : sequence of Adversary
        The liars, already checked by ``check_adversaries``.

    Raises
    ------
    InputError
        It names the attack, the method and the attacks that can be simulated.
    """
    for adversary in adversaries:
        attack = ATTACKS[adversary.attack]
        obstacle = attack.obstacle(method, options)
        if not obstacle:
            continue
        possible = [name for name, other in ATTACKS.items() if not other.obstacle(method, options)]
        grouped = method.grouped is not None and not attack.obstacle(method.grouped, options)
        robust = method_named(method.name).robust
        tolerant = method is not robust and robust is not None and not attack.obstacle(robust, options)
        fix = "It can be simulated if a group has several clients" if grouped else ""
        raise InputError(
            f'attack "{adversary.attack}" cannot be simulated with method "{method.name}": {obstacle}',
            where=f"adversary of group {shorten(adversary.group)}",
            expected=f"one of: {', '.join(possible)}",
            fix="It can be simulated with byzantine above 0" if tolerant else fix,
        )


def recruit(
    method: Method,
    problem: Problem,
    options: Common,
    machines: list[Any],
    adversaries: Sequence[Adversary],
    seed: int,
) -> None:
    """Replace the lying clients in `machines`, in place, with their attacks.

    Parameters
    ----------
    method : Method
        The method, as it serves the layout (``method_for``).
    problem : Problem
        The problem, with its true means.
    options : Common
        The method's options, on the unit scale.
    machines : list
        All clients, all of them honest; the liars are replaced in place.
    adversaries : sequence of Adversary
        Which clients lie, and how.
    seed : int
        The seed of the run.

    Raises
    ------
    InputError
        If a client has two attacks, or the method cannot express an attack.
    """
    liars = check_adversaries(problem.layout, adversaries)
    refuse_attacks(method, options, adversaries)
    world = World(method, problem, options, machines, set(liars))
    places = {machine.name: i for i, machine in enumerate(machines)}
    for name, adversary in liars.items():
        i = places[name]
        rng = stream(seed, i, 2**31)
        machines[i] = ATTACKS[adversary.attack](machines[i], world, rng, **adversary.options)
