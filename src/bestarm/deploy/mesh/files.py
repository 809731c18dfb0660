"""The folders of a mesh: the topology file, and the folder of each node.

In the operator's folder: ``mesh.json`` (the terms, who hears whom, addresses, public keys and certificates),
``roster.json`` (key → client → group) and ``nodes/NAME/``, the folder to hand to each machine: ``peer.json``
(the terms, its own address, its neighbours with their addresses and certificates), ``roster.json``, the key
that signs its reports (``peer.key``) and the one of its certificate (``tls.key``, ``tls.pem``).

Certificates are self-signed and pinned: a node trusts exactly the certificates of its neighbours, so no
authority is needed. Creating a mesh again never overwrites a key, and keeps keys that were moved to their
machines.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy.envelope import RUN_BYTES
from bestarm.deploy.identity import Key, Member, Roster
from bestarm.deploy.mesh.certificates import certify, fingerprint, new_tls_key, problems_of, tls_key
from bestarm.deploy.process import demand_packages, free_port
from bestarm.deploy.terms import LABELS, Terms, labels_of, without_means
from bestarm.errors import InputError
from bestarm.graphs.graph import Graph, Node
from bestarm.problem.layout import Layout
from bestarm.problem.scale import Scale
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS, method_named
from bestarm.simulate.identify import prepare
from bestarm.simulate.network import Network
from bestarm.simulate.setup import Scenario
from bestarm.util.dates import today
from bestarm.util.disk_errors import write_error
from bestarm.util.files import SCHEMA, as_json, read, write
from bestarm.util.text import nearest

MESH, ROSTER, PEER, JOURNAL, STATUS = "mesh.json", "roster.json", "peer.json", "journal.db", "status.json"
RECORD = "record.json"
PORT = 7443  # port of the first node; the others use the following ones


class TooWeak(InputError):
    """The network does not tolerate this many liars."""


@dataclass(frozen=True)
class Neighbour:
    """Another node that this one hears (`hears`), or that hears it (`heard`), or both."""

    name: str
    address: str
    certificate: str
    hears: bool
    heard: bool


@dataclass(frozen=True)
class Place:
    """A node's folder."""

    folder: Path
    setup: Terms
    name: str
    address: str
    neighbours: tuple[Neighbour, ...]
    roster: Roster
    secret: Key | None  # its private key; None for an auditor

    @property
    def key(self) -> Key:
        return self.secret or Key.load(self.folder / "peer.key")

    @property
    def hears(self) -> tuple[str, ...]:
        return tuple(n.name for n in self.neighbours if n.hears)

    @property
    def heard(self) -> tuple[Neighbour, ...]:
        return tuple(n for n in self.neighbours if n.heard)

    @property
    def tls(self) -> tuple[bytes, bytes]:
        """Its private key and its certificate, for TLS."""
        key = tls_key(self.folder / "tls.key")
        try:
            return key, (self.folder / "tls.pem").read_bytes()
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=str(error.filename)) from None

    @staticmethod
    def load(folder: Path, *, secret: bool = True) -> Place:
        """Read a node's folder. Without `secret` it needs no private key and is read-only."""
        plain = read(folder / PEER, "Name the folder that bestarm mesh init made for this node")
        try:
            setup, name = terms_from_dict(plain["setup"]), str(plain["name"])
            neighbours = tuple(Neighbour(**n) for n in plain["neighbours"])
            if {name, *(n.name for n in neighbours)} - set(setup.layout.group_of):
                raise ValueError("the node is not a client of the layout")
            pins = [fingerprint(n.certificate) for n in neighbours]
            if len(set(pins)) < len(pins):
                raise ValueError("two neighbours have the same certificate")
            address = str(plain["address"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"can't be used ({error!r})", where=str(folder / PEER)) from None
        key = Key.load(folder / "peer.key") if secret else None
        roster = Roster.load(folder / ROSTER)
        own = roster.current.get(name)
        if key is not None and (own is None or own.key != key.public):
            raise InputError(
                f'the key is not the key of "{name}" in the roster', where=str(folder / "peer.key")
            )
        return Place(folder, setup, name, address, neighbours, roster, key)


def terms_to_dict(terms: Terms) -> dict[str, Any]:
    facts = {key: value for key, value in dataclasses.asdict(terms).items() if key not in LABELS}
    return {**facts, **terms.labels, "run": terms.run.hex()}


def terms_from_dict(plain: Mapping[str, Any]) -> Terms:
    run = bytes.fromhex(plain["run"])
    terms = Terms(run, plain["method"], plain["keys"], plain["problem"], **labels_of(plain))
    if len(terms.run) != RUN_BYTES or not method_named(terms.method).peers:
        raise ValueError("these are not the terms of a mesh")
    terms.room.refuse(terms.layout, terms.unit)
    return terms


def peer_method(wanted: str | None = None) -> str:
    """The requested method if its clients are peers; otherwise the first method whose clients are."""
    if wanted is not None and method_named(wanted).peers:
        return wanted
    return next(name for name, method in METHODS.items() if method.peers)


def terms_of(scenario: Scenario, keys: Mapping[str, Any]) -> tuple[Terms, Graph]:
    """The terms and the graph of a scenario with a [network]."""
    problem, method, options = prepare(scenario, peer_method(scenario.method), keys)
    if scenario.network is None:
        raise InputError("the scenario has no [network]", expected="[network] with file, edges or generator")
    graph = scenario.network.named(problem.layout).graph
    public, labels = without_means(problem), {"name": scenario.name, "date": today()}
    terms = Terms(secrets.token_bytes(RUN_BYTES), method, dataclasses.asdict(options), public, **labels)
    return terms, graph


def terms_for(
    graph: Graph,
    groups: Mapping[str, Sequence[Node]],
    arms: Mapping[str, Sequence[str]],
    keys: Mapping[str, Any],
) -> tuple[Terms, Graph]:
    """The terms of a bare graph: its groups, the arms of each, rewards in [0, 1]."""
    if set(groups) != set(arms):
        raise InputError("groups and arms do not match", expected='--arms "A=x,y;B=z" for every group')
    if graph.names is None:
        graph = Graph.from_edges(graph.n, graph.edges, names=[f"node-{k}" for k in range(graph.n)])
        groups = {name: [f"node-{k}" for k in nodes] for name, nodes in groups.items()}
    rows = [
        {"name": name, "arms": list(arms[name]), "clients": list(nodes), "binary": False}
        for name, nodes in groups.items()
    ]
    method = peer_method()
    options = make(METHODS[method].options, keys, where=f"method {method}")
    problem = {"scale": Scale().to_dict(), "finite": False, "groups": rows}
    terms = Terms(secrets.token_bytes(RUN_BYTES), method, dataclasses.asdict(options), problem, date=today())
    terms.room.refuse(terms.layout, terms.unit)
    return terms, graph


def init(
    terms: Terms,
    graph: Graph,
    folder: Path,
    addresses: Mapping[str, str] | None = None,
    *,
    port: int = PORT,
    new_run: bool = False,
) -> Terms:
    """Create or update a mesh's folder and return its terms, which are the old ones if nothing changed.

    `addresses` maps names to HOST:PORT. Nodes without an address are on this computer, at `port` and the
    following ports (0: free ports). With `new_run` a new run is always started; the keys stay. Raises TooWeak
    if the network does not tolerate ``byzantine`` liars.
    """
    demand_packages("mesh")
    layout, addresses = terms.layout, addresses or {}
    network = Network(graph)
    network.nodes(layout)
    try:
        network.refuse(layout, terms.unit.byzantine, terms.room.exchange(terms.unit))
    except InputError as error:
        raise TooWeak(str(error).replace(", or use --force", "")) from None
    for name, address in addresses.items():
        if name not in layout.group_of:
            raise InputError(
                f'there is no node "{name}"', where="addresses", fix=nearest(name, layout.group_of)
            )
        check_address(address)
    old = read(folder / MESH, "") if (folder / MESH).exists() else {"nodes": {}, "setup": None}
    terms = terms if new_run else _same_run(terms, graph, old)
    nodes: dict[str, dict[str, str]] = {}
    for k, name in enumerate(layout.clients):
        known = old["nodes"].get(name, {})
        default = known.get("address") or f"127.0.0.1:{port + k if port else _another_port(nodes)}"
        public, certificate = _keys(folder / "nodes" / folder_name(name, k), name, known)
        address = addresses.get(name, default)
        nodes[name] = {"address": address, "key": public, "certificate": certificate}
    roster = Roster(
        tuple(
            Member(name, layout.groups[layout.group_of[name]].name, bytes.fromhex(node["key"]))
            for name, node in nodes.items()
        )
    )
    edges = _edges(graph)
    for k, name in enumerate(layout.clients):
        _hand_out(folder / "nodes" / folder_name(name, k), terms, name, nodes, edges, roster)
    roster.save(folder / ROSTER)
    plain = {"schema": SCHEMA, "setup": terms_to_dict(terms), "edges": edges, "nodes": nodes}
    write(folder / MESH, as_json(plain))
    return terms


def _another_port(nodes: Mapping[str, Mapping[str, str]]) -> int:
    taken = {node["address"].rpartition(":")[2] for node in nodes.values()}
    return next(port for port in iter(free_port, None) if str(port) not in taken)


def _edges(graph: Graph) -> list[list[str]]:
    assert graph.names is not None
    return [[graph.names[u], graph.names[v]] for u, v in graph.edges.tolist() if u != v]


def _same_run(terms: Terms, graph: Graph, old: Mapping[str, Any]) -> Terms:
    """The id of the old run if its terms are the same, so that running peers can continue."""
    if old["setup"] is None:
        return terms
    labels, run = labels_of(old["setup"]), bytes.fromhex(old["setup"]["run"])
    kept = dataclasses.replace(terms, run=run, name=labels["name"], date=labels["date"])
    same = _read_back(terms_to_dict(kept)) == old["setup"] and _edges(graph) == old["edges"]
    return kept if same else terms


def _read_back(value: Any) -> Any:
    """The value as it would be read back from JSON."""
    return json.loads(as_json(value))


def folder_name(name: str, k: int) -> str:
    """A client's name if it is a safe folder name; otherwise a name that no client can have."""
    return name if re.fullmatch(r"\w[\w.-]{0,60}", name, re.ASCII) else f"node+{k}"


def _keys(place: Path, name: str, known: Mapping[str, str]) -> tuple[str, str]:
    """A node's public key and certificate, created if they do not exist yet."""
    signing, tls = place / "peer.key", place / "tls.key"
    if known and not signing.exists() and not tls.exists():
        return known["key"], known["certificate"]  # the keys were moved to its machine
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise write_error(error, place, "can't be made") from None
    public = (Key.load(signing) if signing.exists() else Key.create(signing)).public.hex()
    if not tls.exists():
        write(tls, new_tls_key(), 0o600)
    pem = place / "tls.pem"
    if not pem.exists() or problems_of(pem.read_text(), tls_key(tls)):
        write(pem, certify(tls_key(tls), name))
    return public, pem.read_text()


def _hand_out(
    place: Path, terms: Terms, name: str, nodes: Mapping[str, Mapping[str, str]], edges: list[list[str]],
    roster: Roster,
) -> None:  # fmt: skip
    """Write the public files of one node."""
    hears = {u for u, v in edges if v == name}
    heard = {v for u, v in edges if u == name}
    neighbours = [
        Neighbour(other, node["address"], node["certificate"], other in hears, other in heard)
        for other, node in nodes.items()
        if other in hears | heard
    ]
    plain = {
        "schema": SCHEMA,
        "name": name,
        "address": nodes[name]["address"],
        "setup": terms_to_dict(terms),
        "neighbours": [dataclasses.asdict(n) for n in neighbours],
    }
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(place / PEER, as_json(plain))
    roster.save(place / ROSTER)


def check_address(address: str) -> None:
    """Raise InputError unless it is HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", host, re.ASCII) or not re.fullmatch(r"\d{1,5}", port):
        raise InputError(f'"{address}" is not an address', expected="HOST:PORT, like 192.0.2.7:7443")
    if not 0 < int(port) < 65536:
        raise InputError(f"port {port}", where=address, expected="1 to 65535")


def places(folder: Path) -> list[Path]:
    """The node folders in this folder: itself, or all those that ``init`` created."""
    if (folder / PEER).exists():
        return [folder]
    plain = read(folder / MESH, "Name a folder that bestarm mesh init made")
    layout = terms_from_dict(plain["setup"]).layout
    return [folder / "nodes" / folder_name(name, k) for k, name in enumerate(layout.clients)]


def place_of(folder: Path, layout: Layout, name: str) -> Path:
    """The path of a node's folder in the operator's folder."""
    return folder / "nodes" / folder_name(name, layout.clients.index(name))
