"""The folders of a mesh: the topology file, and what goes to each node.

In the operator's folder: ``mesh.json`` (the terms, who hears whom, addresses, public keys and certificates),
``roster.json`` (key → client → group) and ``nodes/NAME/``, the folder to hand to each machine: ``peer.json``
(the terms, its own address, its neighbours with their addresses and certificates), ``roster.json``, the key
that signs its reports (``peer.key``) and the one of its certificate (``tls.key``, ``tls.pem``).

Certificates are self-signed and pinned: those of a node's neighbours are its trust roots, and no authority
is needed. Making a mesh again never overwrites a key, and keeps those that were moved to their machines.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bestarm.deploy import SCHEMA, Terms, as_json, demand_packages, free_port, read, without_means, write
from bestarm.errors import InputError, nearest
from bestarm.identity import RUN_BYTES, Key, Member, Roster, read_secret
from bestarm.network import Network
from bestarm.problem import Layout
from bestarm.protocol import METHODS
from bestarm.protocol.options import make
from bestarm.rewards import Scale
from bestarm.scenario import Scenario
from bestarm.simulate import prepare
from bestarm.topology import Graph

METHOD = "p2p"
MESH, ROSTER, PEER, JOURNAL, STATUS = "mesh.json", "roster.json", "peer.json", "journal.db", "status.json"
PORT = 7443  # of the first node; the others have the next ones
HOST = "bestarm.mesh"  # the name in every certificate: who someone is, the certificate as a whole says
DAYS = 3650


class TooWeak(InputError):
    """The network can't bear so many liars."""


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
    secret: Key | None  # its private key, which an auditor does not have

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
        """Read it; without `secret` it needs no private key, and can only be looked at."""
        plain = read(folder / PEER, "Name the folder that bestarm mesh init made for this node")
        try:
            setup, name = terms_from_dict(plain["setup"]), str(plain["name"])
            neighbours = tuple(Neighbour(**n) for n in plain["neighbours"])
            if {name, *(n.name for n in neighbours)} - set(setup.layout.group_of):
                raise ValueError("a node that is no client of the layout")
            pins = [fingerprint(n.certificate) for n in neighbours]
            if len(set(pins)) < len(pins):
                raise ValueError("two neighbours with one certificate")
            address = str(plain["address"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"can't be used ({error!r})", where=str(folder / PEER)) from None
        key = Key.load(folder / "peer.key") if secret else None
        roster = Roster.load(folder / ROSTER)
        own = roster.current.get(name)
        if key is not None and (own is None or own.key != key.public):
            raise InputError(f'the key is not that of "{name}" in the roster', where=str(folder / "peer.key"))
        return Place(folder, setup, name, address, neighbours, roster, key)


def terms_to_dict(terms: Terms) -> dict[str, Any]:
    return {**dataclasses.asdict(terms), "run": terms.run.hex()}


def terms_from_dict(plain: Mapping[str, Any]) -> Terms:
    terms = Terms(bytes.fromhex(plain["run"]), plain["method"], plain["keys"], plain["problem"])
    if len(terms.run) != RUN_BYTES or terms.method != METHOD:
        raise ValueError("these are not the terms of a mesh")
    terms.room.refuse(terms.layout, terms.unit)
    return terms


def terms_of(scenario: Scenario, keys: Mapping[str, Any]) -> tuple[Terms, Graph]:
    """The terms and the graph of a scenario with a [network]."""
    problem, _, options = prepare(scenario, METHOD, keys)
    if scenario.network is None:
        raise InputError("the scenario has no [network]", expected="[network] with file, edges or generator")
    graph, names = scenario.network.graph, problem.layout.clients
    if graph.names is None:
        scenario.network.nodes(problem.layout)  # checks them
        graph = Graph.from_edges(graph.n, graph.edges, names=names)
    terms = Terms(secrets.token_bytes(RUN_BYTES), METHOD, dataclasses.asdict(options), without_means(problem))
    return terms, graph


def terms_for(
    graph: Graph,
    groups: Mapping[str, Sequence[Any]],
    arms: Mapping[str, Sequence[str]],
    keys: Mapping[str, Any],
) -> tuple[Terms, Graph]:
    """The terms of a bare graph: its groups, the arms of each, rewards in [0, 1]."""
    if set(groups) != set(arms):
        raise InputError("groups and arms don't fit together", expected='--arms "A=x,y;B=z" for every group')
    if graph.names is None:
        graph = Graph.from_edges(graph.n, graph.edges, names=[f"node-{k}" for k in range(graph.n)])
        groups = {name: [f"node-{k}" for k in nodes] for name, nodes in groups.items()}
    rows = [
        {"name": name, "arms": list(arms[name]), "clients": list(nodes), "binary": False}
        for name, nodes in groups.items()
    ]
    options = make(METHODS[METHOD].options, keys, where=f"method {METHOD}")
    problem = {"scale": dataclasses.asdict(Scale()), "finite": False, "groups": rows}
    terms = Terms(secrets.token_bytes(RUN_BYTES), METHOD, dataclasses.asdict(options), problem)
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
    """Make a mesh's folder, or make it again; the terms that hold, which are the old ones if nothing changed.

    `addresses` are HOST:PORT by name; without one a node is on this computer, at `port` and the next ones
    (0: free ones). With `new_run` it is another run in any case; the keys stay. TooWeak if the network can't
    bear ``byzantine`` liars.
    """
    demand_packages("mesh")
    layout, addresses = terms.layout, addresses or {}
    network = Network(graph)
    network.nodes(layout)
    try:
        network.refuse(layout, terms.unit)
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
    """The old run's id, if these are its terms: peers that are at work go on."""
    if old["setup"] is None:
        return terms
    kept = dataclasses.replace(terms, run=bytes.fromhex(old["setup"]["run"]))
    same = _read_back(terms_to_dict(kept)) == old["setup"] and _edges(graph) == old["edges"]
    return kept if same else terms


def _read_back(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(as_json(value))


def folder_name(name: str, k: int) -> str:
    """A client's name where it can be one of a folder; else one that no client's can be."""
    return name if re.fullmatch(r"\w[\w.-]{0,60}", name, re.ASCII) else f"node+{k}"


def _keys(place: Path, name: str, known: Mapping[str, str]) -> tuple[str, str]:
    """A node's public key and certificate; made, where there are none yet."""
    signing, tls = place / "peer.key", place / "tls.key"
    if known and not signing.exists() and not tls.exists():
        return known["key"], known["certificate"]  # they were moved to its machine
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"can't be made: {error.strerror}", where=str(place)) from None
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
    """The files of one node that all may know."""
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
    """InputError unless it is HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(r"[\w.-]+|\[[0-9a-fA-F:.]+\]", host, re.ASCII) or not re.fullmatch(r"\d{1,5}", port):
        raise InputError(f'"{address}" is no address', expected="HOST:PORT, like 192.0.2.7:7443")
    if not 0 < int(port) < 65536:
        raise InputError(f"port {port}", where=address, expected="1 to 65535")


def places(folder: Path) -> list[Path]:
    """The folders of nodes in this one: itself, or all that ``init`` made."""
    if (folder / PEER).exists():
        return [folder]
    plain = read(folder / MESH, "Name a folder that bestarm mesh init made")
    layout = terms_from_dict(plain["setup"]).layout
    return [folder / "nodes" / folder_name(name, k) for k, name in enumerate(layout.clients)]


def place_of(folder: Path, layout: Layout, name: str) -> Path:
    """Where a node's folder lies in the operator's."""
    return folder / "nodes" / folder_name(name, layout.clients.index(name))


def fingerprint(pem: str | bytes) -> bytes:
    """SHA-256 of a certificate: what is pinned."""
    text = pem.decode("ascii", "replace") if isinstance(pem, bytes) else pem
    found = re.search(r"-----BEGIN CERTIFICATE-----([\sA-Za-z0-9+/=]+)-----END CERTIFICATE-----", text)
    if found is None:
        raise ValueError("this is no certificate")
    return hashlib.sha256(base64.b64decode("".join(found[1].split()))).digest()


def new_tls_key() -> bytes:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def tls_key(path: Path) -> bytes:
    """The private key in a file that only its owner can read; InputError for any other."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_secret(path)
    try:
        load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError("this is no private key", where=str(path), expected="PEM, no password") from None
    return data


def certify(key: bytes, name: str, days: int = DAYS) -> bytes:
    """A self-signed certificate for this key, which is no authority: it can't vouch for another."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    private: Any = serialization.load_pem_private_key(key, None)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - datetime.timedelta(days=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def problems_of(pem: str, key: bytes | None = None) -> list[str]:
    """What is wrong with a certificate: not one, expired, not yet valid, or of another key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        return ["this is no certificate"]
    now, found = datetime.datetime.now(datetime.UTC), []
    if certificate.not_valid_after_utc <= now:
        found.append(f"the certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    if certificate.not_valid_before_utc > now:
        found.append(f"the certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%d} on")
    if key is not None:
        private = serialization.load_pem_private_key(key, None)
        if private.public_key() != certificate.public_key():
            found.append("the certificate is not that of the key next to it")
    return found
