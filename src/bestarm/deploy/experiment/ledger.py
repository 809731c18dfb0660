"""The journal of an experiment: the questions and rewards that it took, in order.

``Ask``, ``Tell``, ``Tick``, ``End`` and ``Leave`` are the events, ``Want`` and ``Won`` those of a
federation's client; ``apply`` folds one into an ``Engine``. The
times are in the events, so a replay makes the same decisions about deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bestarm.deploy.experiment.assignments import Assignments, Given, Outcome
from bestarm.deploy.experiment.engine import Engine
from bestarm.deploy.experiment.settings import Settings
from bestarm.deploy.experiment.site_assignments import SiteAssignments
from bestarm.errors import InputError
from bestarm.util.journal import Event, Journal

KIND = "experiment"
SITE = "live-site"  # the kind of the journal of a federation's client


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """Subjects of a site were to be given options. `key`: a repeated request has the same one."""

    time: float
    site: int
    times: int = 1
    key: str = ""


class Tell(msgspec.Struct, frozen=True, array_like=True):
    """Rewards arrived: the numbers of their assignments, and the rewards on the user's scale."""

    time: float
    rewards: list[tuple[int, float]]


class Tick(msgspec.Struct, frozen=True, array_like=True):
    """Time passed, and a deadline with it."""

    time: float


class End(msgspec.Struct, frozen=True, array_like=True):
    """The operator ended the experiment."""

    time: float
    reason: str


class Leave(msgspec.Struct, frozen=True, array_like=True):
    """The operator dropped a site."""

    time: float
    site: int


class Want(msgspec.Struct, frozen=True, array_like=True):
    """A federation's client needs rewards: how many of each arm."""

    time: float
    counts: list[int]


class Won(msgspec.Struct, frozen=True, array_like=True):
    """The federation has its verdict: subjects of this client get this arm from now on."""

    time: float
    arm: int


Entry = Ask | Tell | Tick | End | Leave | Want | Won
KINDS: dict[str, type[Entry]] = {
    "ask": Ask, "tell": Tell, "tick": Tick, "end": End, "drop": Leave, "want": Want,
    "won": Won,
}  # fmt: skip
NAMES = {kind: name for name, kind in KINDS.items()}
Result = list[Given] | list[Outcome] | None
_encode = msgspec.json.Encoder().encode


def packed(entry: Entry) -> tuple[str, bytes]:
    """An entry as the kind and the body of an event."""
    return NAMES[type(entry)], _encode(entry)


def unpacked(event: Event) -> Entry:
    """The entry of an event."""
    try:
        return msgspec.json.decode(event.body, type=KINDS[event.kind])
    except (KeyError, msgspec.MsgspecError) as error:
        raise InputError(f"event {event.seq} can't be read: {error}", fix="Use a newer bestarm") from None


def apply(engine: Assignments, entry: Entry) -> Result:
    """Fold an entry into the engine."""
    match entry:
        case Ask(time, site, times):
            return [engine.ask(time, site) for _ in range(times)]
        case Tell(time, rewards):
            return [engine.tell(time, number, reward) for number, reward in rewards]
        case Tick(time):
            engine.tick(time)
        case Want(time, counts) if isinstance(engine, SiteAssignments):
            engine.want(time, counts)
        case Won(time, arm) if isinstance(engine, SiteAssignments):
            engine.end(time, arm)
        case End(time, reason) if isinstance(engine, Engine):
            engine.stop(time, reason)
        case Leave(time, site) if isinstance(engine, Engine):
            engine.drop(time, site)
        case _:
            raise InputError("an entry that does not belong to this journal", fix="Use a newer bestarm")
    return None


class Replay:
    """An experiment rebuilt from its journal, event by event."""

    def __init__(self, settings: Settings) -> None:
        self.engine = Engine(settings)

    def replay(self, event: Event) -> None:
        """Fold one more event."""
        apply(self.engine, unpacked(event))


def settings_of(journal: Journal) -> Settings:
    """The settings of a journal."""
    return settings_from(journal.header, str(journal.path))


def settings_from(header: dict[str, Any], where: str) -> Settings:
    """The settings in the header of a journal."""
    try:
        return msgspec.convert(header["settings"], Settings)
    except (KeyError, msgspec.ValidationError) as error:
        raise InputError(f"its header can't be read: {error}", where=where) from None


def entries(journal: Journal) -> Iterator[Entry]:
    """The entries of a journal, in order."""
    return (unpacked(event) for event in journal.events())


def open_journal(path: str | Path, *, write: bool = True) -> Journal:
    """The journal of an experiment that exists."""
    return Journal.open(path, KIND, write=write)


def create_journal(path: str | Path, settings: Settings, kind: str = KIND) -> Journal:
    """A new journal with these settings, which contain a key: only its owner can read it."""
    journal = Journal.create(path, kind, {"settings": msgspec.to_builtins(settings)})
    for file in (journal.path, *journal.path.parent.glob(f"{journal.path.name}-*")):
        file.chmod(0o600)
    return journal
