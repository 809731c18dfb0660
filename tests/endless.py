"""A federation that never ends: each message of a client is answered by a broadcast, and the other way round.

Its machines keep nothing, so that a test of long runs sees what the folds keep.
"""

from __future__ import annotations

import dataclasses
import types

import numpy as np

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files
from bestarm.deploy.federation.desk import UP, Desk
from bestarm.deploy.federation.site import Site
from bestarm.deploy.identity import Key, Roster
from bestarm.protocol.events import ALL, Received, Send
from bestarm.protocol.registry import METHODS, register_method
from bestarm.util.journal import Journal
from federations import scenario

NAME = "endless"


class EndlessServer:
    """Answers each message with a broadcast."""

    state, verdict, ignored, bytes = "waiting", None, 0, 0

    def __init__(self, layout, options):
        self.layout, self.round, self.bits_up, self.bits_down = layout, 0, 0, 0
        self.active = np.ones(len(layout.groups), dtype=bool)
        self.faulty, self.warnings, self.history = [], [], []

    def handle(self, event):
        if not isinstance(event, Received):
            return []
        self.round += 1
        self.bits_up += 8 * len(event.data)
        return [Send(ALL, b"answer %d" % self.round, 64)]

    def missing_clients(self):
        return []

    def forget(self):
        """There is nothing to forget."""


class EndlessClient:
    """Answers each broadcast with a message."""

    state, stoppable, spent = "waiting", False, False

    def __init__(self, layout, name, options):
        self.heard = 0

    def handle(self, event):
        self.heard += isinstance(event, Received)
        return [Send("server", b"message %d" % self.heard, 64)]

    def forget(self):
        """There is nothing to forget."""


def endless(folder):
    """Create the folder of such a federation with two clients, west-1 and east-1."""
    if NAME not in METHODS:
        fed_sel = METHODS["fed-sel"]
        register_method(
            dataclasses.replace(fed_sel, name=NAME, server=EndlessServer, client=EndlessClient, grouped=None)
        )
    files.init(scenario(NAME, {"west": {"a": 0.9}, "east": {"b": 0.1}}), folder, port=0)
    return folder


class Office:
    """The desk of such a federation, and its clients' keys."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / files.JOURNAL
        self.setup = files.Federation.load(folder).setup
        self.key = Key.load(folder / "server.key")
        places = [files.Place.load(path) for path in sorted((folder / "clients").iterdir()) if path.is_dir()]
        self.places = {place.client: place for place in places}
        self.numbers = dict.fromkeys(self.places, 0)
        self.desk = Desk.create(self.path, self.setup, Roster.load(folder / files.ROSTER), self.key)

    def restart(self, *keys):
        """Open the desk again from its journal."""
        self.desk.journal.close()
        journal = Journal.open(self.path)
        try:
            self.desk = Desk(journal, *(keys or (self.key,)))
        except BaseException:
            journal.close()
            raise
        return self.desk

    def message(self, number, client="west-1", content=b"", key=None):
        key = key or self.places[client].key
        return Envelope.sign(key, self.setup.run, client, UP, number, content or b"%d" % number).encode()

    def send(self, count, client="west-1", batch=8):
        """Let the desk take the next messages of a client."""
        first, self.numbers[client] = self.numbers[client], self.numbers[client] + count
        for start in range(first, first + count, batch):
            numbers = range(start, min(start + batch, first + count))
            self.desk.take([self.message(number, client) for number in numbers])

    def site(self, client="west-1"):
        return Site.open(self.places[client])

    def state(self):
        """What the desk knows, for comparisons."""
        desk = self.desk
        return types.SimpleNamespace(
            next=dict(desk.next), accepted=dict(desk.slots.accepted), evidence=dict(desk.slots.evidence),
            used=dict(desk.slots.used), signers=desk.slots.signers, round=desk.machine.round,
            bits=dict(desk.bits), broadcasts=list(desk.broadcasts), changes=desk.changes, server=desk.server,
            ids=[desk.id_of(number) for number in range(len(desk.broadcasts))], notes=desk.notes,
        )  # fmt: skip
