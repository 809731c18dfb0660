"""The facts that pages and pictures are drawn from, as frozen structs; numbers are on the user's scale.

Unknown facts are None or empty: an unfinished run has no verdict, a server does not know pulls, and a
federation does not know true means.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bestarm.problem.scale import Scale
from bestarm.protocol.trace import Why
from bestarm.protocol.verdict import Verdict
from bestarm.records.build import FILLED
from bestarm.records.card import AnswerCard, Outlook
from bestarm.records.questions import OptionTable
from bestarm.records.record import Visitors

LineFate = Literal["in", "out", "withdrew"]


class MethodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The method as its registry entry and its options describe it.

    `premise` is a further assumption of the guarantee; `claims_intervals` says whether the method claims that
    the intervals shown contain the means, or whether they are illustrative only; `interval_promise` is what
    it promises about the interval of the winner.
    """

    name: str
    title: str
    summary: str
    axis: str
    peers: bool
    claims_intervals: bool
    premise: str
    interval_promise: str = ""


class DataFacts(msgspec.Struct, frozen=True):
    """The data file of the rewards: its description, and whether rows are drawn with replacement.

    `simulation` says how many draws were made, once that is known.
    """

    said: str
    resample: bool
    simulation: str = ""


class GroupFacts(msgspec.Struct, frozen=True):
    """A group: its name, its arms, and the number of its clients."""

    name: str
    arms: tuple[str, ...]
    clients: int


class BandFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A mean with its interval after a number of pulls."""

    pulls: tuple[int, ...]
    mean: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


class LineFacts(BandFacts, frozen=True, kw_only=True):
    """A group's arm over time. `when` is the round in which it was dropped or withdrew; None for peers."""

    group: int
    name: str
    round: tuple[int, ...]
    fate: LineFate
    when: int | None


class TraceFacts(BandFacts, frozen=True, kw_only=True):
    """An arm inside its group, as one client saw it; `out` says whether it was dropped."""

    group: int
    arm: str
    client: str
    out: bool


class BetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The logarithm of the wealth of the bets against an option after a number of pulls; `out` if it left."""

    name: str
    pulls: tuple[int, ...]
    log_wealth: tuple[float, ...]
    out: bool


class WealthFacts(msgspec.Struct, frozen=True):
    """The bets against every option; one leaves when the logarithm of its wealth reaches the limit."""

    limit: float
    bets: tuple[BetFacts, ...]


class ExitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An arm or a whole group that was dropped: when, by whom, what beat it, and why.

    `clients` of `of` clients of the group dropped it; both are None if the server did. `lower` and `upper`
    are the ends of its interval then, if they are known.
    """

    name: str
    group: int
    clients: int | None
    of: int | None
    pulls: int
    pulls_last: int
    round: int | None
    mean: float
    rival: str | None
    rival_mean: float | None
    why: Why | None
    lower: float | None = None
    upper: float | None = None

    @property
    def by_server(self) -> bool:
        """Whether the server dropped it."""
        return self.clients is None


class ClientFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A client: its pulls, the bits that it sent, and its messages that the server accepted."""

    name: str
    group: str
    pulls: int | None = None
    bits_up: int | None = None
    messages: int | None = None


class CostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of the run; `longest` is the number of pulls of the busiest client."""

    rounds: int | None = None
    time: int | None = None
    pulls: int | None = None
    longest: int | None = None
    bits_up: int | None = None
    bits_down: int | None = None
    wire_bytes: int | None = None


class RangeFacts(msgspec.Struct, frozen=True):
    """A forecast of one cost: its mean, and a range that contains 90 % of the runs."""

    mean: float
    low: float
    high: float


class PlanFacts(msgspec.Struct, frozen=True):
    """A forecast from simulated runs; `proved` has the proved upper bound of each cost.

    `note` says under which assumption it holds, if under any.
    """

    trials: int
    ranges: dict[str, RangeFacts]
    proved: dict[str, float]
    note: str = ""


class LimitFacts(msgspec.Struct, frozen=True):
    """The lower limit on the expected pulls, of all clients and of the busiest, and the methods it covers."""

    pulls: float
    longest: float
    holds_for: str


class HeterogeneityFacts(msgspec.Struct, frozen=True):
    """The matrix of heterogeneity indices of some groups; None on its diagonal. `more` groups are omitted."""

    groups: tuple[str, ...]
    matrix: tuple[tuple[float | None, ...], ...]
    more: int


class FaultFacts(msgspec.Struct, frozen=True):
    """A client that was proven faulty; `by` is the peer that detected it, None for the server."""

    client: str
    round: int | None
    reason: str
    by: str | None = None


class WarningFacts(msgspec.Struct, frozen=True):
    """A warning about a group."""

    round: int
    group: str
    text: str

    @property
    def place(self) -> str:
        """What stands before the group's name."""
        return "Site " if FILLED in self.text else f"Round {self.round}, group "


class NoteFacts(msgspec.Struct, frozen=True):
    """A client's message to the operator; `later` says whether it sent other messages afterwards."""

    client: str
    text: str
    round: int
    later: bool


class NetworkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A graph with a position in the unit square for each node; `group` is −1 for nodes without a group."""

    names: tuple[str, ...]
    group: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    places: tuple[tuple[float, float], ...]
    messages: int | None = None
    delay: float | None = None
    loss: float | None = None
    crashes: float | None = None


class ArmSoFar(msgspec.Struct, frozen=True):
    """An arm of a run that ended before its first round: its pulls and its mean."""

    name: str
    pulls: int
    mean: float


class UndecidedFacts(msgspec.Struct, frozen=True):
    """Why a run named no arm, what would help, the arms that are left, and the one that led."""

    why: str
    helps: str
    left: tuple[str, ...]
    first: str | None


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A run, finished or not, as a report shows it.

    `aim` explains what "best" means if that isn't obvious, `mean` names the quantity that the means are of,
    `coins` is a note for runs whose means are of coins, and `privacy` one about random answers. `private`
    says whether the clients' own parts are known (None during the run). `peers` counts the honest peers by
    their answer. `broken` says why nothing is promised, `checks` what is wrong with the record. `file` and
    `command` belong to the record. A question about several sites has `options_by_site`, its answers as a
    `headline`, and `promises` as sentences. `roster` has every option in the order of the problem, which
    fixes its colour, and `asked` is the question in the form of the command line; `wealths` are the bets of a
    method that bets. `intent` is what the run will promise. A run that is over has a `card`, and an `outlook`
    if runs like it were simulated. `no_plan` says why a run has no `plan`. `percent` says whether means are
    written in per cent. A live experiment has `visitors`.
    """

    method: MethodFacts
    delta: float
    options: dict[str, Any]
    scale: Scale
    groups: tuple[GroupFacts, ...]
    clients: tuple[ClientFacts, ...]
    lines: tuple[LineFacts, ...]
    exits: tuple[ExitFacts, ...]
    traces: tuple[TraceFacts, ...]
    roster: tuple[str, ...]
    data: DataFacts | None
    aim: str
    mean: str
    coins: str
    privacy: str
    version: str
    versions: dict[str, str]
    costs: CostFacts = CostFacts()
    verdict: Verdict | None = None
    undecided: UndecidedFacts | None = None
    percent: bool = False
    private: bool | None = None
    rounds: int = 0
    asked: dict[str, Any] = {}
    so_far: tuple[ArmSoFar, ...] = ()
    plan: PlanFacts | None = None
    no_plan: str = ""
    limit: LimitFacts | None = None
    no_limit: str = ""
    heterogeneity: HeterogeneityFacts | None = None
    good_event: bool | None = None
    faults: tuple[FaultFacts, ...] = ()
    warnings: tuple[WarningFacts, ...] = ()
    liars: dict[str, str] = {}
    broken: str = ""
    network: NetworkFacts | None = None
    peers: dict[str, int] | None = None
    checks: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    refused: dict[str, int] = {}
    notes: tuple[NoteFacts, ...] = ()
    name: str = ""
    date: str = ""
    seed: int | None = None
    digest: str | None = None
    command: str | None = None
    file: str = "record.json"
    options_by_site: OptionTable | None = None
    headline: str = ""
    promises: tuple[str, ...] = ()
    intent: str = ""
    wealths: WealthFacts | None = None
    card: AnswerCard | None = None
    outlook: Outlook | None = None
    visitors: Visitors | None = None


class OwnArmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An arm of a site: pulls made, pulls that counted, its state, and its mean and interval."""

    name: str
    pulls: int
    counted: int
    fate: str
    mean: float | None = None
    lower: float | None = None
    upper: float | None = None


class SeenGroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows about an arm-set; `standing` says whether it is still in the race for the node."""

    group: str
    arm: str | None
    mean: float | None
    interval: tuple[float, float] | None
    standing: bool | None


class NeighbourFacts(msgspec.Struct, frozen=True):
    """An in-neighbour: the arm-sets that it reported on, and whether it is proven faulty."""

    name: str
    reports: int
    out: bool


class WantsFacts(msgspec.Struct, frozen=True):
    """The next pulls: the number of arms, the pulls of each (None if they differ), and of all together."""

    arms: int
    times: int | None
    pulls: int


class SiteFacts(RunFacts, frozen=True, kw_only=True):
    """A run as one client of a federation, or one node of a mesh (`peer`), sees it."""

    peer: bool
    me: str
    group: str
    state: str
    wants: WantsFacts | None
    arms: tuple[OwnArmFacts, ...]
    sent: int
    heard: int
    kept: int
    view: tuple[SeenGroupFacts, ...] = ()
    hears: tuple[NeighbourFacts, ...] = ()
    tells: tuple[str, ...] = ()


class MeanFacts(msgspec.Struct, frozen=True):
    """The mean of one cost over the trials of a cell, with its 95 % interval if there are several."""

    mean: float
    interval: tuple[float, float] | None


class CellFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of a study's varied keys. Errors are unknown if the true means are."""

    keys: dict[str, Any]
    trials: int
    undecided: int
    costs: dict[str, MeanFacts]
    errors: int | None = None
    error_interval: tuple[float, float] | None = None
    over_limit: float | None = None
    no_limit: str = ""
    unproved: str = ""


class StudyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A study: a cell for each combination of the varied keys.

    `trials`, `methods` and `deltas` are those of all cells; `unknown` says why settings are not known.
    """

    varied: tuple[str, ...]
    cells: tuple[CellFacts, ...]
    seed: int | None
    data: DataFacts | None
    versions: dict[str, str]
    trials: int = 0
    methods: tuple[str, ...] = ()
    deltas: tuple[float, ...] = ()
    unknown: str = ""


Facts = RunFacts | StudyFacts
