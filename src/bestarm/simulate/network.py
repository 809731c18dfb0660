"""The network of a run of peers: its graph, delays and losses, and whether it tolerates the liars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph, Node
from bestarm.graphs.robustness import (
    SHARES,
    is_local,
    place_liars,
    strong_robustness,
    tolerance,
    weak_points,
    worst_cut,
)
from bestarm.problem.layout import Layout
from bestarm.simulate.adversary import Adversary, check_adversaries
from bestarm.util.text import counted, shorten

PLACEMENTS = ("random", "worst")
MOST_TO_FIX = 300  # nodes; the time to find helpful edges grows with the square of this


@dataclass(frozen=True)
class Network:
    """A simulated network of peers.

    Parameters
    ----------
    graph : Graph
        Which client hears which. Without names, node k is the layout's client k; with names, a node is the
        client of the same name.
    delay : float
        The average time steps that a message takes; a single message takes 50 % to 150 % of it.
    loss : float
        The probability that a message is lost and must be sent again.
    start : float
        Each peer starts at a random time within this many time steps.
    crashes : int
        How many peers crash once and come back.
    placement : {None, "random", "worst"}
        Place f-local liars at random, or where they cut the network worst.
    attack : str
        The attack of the placed liars.
    broken : str or None
        Why the run carries no guarantee, if it was forced on a network that is too weak.

    Raises
    ------
    InputError
        If a value is out of range.

    Examples
    --------
    >>> from bestarm.graphs.generators import complete
    >>> Network(complete(4), delay=10.0).loss
    0.0
    """

    graph: Graph
    delay: float = 0.0
    loss: float = 0.0
    start: float = 0.0
    crashes: int = 0
    placement: str | None = None
    attack: str = "extreme"
    broken: str | None = None

    def __post_init__(self) -> None:
        for key, value, fine in (
            ("delay", self.delay, 0 <= self.delay < 1e12),
            ("loss", self.loss, 0 <= self.loss < 1),
            ("start", self.start, 0 <= self.start < 1e12),
            ("crashes", self.crashes, type(self.crashes) is int and self.crashes >= 0),
            ("placement", self.placement, self.placement in (None, *PLACEMENTS)),
        ):
            if not fine:
                expected = {
                    "loss": "a probability below 1",
                    "placement": " or ".join(f'"{p}"' for p in PLACEMENTS),
                }.get(key, "a number of at least 0")
                raise InputError(f"{key} = {shorten(value)}", where="network", expected=expected)

    def nodes(self, layout: Layout) -> dict[str, int]:
        """The node of each client."""
        if self.graph.n != len(layout.clients):
            raise InputError(
                f"the network has {counted(self.graph.n, 'node')}, but the problem has "
                f"{counted(len(layout.clients), 'client')}",
                expected="one node per client",
            )
        names = self.graph.names
        if names is None:
            return {client: k for k, client in enumerate(layout.clients)}
        if set(names) != set(layout.clients):
            strange = sorted(set(names) - set(layout.clients))[0]
            raise InputError(
                f'node "{strange}" of the network is not a client', expected="the clients' names"
            )
        return {name: k for k, name in enumerate(names)}

    def named(self, layout: Layout) -> Network:
        """The same network, whose nodes have the names of the clients."""
        if self.graph.names is not None:
            return self
        self.nodes(layout)  # checks their number
        return replace(self, graph=replace(self.graph, names=layout.clients))

    def groups(self, layout: Layout) -> dict[str, list[Node]]:
        """The nodes of each group, by name if the graph has names, else by number."""
        place = self.nodes(layout)
        named = self.graph.names is not None
        return {g.name: [c if named else place[c] for c in g.clients] for g in layout.groups}

    def refuse(
        self, layout: Layout, byzantine: int, exchange: str, adversaries: Sequence[Adversary] = ()
    ) -> None:
        """InputError, with a fix, if the network does not tolerate `byzantine` liars, or there are more."""
        if self.graph.names is None:  # so that errors name clients
            self.named(layout).refuse(layout, byzantine, exchange, adversaries)
            return
        groups, f = self.groups(layout), byzantine
        if adversaries and self.placement is not None:
            raise InputError(
                "[network] places liars, and [[adversary]] names liars too", expected="one of the two"
            )
        liars = list(check_adversaries(layout, adversaries))
        if liars and not is_local(self.graph, liars, f):
            raise InputError(
                f"a client has more than byzantine = {f} of these liars around it",
                fix="Name fewer liars, raise byzantine, or use --force",
            )
        tolerated = tolerance(self.graph, groups, exchange)
        if tolerated < f:
            raise InputError(self._weakness(groups, f, tolerated, exchange))

    def _weakness(self, groups: dict[str, list[Node]], f: int, tolerated: int, exchange: str) -> str:
        need = SHARES[exchange] * f + 1
        found = {name: strong_robustness(self.graph, nodes) for name, nodes in groups.items()}
        weakest = min(found, key=lambda name: found[name][0])
        r, witness = found[weakest]
        if tolerated < 0:
            what = f'some clients never learn about group "{weakest}"'
        else:
            what = f"the network tolerates {tolerated} liars around each client, fewer than byzantine = {f}"
        if witness:
            who = ", ".join(str(node) for node in sorted(witness, key=str)[:6])
            what += f': from group "{weakest}" it is strongly {r:g}-robust, and '
            what += f'exchange = "{exchange}" needs {need}'
            what += f" (no node in {{{who}{', …' if len(witness) > 6 else ''}}} hears more nodes outside it)"
        remedy = "Lower byzantine, or use --force"
        if tolerated == f - 1 and self.graph.n <= MOST_TO_FIX:
            try:
                more = weak_points(self.graph, groups, exchange)
                edges = ", ".join(f"{u}→{v}" for u, v in more[:4]) + (", …" if len(more) > 4 else "")
                remedy = f"Add {counted(len(more), 'edge')} ({edges}), lower byzantine, or use --force"
            except InputError as error:
                remedy = f"{str(error).rstrip('.')}; or lower byzantine, or use --force"
        return f"{what}. {remedy}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``from_dict``, without the placement: the liars are listed by name elsewhere."""
        facts = {key: getattr(self, key) for key in ("delay", "loss", "start", "crashes", "broken")}
        names = None if self.graph.names is None else list(self.graph.names)
        return {"nodes": self.graph.n, "names": names, "edges": self.graph.edges.tolist(), **facts}

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Network:
        """The network that ``to_dict`` described."""
        made = ("nodes", "names", "edges", "messages")
        rest = {key: value for key, value in plain.items() if key not in made}
        return Network(Graph.from_edges(plain["nodes"], plain["edges"], names=plain["names"]), **rest)

    def liars(self, layout: Layout, f: int, seed: int) -> list[Adversary]:
        """The liars that `placement` chooses."""
        if self.placement is None or f == 0:
            return []
        groups = self.groups(layout)
        if self.placement == "random":
            chosen = place_liars(self.graph, groups, f, seed)
        else:
            chosen = worst_cut(self.graph, groups, f)
        place = self.nodes(layout)
        names = {c for c, k in place.items() if k in chosen or c in chosen}
        found = []
        for group in layout.groups:
            mine = [c for c in group.clients if c in names]
            if mine:
                found.append(Adversary(group.name, self.attack, mine))
        return found
