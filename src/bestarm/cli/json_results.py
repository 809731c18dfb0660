"""The shapes of the short results that commands print with --json, one class for each.

Records, evidence, plans, studies and arenas have schemas of their own; see ``json_output.py``.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a command prints."""


class ReportFile(Result, frozen=True, kw_only=True):
    """What ``bestarm report --json`` prints."""

    file: str
    bytes: int


class LivePage(Result, frozen=True, kw_only=True):
    """What ``bestarm watch --json`` prints when the page can be opened."""

    url: str
    run: str


class NewScenario(Result, frozen=True, kw_only=True):
    """What ``bestarm new --json`` prints."""

    file: str
    columns: dict[str, str | tuple[str, ...]] | UnsetType = UNSET
    readings: tuple[dict[str, str | tuple[str, ...]], ...] | UnsetType = UNSET


class SignedTwice(Result, frozen=True, kw_only=True):
    """Two messages with one number and one signer."""

    client: str
    evidence: str


class Note(Result, frozen=True, kw_only=True):
    """What a client told the operator."""

    client: str
    text: str
    round: int
    later: bool


class Verified(Result, frozen=True, kw_only=True):
    """What ``bestarm verify --json`` prints."""

    ok: bool
    failures: tuple[str, ...] | UnsetType = UNSET
    accused: str | UnsetType = UNSET
    arm: str | UnsetType | None = UNSET
    events: int | UnsetType = UNSET
    suspects: dict[str, str] | UnsetType = UNSET
    evidence: tuple[SignedTwice, ...] | UnsetType = UNSET
    notes: tuple[Note, ...] | UnsetType = UNSET
    key_changes: tuple[str, ...] | UnsetType = UNSET
    assigned: int | UnsetType = UNSET
    told: int | UnsetType = UNSET
    counted: int | UnsetType = UNSET
    missing: int | UnsetType = UNSET


class Figure(Result, frozen=True, kw_only=True):
    """One of the paper's figures."""

    name: str
    title: str
    files: tuple[str, ...]


class Figures(Result, frozen=True, kw_only=True):
    """What ``bestarm figures --json`` prints."""

    folder: str
    trials: int
    seed: int
    figures: tuple[Figure, ...]


class ClientEnd(Result, frozen=True, kw_only=True):
    """What ``bestarm client --json`` prints at its end."""

    client: str | UnsetType = UNSET
    arm: str | UnsetType | None = UNSET
    pulls: int | UnsetType = UNSET
    interrupted: bool | UnsetType = UNSET
    folder: str | UnsetType = UNSET


class PeerStatus(Result, frozen=True, kw_only=True):
    """What ``bestarm peer --json`` prints at its end; ``status.json`` has all but the last four."""

    name: str
    state: str
    pulls: int
    speed: int
    knows: dict[str, str | None]
    arm: str | None
    decided: bool
    spent: bool
    hears: tuple[str, ...]
    waits_for: tuple[str, ...]
    unreachable: tuple[str, ...]
    suspects: dict[str, str]
    refused: dict[str, int]
    turned_away: int
    messages: int
    bytes: int
    reports: int
    done: bool
    times: dict[str, float]
    status: str | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    mean: float | UnsetType | None = UNSET
    interrupted: bool | UnsetType = UNSET


class TrialCheck(Result, frozen=True, kw_only=True):
    """One check of a client or a peer before its run."""

    ok: bool
    about: str
    what: str
    fix: str
    trouble: str


class Trial(Result, frozen=True, kw_only=True):
    """What ``bestarm client --test --json`` and ``bestarm peer --test --json`` print."""

    ok: bool
    findings: tuple[TrialCheck, ...]


class Bundle(Result, frozen=True, kw_only=True):
    """What ``bestarm federation bundle --json`` and ``bestarm mesh bundle --json`` print."""

    file: str
    contains: tuple[str, ...]


class FederationMade(Result, frozen=True, kw_only=True):
    """What ``bestarm federation init --json`` prints."""

    folder: str
    url: str
    clients: int
    run: str
    folders: dict[str, str]
    layout: str | None


class ClientChange(Result, frozen=True, kw_only=True):
    """What ``add-client``, ``revoke``, ``allow`` and ``drop`` of ``bestarm federation`` print."""

    client: str
    folder: str | UnsetType = UNSET
    revoked: bool | UnsetType = UNSET
    allowed: bool | UnsetType = UNSET
    dropped: bool | UnsetType = UNSET


class Certificate(Result, frozen=True, kw_only=True):
    """What ``bestarm federation renew-certificate --json`` prints."""

    certificate: str
    authority: str | UnsetType = UNSET
    next: str | UnsetType = UNSET


class ServerKey(Result, frozen=True, kw_only=True):
    """What ``bestarm federation renew-server-key --json`` prints."""

    key: str
    nkey: str


class FederationDemo(Result, frozen=True, kw_only=True):
    """What ``bestarm federation demo --json`` prints."""

    ok: bool
    record: dict[str, msgspec.Raw]
    notes: tuple[str, ...]


class MeshMade(Result, frozen=True, kw_only=True):
    """What ``bestarm mesh init --json`` prints."""

    folder: str
    nodes: int
    run: str
    folders: dict[str, str]


class Trouble(Result, frozen=True, kw_only=True):
    """Something that is wrong at a node."""

    node: str
    about: str
    what: str


class MeshChecked(Result, frozen=True, kw_only=True):
    """What ``bestarm mesh check --json`` prints."""

    ok: bool
    nodes: int
    troubles: tuple[Trouble, ...]


class MeshDemo(Result, frozen=True, kw_only=True):
    """What ``bestarm mesh demo --json`` prints."""

    ok: bool
    verdicts: dict[str, str | None]
    accused: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]


class ExperimentMade(Result, frozen=True, kw_only=True):
    """What ``bestarm experiment new --json`` prints."""

    folder: str
    caller: str
    token: str


class Caller(Result, frozen=True, kw_only=True):
    """What ``bestarm experiment caller --json`` prints."""

    caller: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    removed: str | UnsetType = UNSET


class Served(Result, frozen=True, kw_only=True):
    """What ``bestarm experiment serve --json`` prints when it takes requests."""

    url: str
    folder: str


class Stopped(Result, frozen=True, kw_only=True):
    """What ``bestarm experiment stop --json`` prints."""

    answer: str | None
    record: str


RESULTS: dict[str, type[Result]] = {
    "report": ReportFile,
    "watch": LivePage,
    "new": NewScenario,
    "verify": Verified,
    "figures": Figures,
    "client": ClientEnd,
    "peer": PeerStatus,
    "client --test": Trial,
    "federation init": FederationMade,
    "federation add-client": ClientChange,
    "federation renew-certificate": Certificate,
    "federation renew-server-key": ServerKey,
    "federation bundle": Bundle,
    "federation demo": FederationDemo,
    "mesh init": MeshMade,
    "mesh check": MeshChecked,
    "mesh demo": MeshDemo,
    "experiment new": ExperimentMade,
    "experiment caller": Caller,
    "experiment serve": Served,
    "experiment stop": Stopped,
}
# Commands that print the shape of another one.
SAME = {
    "peer --test": "client --test",
    "federation revoke": "federation add-client",
    "federation allow": "federation add-client",
    "federation drop": "federation add-client",
    "mesh bundle": "federation bundle",
}
