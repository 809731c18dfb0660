"""Alarms: what a client that fails tells the server's operator at once, even if it can't use its journal.

A note is numbered and in the client's journal before it is sent. A client whose folder is read-only, whose
disk is full or whose source can't be opened may have no journal to write to, and a number that it used twice
would look like a lie. An *alarm* therefore has no number: its sequence is the time in seconds, and the server
takes only newer ones. It goes to the mailbox of the client's messages, so that a server that is down reads it
later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bestarm.deploy.envelope import Envelope, Offer, Slots
from bestarm.deploy.sources.base import SourceFailed
from bestarm.errors import UNSHOWN, InputError, RewardError
from bestarm.protocol.codec import Malformed

if TYPE_CHECKING:
    from bestarm.deploy.federation.files import Place
    from bestarm.deploy.federation.wire import Connection

ALARM = "alarm"  # the topic

ALARM_BYTES = 300  # of its text

MOST_ALARMS = 100  # of one client that the server takes in a run

ALARM_SECONDS = 5.0  # how long a failing client tries to send one

LINE = re.compile(r", line \d+")  # where a file holds a reward that can't be used

log = logging.getLogger("bestarm.federation")


class Alarms:
    """The server's part: accepts or refuses alarms, as ``Slots`` does with numbered messages.

    Parameters
    ----------
    slots : Slots
        The run, and the roster with the clients' keys.
    heard : Counter
        How many messages of each client were handled.
    """

    def __init__(self, slots: Slots, heard: Counter[str]) -> None:
        self.slots, self.heard = slots, heard
        self.count: Counter[str] = Counter()
        self._last: dict[str, tuple[int, bytes, int]] = {}  # of each client: time, text, messages before it

    def offer(self, data: bytes | Envelope, *, signed: bool = False) -> Offer:
        """Accept or refuse an alarm, as ``Slots.offer`` does.

        The same text again is a "repeat" while nothing else has come from the client.
        """
        try:
            alarm = data if isinstance(data, Envelope) else Envelope.decode(data)
        except Malformed:
            return Offer("refused", None, "malformed")
        source, member = alarm.source, self.slots.roster.current.get(alarm.source)
        time_before, *before = self._last.get(source, (0, b"", 0))
        reason = ""
        if alarm.run != self.slots.run:
            reason = "run"
        elif member is None:
            reason = "source"
        elif alarm.sequence <= time_before:
            reason = "old"
        elif self.count[source] >= MOST_ALARMS or len(alarm.content) > ALARM_BYTES:
            reason = "note"
        elif not signed and not alarm.signed_with(member.key):
            reason = "signature"
        if reason:
            return Offer("refused", alarm, reason)
        now = [alarm.content, self.heard[source]]
        if now == before:
            return Offer("repeat", alarm)
        self._last[source] = (alarm.sequence, alarm.content, self.heard[source])
        self.count[source] += 1
        return Offer("accepted", alarm)


def tell(folder: Path, error: Exception, *, url: str | None = None) -> bool:
    """Tell the server's operator why a client can't start. Nothing is written.

    Parameters
    ----------
    folder : Path
        The client's folder.
    error : Exception
        Why it can't start.
    url : str, optional
        The address of the broker, if not the one in the folder.

    Returns
    -------
    bool
        Whether the broker has stored the alarm.
    """
    from bestarm.deploy.federation.files import Place

    try:
        place = Place.load(folder)
    except (InputError, OSError):
        return False  # without its keys it can tell nobody
    return asyncio.run(_connect_and_send(place, words_of(error), url or place.setup.url))


def words_of(error: Exception) -> str:
    """Why a client ends. Rewards, lines of files and unexpected errors are for its own terminal only."""
    if not isinstance(error, InputError | SourceFailed | OSError):
        return f"{type(error).__name__} ({UNSHOWN})"
    return LINE.sub("", str(error.unshown() if isinstance(error, RewardError) else error))


async def _connect_and_send(place: Place, text: str, url: str) -> bool:
    """Connect to the broker, and send an alarm there within ``ALARM_SECONDS``."""
    from bestarm.deploy.federation import wire
    from bestarm.deploy.federation.broker import Unreachable

    try:
        async with asyncio.timeout(ALARM_SECONDS):
            inbox = f"_INBOX_{place.slot}"
            nc = await wire.connect(url, place.nkey, place.folder / "ca.pem", place.client, inbox)
            try:
                await send(nc, place, text)
            finally:
                with contextlib.suppress(Exception):
                    await nc.close()
    except (Unreachable, InputError, OSError, TimeoutError) as error:
        log.info("%s: the server's operator could not be told (%s)", url, error or "no answer")
        return False
    return True


async def send(nc: Connection, place: Place, text: str) -> None:
    """Send an alarm on this connection; returns when the broker has stored it."""
    from bestarm.deploy.federation import wire

    content = text.encode()[:ALARM_BYTES].decode(errors="ignore").encode()
    alarm = Envelope.sign(place.key, place.setup.run, place.client, ALARM, int(time.time()), content)
    await wire.publish(nc, f"{place.setup.subject}.up.{place.slot}", alarm.encode())
