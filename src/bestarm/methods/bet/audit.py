"""The audit of Fed-Bet: a client's part of a certificate is repeated by a client machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from bestarm.methods.bet.client import Client
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.server import Server
from bestarm.problem.layout import Layout
from bestarm.protocol.events import Action, Event, Pulled, Received, Send, Start, Stop, Supply
from bestarm.protocol.machine import ClientMachine, IllegalEvent
from bestarm.protocol.rounds import SERVER


def pulls_of(part: Mapping[str, Any], arms: int, options: Bet) -> tuple[int, int]:
    """The pulls before the first bets, and in the blocks, from a client's part of the certificate."""
    first, later = part["pulls"]
    return first, later


def good_event(
    layout: Layout, options: Bet, means: Sequence[Sequence[float]], certificate: Mapping[str, Any]
) -> bool | None:
    """Whether the best arm never left; None if it is not unique, or if a client was dropped."""
    flat = [(mean, j, arm) for j, row in enumerate(means) for arm, mean in enumerate(row)]
    top = max(flat)[0]
    best = [(j, arm) for mean, j, arm in flat if mean == top]
    if len(best) > 1 or any(row[0] == "drop" for row in certificate["server"]["events"]):
        return None
    ((j, arm),) = best
    return arm not in certificate["local"][layout.groups[j].clients[0]]["exits"]["arm"]


def audit_client(part: Mapping[str, Any], server: Server, name: str) -> Iterator[str]:
    """Repeat a client with its rewards and the server's broadcasts, and compare all that it says."""
    return repeat(Client(server.layout, name, server.options), part, server)


class Broadcaster(Protocol):
    """A server that keeps what it received and said."""

    events: list[list[Any]]
    said: list[bytes]

    def __hash__(self) -> int: ...


class Listener(ClientMachine, Protocol):
    """A client that counts the messages of the server."""

    heard: int


@lru_cache(maxsize=1)  # the same server is asked about all of its clients
def _received(server: Broadcaster, events: int) -> dict[str, list[str]]:
    """What a server received from each client, in order; `events` is how many events it has."""
    found: dict[str, list[str]] = {}
    for row in server.events:
        if row[0] == "received":
            found.setdefault(row[1], []).append(row[2])
    return found


def repeat(client: Listener, part: Mapping[str, Any], server: Broadcaster) -> Iterator[str]:
    """Let a new client do what a certificate says, and compare all that it says."""
    name = client.name
    sent: list[str] = []
    downs = iter(server.said)

    def tell(event: Event) -> None:
        actions: list[Action] = client.handle(event)
        sent.extend(action.payload.hex() for action in actions if isinstance(action, Send))

    def hear(heard: int) -> None:
        while client.heard < heard:
            tell(Received(SERVER, next(downs)))

    try:
        if part["supply"]:
            tell(Supply(tuple(part["supply"])))
        tell(Start())
        for row in part["batches"]:
            hear(row["heard"])
            if "stop" in row:
                tell(Stop("budget"))
                continue
            moments = {c: tuple(row[c]) for c in ("squares", "least", "most") if c in row}
            pairs = tuple((s, q, low, high) for s, q, low, high in row.get("pairs", ()))
            tell(Pulled(tuple(row["sums"]), row["times"], **moments, pairs=pairs))
        for down in downs:
            tell(Received(SERVER, down))
    except (IllegalEvent, StopIteration):
        yield "has rewards that do not match the pulls of the run"
        return
    if client.local() != part:
        yield "has wealths, exits or pulls that do not follow from its rewards"
    told = _received(server, len(server.events)).get(name, [])
    if told != sent[: len(told)]:
        yield "sent messages that do not follow from its rewards"
