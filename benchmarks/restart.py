"""The restart of a federation's server from a journal of 100,000 messages.

100 clients answer 1,000 rounds of Fed-SEL, without a network. Rewards are constant and all means are equal,
so that no client drops out. "All signatures" is a replay that checks every signature, as ``bestarm verify``
does; "after the last mark" is what a server does. Both check the whole chain of hashes and feed every message
to the server's machine. Times are those of the processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import bestarm as ba
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files
from bestarm.deploy.federation.desk import KIND, UP, Desk
from bestarm.deploy.identity import Key, Roster
from bestarm.protocol.events import Pull, Pulled, Received, Send, Start
from bestarm.protocol.machine import ClientMachine
from bestarm.protocol.rounds import SERVER
from bestarm.simulate.setup import Scenario
from bestarm.util.journal import Journal

CLIENTS, ROUNDS = 100, 1000


def measure() -> list[dict[str, Any]]:
    problem = ba.Problem.from_rewards({f"g{k}": {"arm": 0.5} for k in range(CLIENTS)})
    scenario = Scenario(problem, "fed-sel", None, {"period": 1, "c": 2.0, "max_rounds": ROUNDS + 1})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "federation"
        files.init(scenario, folder, port=0, spare=0)
        key = Key.load(folder / "server.key")
        begun = time.process_time()
        messages = _fill(folder, key)
        taken = time.process_time() - begun
        path = folder / files.JOURNAL
        return [
            {
                "messages": messages,
                "CPU ms to make and take one": 1e3 * taken / messages,
                "restart CPU s, all signatures": _restart(path),
                "restart CPU s, after the last mark": _restart(path, key),
                "journal MB": path.stat().st_size / 1e6,
            }
        ]


def _restart(path: Path, *keys: Key) -> float:
    begun = time.process_time()
    with Journal.open(path, KIND) as journal:
        desk = Desk(journal, *keys)
    assert not desk.failures, desk.failures[0]
    return time.process_time() - begun


def _fill(folder: Path, key: Key) -> int:
    """Let the clients answer every round, one batch per round; return the number of messages."""
    setup = files.Federation.load(folder).setup
    places = [files.Place.load(path) for path in (folder / "clients").iterdir() if path.is_dir()]
    machines = {place.client: setup.room.client(setup.layout, place.client, setup.unit) for place in places}
    desk = Desk.create(folder / files.JOURNAL, setup, Roster.load(folder / files.ROSTER), key)
    said = {client: _answers(machine, [Start()]) for client, machine in machines.items()}
    numbers, heard = dict.fromkeys(machines, 0), 0
    while any(said.values()) and not desk.done:
        batch = []
        for place in places:
            for content in said[place.client]:
                number = numbers[place.client]
                batch.append(Envelope.sign(place.key, setup.run, place.client, UP, number, content).encode())
                numbers[place.client] += 1
        desk.take(batch)
        downs = [Envelope.decode(data).content for data in desk.broadcasts[heard:]]
        heard += len(downs)
        events = [Received(SERVER, content) for content in downs]
        said = {client: _answers(machine, events) for client, machine in machines.items()}
    desk.journal.close()
    return sum(numbers.values())


def _answers(machine: ClientMachine, events: list[Any]) -> list[bytes]:
    """The messages of a client after these events; each reward is one half."""
    said, waiting = [], list(events)
    while waiting:
        for action in machine.handle(waiting.pop(0)):
            match action:
                case Send(_, payload):
                    said.append(payload)
                case Pull(arms, times) if arms:
                    waiting.insert(0, Pulled((0.5 * times,) * len(arms), times))
    return said
