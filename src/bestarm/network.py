"""The network of a run of peers: who hears whom, how well, and whether it bears the liars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bestarm.adversary import Adversary, check_adversaries
from bestarm.errors import InputError, shorten
from bestarm.problem import Layout
from bestarm.topology import (
    SHARES,
    Graph,
    is_local,
    place_liars,
    strong_robustness,
    tolerance,
    weak_points,
    worst_cut,
)

PLACEMENTS = ("random", "worst")
MOST_TO_MEND = 300  # nodes; finding the edges that would help takes time with the square of them


@dataclass(frozen=True)
class Network:
    """Who hears whom, and how well: node k of the graph is the layout's client k, or has its name.

    `delay` in time-steps; `loss`: the probability that a message must be sent again; `start`: peers begin at
    random within so many steps; `crashes`: peers that are gone for a while, once each. With a `placement`,
    f-local liars ("random", or the "worst" cut) make the `attack`.
    """

    graph: Graph
    delay: float = 0.0
    loss: float = 0.0
    start: float = 0.0
    crashes: int = 0
    placement: str | None = None
    attack: str = "extreme"
    broken: str | None = None  # why nothing is promised, where a run was forced

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
                f"the network has {self.graph.n} nodes, but there are {len(layout.clients)} clients",
                expected="one node a client",
            )
        names = self.graph.names
        if names is None:
            return {client: k for k, client in enumerate(layout.clients)}
        if set(names) != set(layout.clients):
            strange = sorted(set(names) - set(layout.clients))[0]
            raise InputError(f'node "{strange}" of the network is no client', expected="the clients' names")
        return {name: k for k, name in enumerate(names)}

    def groups(self, layout: Layout) -> dict[str, list[Any]]:
        """The nodes of each group, as the graph calls them."""
        place = self.nodes(layout)
        named = self.graph.names is not None
        return {g.name: [c if named else place[c] for c in g.clients] for g in layout.groups}

    def refuse(self, layout: Layout, options: Any, adversaries: Sequence[Adversary] = ()) -> None:
        """InputError, with the remedy, if the network can't bear `byzantine` liars, or there are more."""
        groups, f = self.groups(layout), options.byzantine
        if adversaries and self.placement is not None:
            raise InputError(
                "[network] places liars, and [[adversary]] names some", expected="one of the two"
            )
        place, named = self.nodes(layout), self.graph.names is not None
        liars = [name if named else place[name] for name in check_adversaries(layout, adversaries)]
        if liars and not is_local(self.graph, liars, f):
            raise InputError(
                f"a client has more than byzantine = {f} of these liars around it",
                fix="Name fewer liars, raise byzantine, or use --force",
            )
        borne = tolerance(self.graph, groups, options.exchange)
        if borne < f:
            raise InputError(self._weakness(groups, f, borne, options.exchange))

    def _weakness(self, groups: dict[str, list[Any]], f: int, borne: int, exchange: str) -> str:
        need = SHARES[exchange] * f + 1
        found = {name: strong_robustness(self.graph, nodes) for name, nodes in groups.items()}
        weakest = min(found, key=lambda name: found[name][0])
        r, witness = found[weakest]
        if borne < 0:
            what = f'word of group "{weakest}" never reaches everybody'
        else:
            what = f"the network bears {borne} liars around each client, not byzantine = {f}"
        if witness:
            who = ", ".join(str(node) for node in sorted(witness, key=str)[:6])
            what += f': from group "{weakest}" it is strongly {r:g}-robust, and '
            what += f'exchange = "{exchange}" takes {need}'
            what += f" (nobody in {{{who}{', …' if len(witness) > 6 else ''}}} hears more from outside of it)"
        remedy = "Lower byzantine, or use --force"
        if borne == f - 1 and self.graph.n <= MOST_TO_MEND:
            try:
                more = weak_points(self.graph, groups, exchange)
                edges = ", ".join(f"{u}→{v}" for u, v in more[:4]) + (", …" if len(more) > 4 else "")
                remedy = f"Add {len(more)} edges ({edges}), lower byzantine, or use --force"
            except InputError as error:
                remedy = f"{str(error).rstrip('.')}; or lower byzantine, or use --force"
        return f"{what}. {remedy}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which ``from_dict`` makes it again, but for a placement: liars have names."""
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
        """The liars of a placement."""
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
