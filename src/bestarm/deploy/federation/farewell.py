"""After the verdict: the server waits until the clients that took part have it, and remembers who does.

The broker forgets what a client has read when it is restarted, so the names are also in ``informed.json``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.desk import Desk
from bestarm.deploy.federation.streams import Streams
from bestarm.errors import InputError
from bestarm.util.files import SCHEMA, as_json, read, write

INFORMED = "informed.json"

MOST_NAMED = 10  # clients in a warning

MOST_ASKED = 16  # clients for each of which the broker is asked; of more, it is asked in pages

log = logging.getLogger("bestarm.federation")


class Farewell:
    """The end of a run.

    Parameters
    ----------
    folder : Path
        The server's folder.
    desk : Desk
        The server's fold.
    streams : Streams
        The mailboxes.
    slot_of : callable
        Returns the slot of a client, or None if it has none.
    informed : set of str
        Clients that have said that they have the verdict.
    """

    def __init__(
        self,
        folder: Path,
        desk: Desk,
        streams: Streams,
        slot_of: Callable[[str], str | None],
        informed: set[str],
    ) -> None:
        self.path, self.desk, self.streams = folder / INFORMED, desk, streams
        self.slot_of, self.informed = slot_of, informed
        self.unheard: list[str] = []  # clients that took part but don't have the verdict yet

    async def run(self, seconds: float) -> None:
        """Wait until all have the verdict, or no more of them get it in this time; log who does not."""
        here = [c for c in self.desk.next if c not in self.desk.cut_offs.now and self.slot_of(c)]
        if self.path.exists():
            with contextlib.suppress(InputError, TypeError):  # it only saves time
                self.informed.update(read(self.path, "Delete it").get("clients", ()))
        self.unheard = sorted(set(here) - self.informed)
        try:
            with contextlib.suppress(TimeoutError, Unreachable):
                async with asyncio.timeout(max(1.0, seconds)) as limit:
                    while self.unheard:
                        before = len(self.unheard)
                        await self._ask()
                        if len(self.unheard) < before:
                            limit.reschedule(asyncio.get_running_loop().time() + max(1.0, seconds))
                        await asyncio.sleep(0.1)
        finally:
            known = sorted(self.informed | (set(here) - set(self.unheard)))
            with contextlib.suppress(OSError, InputError):
                write(self.path, as_json({"schema": SCHEMA, "clients": known}))
        if self.unheard:
            log.warning(
                "the run has a verdict, but %s%s did not receive it: start the server again to deliver it",
                ", ".join(self.unheard[:MOST_NAMED]),
                f" and {more} more" if (more := len(self.unheard) - MOST_NAMED) > 0 else "",
            )

    async def _ask(self) -> None:
        few = len(self.unheard) <= MOST_ASKED
        read = set() if few else await self.streams.readers()
        for client in self.unheard:
            slot = self.slot_of(client)
            told = client in self.informed or slot is None or slot in read
            if told or (few and slot is not None and await self.streams.has_read_all(slot)):
                self.unheard = [c for c in self.unheard if c != client]
