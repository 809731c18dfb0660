"""The transition table drives the state of every machine of every registered method."""

from __future__ import annotations

import random
import types
from dataclasses import is_dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm.errors import InputError
from bestarm.problem.layout import Group, Layout
from bestarm.protocol.events import (
    ALL,
    Drop,
    PatienceOver,
    Pull,
    Pulled,
    Quiet,
    Received,
    Send,
    Start,
    Stop,
    Supply,
)
from bestarm.protocol.machine import NEW, IllegalEvent, IllegalTransition
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.protocol.rounds import SERVER

EVENTS = (
    Start(),
    Received("nobody", b"\x00"),
    Pulled((1.0,), 1),
    PatienceOver(0),
    Quiet(spent=False),
    Stop("budget"),
    Drop("nobody"),
    Supply((None,)),
)


def variants():
    """Every registered method, and its variants for groups of several clients and for liars."""
    for name, method in METHODS.items():
        yield name, method
        if method.grouped is not None:
            yield f"{name}, grouped", method.grouped
        if method.robust is not None:
            yield f"{name}, robust", method.robust


VARIANTS = dict(variants())

every_method = pytest.mark.parametrize("variant", VARIANTS)


def classes(method):
    return [method.client] + ([] if method.server is None else [method.server])


MACHINES = {
    f"{name}: {cls.__name__}": (name, cls) for name, method in VARIANTS.items() for cls in classes(method)
}

every_machine = pytest.mark.parametrize("machine", MACHINES)


def setting(method, grouped):
    """A layout and options that the method supports."""
    sizes = (3, 4, 1) if grouped or method.liars else (1, 3, 4)
    for number, size in [(2, size) for size in sizes] + [(1, 3)]:  # one group, if clients must be alike
        groups = [
            Group(f"g{j}", ("a", "b") if j else ("a", "b", "c"), tuple(f"c{j}{i}" for i in range(size)))
            for j in range(number)
        ]
        layout = Layout(tuple(groups))
        options = {"delta": 0.3, "budget": 50_000}
        if method.liars and size >= 3 and (METHODS[method.name].robust or method) is method:
            options["byzantine"] = 1
        if "exchange" in method.options.__dataclass_fields__:
            options["exchange"] = "intervals"  # peers that exchange means never sample
        try:
            chosen = make(method.options, options)
            method.refuse(layout, chosen)
        except InputError:
            continue
        if grouped or size == 1 or METHODS[method.name].grouped is None:
            return layout, chosen
    raise AssertionError(f"no layout for {method.name}")


class Game:
    """All machines of one run, driven by arbitrary steps; each step is checked."""

    def __init__(self, variant, apart=False):
        self.apart = apart  # whether the groups differ
        method = VARIANTS[variant]
        layout, options = setting(method, ", " in variant)
        names = layout.clients
        if method.peers:
            self.machines = {
                name: method.peer(layout, name, options, [n for n in names if n != name]) for name in names
            }
        else:
            self.machines = {name: method.client(layout, name, options) for name in names}
            self.machines[SERVER] = method.server(layout, options)
        self.pulls, self.mail = {}, []
        self.visited = {(type(machine), machine.state) for machine in self.machines.values()}

    def begin(self):
        for name in reversed(self.machines):
            self.tell(name, Start())

    def tell(self, name, event):
        """Deliver an event if the table lists it, and check the next state."""
        machine = self.machines[name]
        before = machine.state
        if (before, type(event)) not in machine.transitions:
            return
        actions = machine.handle(event)
        assert machine.state in machine.transitions[before, type(event)]
        self.visited.add((type(machine), machine.state))
        for action in actions:
            if isinstance(action, Pull):
                self.pulls[name] = action if action.arms else None
            elif isinstance(action, Send):
                to = [n for n in self.machines if n != name] if action.to == ALL else [action.to]
                self.mail += [(name, receiver, action.payload) for receiver in to]

    def step(self, what, who, share):
        """One step: mostly pulls and messages in order, sometimes an unexpected event."""
        names = list(self.machines)
        name = names[who % len(names)]
        if what < 4:
            self.pull(who, share, whole=what < 3)
        elif what < 10 and self.mail:
            sender, receiver, payload = self.mail.pop(0)
            self.tell(receiver, Received(sender, payload))
        elif what == 10:
            self.tell(name, Received(names[-1 - who % len(names)], bytes([int(share * 255)])))
        elif what == 11:
            self.tell(name, PatienceOver(getattr(self.machines[name], "round", 0)))
        elif what == 12 and not any(self.pulls.values()) and not self.mail:
            self.tell(name, Quiet(spent=share > 0.5))
        elif what == 13:
            self.tell(name, Stop("budget"))
            self.pulls[name] = None
        elif what == 14:
            self.tell(name, Drop(names[0]))

    def pull(self, who, share, whole):
        """Give a client that waits for rewards all or some of them."""
        waiting = [name for name, pull in self.pulls.items() if pull is not None]
        if not waiting:
            return
        name = waiting[who % len(waiting)]
        pull, self.pulls[name] = self.pulls[name], None
        times = pull.times if whole else 1 + int(share * (pull.times - 1))
        # Mostly the first arm of each group, or of the first one, always pays and the others never do.
        same, first = who % 4 == 3, self.machines[name].group == 0 or not self.apart
        rows = []
        for arm, each in zip(pull.arms, pull.each, strict=True):
            pays = same or (arm == 0 and first)
            total, extreme = float(times * each * pays), float(pays)
            rows.append([total, total, extreme, extreme] if pull.moments else [total])
        self.tell(name, Pulled.of(rows, times))


STEPS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 11), st.floats(0, 1)), max_size=80)


def plain(value, depth=12):
    """A machine's internal state as text, to detect changes."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.tolist()}"
    if isinstance(value, dict):
        return {repr(key): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth - 1) for item in value]
    if isinstance(value, types.FunctionType | types.MethodType | type):
        return value.__qualname__
    if depth and (hasattr(value, "__dict__") or is_dataclass(value)):
        return type(value).__name__, plain(vars(value), depth - 1)
    return repr(value)


def check_unlisted_events(machine):
    """Each event that the table does not list in this state raises and changes nothing."""
    before = plain(vars(machine))
    for event in EVENTS:
        if (machine.state, type(event)) not in machine.transitions:
            with pytest.raises(IllegalEvent, match=machine.state):
                machine.handle(event)
    assert plain(vars(machine)) == before


@every_machine
def test_a_table_is_closed_and_every_state_in_it_can_be_reached(machine):
    _, cls = MACHINES[machine]
    listed = {state for state, _ in cls.transitions}
    moves = cls.transitions.items()
    targets = {b for (a, _), to in moves for b in to if (a, b) != (NEW, NEW)}
    assert NEW in listed - targets
    assert targets <= listed  # a finished state still accepts late events
    reached = {NEW}
    while more := {b for (a, _), to in cls.transitions.items() if a in reached for b in to} - reached:
        reached |= more
    assert reached == listed | targets


@every_method
def test_an_event_that_the_table_does_not_list_raises_and_nothing_has_happened(variant):
    """Checked in every state: the games continue until each state of each machine is visited."""
    wanted = {(cls, state) for cls in classes(VARIANTS[variant]) for state, _ in cls.transitions}
    checked = set()
    for seed in range(60):
        rng, game = random.Random(seed), Game(variant, apart=seed % 2 == 1)
        for turn in range(240):
            for machine in game.machines.values():
                if (type(machine), machine.state) not in checked:
                    check_unlisted_events(machine)
                    checked.add((type(machine), machine.state))
            if turn == 0:
                game.begin()
            what = rng.choices([0, 3, 4, 11, 12, 13], weights=[50, 5, 50, seed % 3, seed % 5, seed % 2])[0]
            game.step(what, rng.randrange(12), rng.random())
        if checked == wanted:
            break
    assert checked == wanted


@every_method
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_no_sequence_of_events_leaves_the_table(variant, steps):
    game = Game(variant)
    game.begin()
    for step in steps:
        game.step(*step)
    for machine in game.machines.values():
        check_unlisted_events(machine)


@every_machine
def test_the_state_of_a_machine_cannot_be_set_from_outside(machine):
    name, cls = MACHINES[machine]
    subject = next(m for m in Game(name).machines.values() if type(m) is cls)
    with pytest.raises(AttributeError):
        subject.state = "done"
    for state in {state for state, _ in cls.transitions}:
        with pytest.raises(IllegalTransition):
            subject._enter(state)  # no event is being handled
    assert subject.state == NEW


@every_machine
def test_a_machine_that_leaves_its_table_is_stopped(machine):
    name, cls = MACHINES[machine]

    class Strays(cls):
        def _handle(self, event):
            self._enter("nowhere")

    class Stays(cls):
        def _handle(self, event):
            return []

    for rebel, words in ((Strays, "can't become nowhere"), (Stays, "stayed new")):
        subject = next(m for m in Game(name).machines.values() if type(m) is cls)
        subject.__class__ = rebel
        with pytest.raises(IllegalTransition, match=words):
            subject.handle(Start())
        assert subject.state == NEW
