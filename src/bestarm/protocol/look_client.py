"""A client of a server that works in looks: it pulls up to a count, reports, and waits for the answer.

This is the counterpart of ``SoloServer`` and ``GroupServer``. A method's client defines how a look begins,
how it handles rewards and messages, and what it sends when it stops pulling.
"""

from __future__ import annotations

from typing import ClassVar

from bestarm.protocol.events import Pulled, Received, Start, Stop
from bestarm.protocol.machine import Transitions
from bestarm.protocol.served_client import Message, ServedClient


class LookClient(ServedClient[Message]):
    """The base class of a client that works in looks; `Message` is what its server may send to continue.

    Parameters
    ----------
    layout : Layout
        The groups, their arms and their clients.
    name : str
        The client's name.
    """

    transitions: ClassVar[Transitions] = {
        ("new", Start): frozenset({"pulling", "reported", "done"}),
        ("pulling", Pulled): frozenset({"pulling", "reported"}),
        ("pulling", Received): frozenset({"pulling", "done"}),
        ("pulling", Stop): frozenset({"reported"}),
        ("reported", Received): frozenset({"reported", "pulling", "done"}),
        ("reported", Stop): frozenset({"reported"}),
        ("done", Received): frozenset({"done"}),
        ("done", Stop): frozenset({"done"}),
    }
