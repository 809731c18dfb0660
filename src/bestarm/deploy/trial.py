"""A trial before a run: draws a few rewards and checks keys, clock and folder; the journal is only read.

``bestarm client DIR --test`` and ``bestarm peer DIR --test`` share this module; the connection to the broker
or to the neighbours is tried in ``federation.trial`` and ``mesh.trial``. The result is a list of ``Finding``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from bestarm.deploy.identity import Key
from bestarm.deploy.pulling import demand_coin
from bestarm.deploy.sources import Exhausted, FromCsv, Retry, Source, SourceFailed
from bestarm.deploy.terms import Terms
from bestarm.errors import InputError
from bestarm.problem.layout import Group
from bestarm.problem.scale import Scale
from bestarm.util.text import counted

Place = TypeVar("Place")

DRAWS = 5  # rewards drawn of each arm

RETRY = Retry(attempts=2, timeout=20.0)  # a trial does not wait as long as a run

LEAST_FREE = 100 << 20  # bytes; a journal and its -wal file stay far below this

SKEW = 60.0  # seconds that a file may be newer than the clock

AGAIN = (
    "Copy this file again from where the folder was made; leave the others, above all journal.db, as they are"
)

RESTORE = "Restore the newest copy of journal.db (with its -wal file)"

LOST = "the rewards drawn here do not count: they are lost if this source gives each reward only once"

UNTOUCHED = "nothing was consumed: the run begins with the same rows as without this test"


@dataclass(frozen=True)
class Finding:
    """The result of one check: what it was about, what was found, and how to fix it if it is a problem.

    `trouble` is "" if all is well, "input" for what the operator of this folder must correct, and
    "unreachable" for a source or a network that gave no answer.
    """

    about: str
    what: str
    fix: str = ""
    trouble: Literal["", "input", "unreachable"] = ""

    @property
    def ok(self) -> bool:
        return not self.trouble


class Setting(Protocol):
    """A folder: the terms of its run, and its key."""

    @property
    def folder(self) -> Path: ...

    @property
    def setup(self) -> Terms: ...

    @property
    def key(self) -> Key: ...


class Wants(Protocol):
    """The part of a fold that a source of rewards is made for."""

    @property
    def place(self) -> Setting: ...

    @property
    def group(self) -> Group: ...

    @property
    def made(self) -> Counter[str]: ...

    @property
    def played(self) -> dict[str, tuple[int, str]]: ...

    @property
    def redrawn(self) -> bool: ...


@dataclass(frozen=True)
class Fresh:
    """A fold that has made no pulls yet."""

    place: Setting
    group: Group
    made: Counter[str] = field(default_factory=Counter)
    played: dict[str, tuple[int, str]] = field(default_factory=dict)
    redrawn: bool = False


def refused(about: str, error: InputError, fix: str) -> Finding:
    """A finding for an error; `fix` is used if the error does not say how to fix it."""
    what = str(InputError(error.what, where=error.where, expected=error.expected))
    return Finding(about, what, error.fix or fix, "input")


@contextlib.contextmanager
def noted(found: list[Finding], about: str, fix: str) -> Iterator[None]:
    """Turn an ``InputError`` within this context into a finding."""
    try:
        yield
    except InputError as error:
        found.append(refused(about, error, fix))


def try_keys(
    folder: Path, names: Iterable[str], load: Callable[[Path], Place], owner: Callable[[Place], str]
) -> tuple[Place | None, list[Finding]]:
    """Load a folder if its private keys are in order; without them nothing else can be tried."""
    found = _try_modes(folder, names)
    if not found:
        with noted(found, "keys", AGAIN):
            place = load(folder)
            return place, [Finding("keys", f"{owner(place)}; only the owner can read the private keys")]
    return None, found


async def try_source(make: Callable[[Wants], Source], site: Wants) -> list[Finding]:
    """Draw ``DRAWS`` rewards of each arm, and check that the run could use them.

    Parameters
    ----------
    make : callable
        Makes the source of rewards for a fold.
    site : Wants
        The fold, or ``Fresh`` if it has no journal yet.

    Returns
    -------
    list of Finding
        One for the source, and one for each arm.
    """
    fix = "Correct the source of rewards, and run this test again"
    try:
        source = make(site)
    except InputError as error:
        return [refused("source", error, fix)]
    source.retry = RETRY
    found: list[Finding] = []
    async with source:
        with noted(found, "source", fix):
            source.demand_same(site.played, site.redrawn)
        drawn = {arm: list[float]() for arm in site.group.arms}
        arms = [await _try_arm(source, arm, site, rewards) for arm, rewards in drawn.items()]
    count = sum(map(len, drawn.values()))
    if count and not found:  # without rewards, the findings of the arms say why
        what = UNTOUCHED if isinstance(source, FromCsv) else LOST
        found.append(Finding("source", f"{source.name}: gave {counted(count, 'reward')}; {what}"))
    return found + arms


async def _try_arm(source: Source, arm: str, site: Wants, rewards: list[float]) -> Finding:
    """Draw a few rewards of one arm, which are added to `rewards`."""
    about, began = f"arm {arm}", time.monotonic()
    scale, coins = site.place.setup.scale, site.place.setup.room.coins
    try:
        while len(rewards) < DRAWS:
            for reward in await source.pull(arm, DRAWS - len(rewards)):
                rewards.append(reward)
                if not coins and scale.privacy is None:
                    demand_coin(source, arm, reward, scale, site.group)
    except InputError as error:
        return refused(about, error, "Correct the source of rewards, and run this test again")
    except SourceFailed as error:
        fix = "Check that the command or the address works on this computer, by hand"
        return Finding(about, str(error), fix, "unreachable")
    except Exhausted as error:
        if not rewards:
            return Finding(about, str(error), "Add rewards of this arm", "input")
    took = 1000 * (time.monotonic() - began) / len(rewards)
    return Finding(about, f"{_spread(rewards, scale)}, {took:.3g} ms each{_kind(rewards, scale, coins)}")


def _spread(rewards: list[float], scale: Scale) -> str:
    if scale.privacy is not None:
        drawn = f"each replaced by a random answer (privacy = {scale.privacy:g})"
        return f"{counted(len(rewards), 'reward')}, {drawn}"
    low, high = min(rewards), max(rewards)
    values = f"all {low:g}" if low == high else f"from {low:g} to {high:g}"
    return f"{counted(len(rewards), 'reward')}, {values}, within [{scale.low:g}, {scale.high:g}]"


def _kind(rewards: list[float], scale: Scale, coins: bool) -> str:
    """Whether the rewards are coins, and what happens to them otherwise."""
    if scale.privacy is not None:
        return ""
    if all(reward in (scale.low, scale.high) for reward in rewards):
        return "; each is one of the two bounds"
    return "; the method turns each into a coin with the same mean" if coins else ""


def try_folder(folder: Path) -> list[Finding]:
    """Check that files can be written here and that there is space. Nothing remains of the attempt."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        fix = f"Run as the owner of {folder}, on a disk that is writable and has space"
        return [Finding("folder", f"{folder}: can't be written: {error.strerror}", fix, "input")]
    what = f"{folder}: writable, {free / 1e6:,.0f} MB free"
    if free < LEAST_FREE:
        return [Finding("folder", what, f"Free at least {LEAST_FREE / 1e6:,.0f} MB of this disk", "input")]
    return [Finding("folder", what)]


def _try_modes(folder: Path, names: Iterable[str]) -> list[Finding]:
    """Check that only their owner can read the private keys; loading the folder finds missing ones."""
    found = []
    for path in (folder / name for name in names):
        try:
            mode = path.stat().st_mode & 0o777
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.append(Finding("keys", f"{path}: can't be read: {error.strerror}", AGAIN, "input"))
            continue
        if os.name == "posix" and mode & 0o077:
            what = f"{path}: other users can read this private key (its mode is {mode:03o})"
            found.append(Finding("keys", what, f"Run: chmod 600 {path}", "input"))
    return found


def try_clock(folder: Path, certificates: Mapping[str, bytes]) -> list[Finding]:
    """Check the clock: no certificate is expired or from the future, and neither is a file of the folder.

    A run itself does not depend on the clock; only TLS compares it with the dates of certificates.
    """
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    fix = "Set this computer's clock (NTP), or ask the operator for a renewed certificate"
    found = []
    for name, data in certificates.items():
        try:
            known = x509.load_pem_x509_certificates(data)
        except ValueError as error:
            again = "Copy the file again from the computer where it was made"
            found.append(Finding("clock", f"{name}: is not a certificate ({error})", again, "input"))
            continue
        for each in known:
            if not each.not_valid_before_utc <= now <= each.not_valid_after_utc:
                span = f"{each.not_valid_before_utc:%Y-%m-%d} to {each.not_valid_after_utc:%Y-%m-%d}"
                what = f"{name}: is valid from {span}; this computer's clock says {now:%Y-%m-%d %H:%M} UTC"
                found.append(Finding("clock", what, fix, "input"))
    newest = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
    if newest > now.timestamp() + SKEW:
        what = f"a file in {folder} is {newest - now.timestamp():,.0f} s newer than this computer's clock"
        found.append(Finding("clock", what, fix, "input"))
    return found or [Finding("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC, within the dates of the certificates")]
