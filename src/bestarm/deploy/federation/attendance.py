"""Who is connected, and who floods: the server looks at the broker's accounts once per second.

The numbers come from the monitoring page of the embedded broker, or of the operator's NATS (``--monitor``),
which counts messages per account: a client cannot forge them, because each slot is an account of its own.
Without such a page only what the server reads counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bestarm.deploy.federation.accounts import ACCOUNTS, account
from bestarm.deploy.federation.desk import Desk
from bestarm.deploy.federation.files import Federation, block
from bestarm.deploy.federation.floods import ALLOW, BLOCK, Floods, Known, Totals, event
from bestarm.deploy.logs import fields
from bestarm.deploy.process import checkpoint

LOOK_SECONDS = 1.0
CALM_SECONDS = 10.0  # without a new connection, before missing clients are logged
MOST_NAMED = 8
PAGE = "/accstatz?unused=1"

log = logging.getLogger("bestarm.federation")


class _Count(msgspec.Struct):
    msgs: int = 0


class _Account(msgspec.Struct):
    acc: str
    conns: int = 0
    sent: _Count = msgspec.field(default_factory=_Count)
    received: _Count = msgspec.field(default_factory=_Count)


class _Page(msgspec.Struct):
    account_statz: list[_Account] = []


class Attendance:
    """Watches the clients' accounts.

    Parameters
    ----------
    folder : Path
        The server's folder.
    desk : Desk
        What the server has.
    federation : callable
        Returns the current slots.
    page : callable
        Fetches a monitoring page of the broker; None if there is no answer.
    violations : mapping
        By client, how many of its messages were too long for the broker. Read at each look.
    reload_by_hand : bool
        Whether the operator's own NATS must be told to reload its accounts.
    """

    def __init__(
        self,
        folder: Path,
        desk: Desk,
        federation: Callable[[], Federation],
        page: Callable[[str], bytes | None],
        violations: Mapping[str, int],
        *,
        reload_by_hand: bool,
    ) -> None:
        self.folder, self.desk, self.federation, self.page = folder, desk, federation, page
        self.violations, self.reload_by_hand = violations, reload_by_hand
        self.connected: set[str] | None = None  # clients; None if it is unknown
        self.since = time.time()  # when a client last came or went
        self.useless: Counter[str] = Counter()  # by slot: messages that were read but not accepted
        self._floods = Floods()
        self._accounts: dict[str, Totals] = {}  # by slot, as of the last page
        self._told: set[str] | None = None  # missing clients in the last log message

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            checkpoint()
            data = await asyncio.to_thread(self.page, PAGE)
            if data is not None:
                with contextlib.suppress(msgspec.MsgspecError):
                    self._hear(msgspec.json.decode(data, type=_Page))
            totals = {
                slot: self._accounts.get(slot, Totals())._replace(
                    useless=self.useless[slot], violations=self.violations.get(seat.client, 0)
                )
                for slot, seat in self.federation().slots.items()
                if seat is not None
            }
            found = self._floods.look(time.monotonic(), totals, self._known)
            for slot, why in found.items():
                await self._cut_off(slot, why)
            self._tell()

    def _known(self, slot: str) -> Known:
        """What the client of this slot may repeat."""
        seat = self.federation().slots.get(slot)
        return Known(len(self.desk.broadcasts), self.desk.next[seat.client] if seat else 0)

    def _hear(self, page: _Page) -> None:
        federation = self.federation()
        prefix, connected = account(federation.setup) + "_", set()
        for found in page.account_statz:
            if found.acc.startswith(prefix):
                slot = found.acc.removeprefix(prefix)
                self._accounts[slot] = Totals(found.received.msgs, found.sent.msgs)
                seat = federation.slots.get(slot)
                if seat and found.conns:
                    connected.add(seat.client)
        if connected != self.connected:
            self.connected, self.since = connected, time.time()

    async def _cut_off(self, slot: str, why: str) -> None:
        """Refuse this client's key until the operator allows it again."""
        seat = self.federation().slots.get(slot)
        if seat is None or seat.revoked or seat.blocked:
            return
        await asyncio.to_thread(block, self.folder, slot)
        self._note(BLOCK, seat.client, why)
        by_hand = f"; make your NATS reload {self.folder / ACCOUNTS} now" if self.reload_by_hand else ""
        log.warning(
            "%s floods the broker (%s) and is cut off%s. To allow it again: bestarm federation allow %s %s; "
            "to continue without it: bestarm federation drop %s %s",
            seat.client, why, by_hand, self.folder, seat.client, self.folder, seat.client,
        )  # fmt: skip

    def count(self, subjects: Sequence[str], accepted: Sequence[bool]) -> None:
        """Count the messages that the server has read, and whether it accepted them."""
        for subject, good in zip(subjects, accepted, strict=True):
            if not good:
                self.useless[subject.rpartition(".")[2]] += 1

    def apply(self, federation: Federation) -> None:
        """Note which clients were allowed again, after the slots changed."""
        blocked = {seat.client for seat in federation.slots.values() if seat and seat.blocked}
        for client in set(self.desk.cut_offs.now) - blocked:
            self._note(ALLOW, client)
            log.warning("%s is allowed again", client, extra=fields(event="allow", client=client))
        for slot, seat in federation.slots.items():
            if seat and seat.client in blocked:
                self._floods.forget(slot)

    def _note(self, kind: str, client: str, why: str = "") -> None:
        if not self.desk.done:
            at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            body, desk = event(client, at, why), self.desk
            desk.cut_offs.hear(desk.journal.append(kind, body), kind, body, desk.machine.round)

    @property
    def missing(self) -> list[str]:
        """Clients that take part but are not connected; none if it is unknown."""
        if self.connected is None or self.desk.done:
            return []
        federation, absent = self.federation(), {*self.connected, *self.desk.dropped}
        clients = (c for c in self.desk.setup.layout.clients if c not in absent)
        return [c for c in clients if federation.slot_of(c) is not None]

    def words(self) -> str:
        """Who is connected while some are missing, in one line; empty if nobody is missing."""
        missing, connected = self.missing, self.connected or set()
        if not missing:
            return ""
        more = ", …" if len(missing) > MOST_NAMED else ""
        names = [f"{c} (cut off)" if c in self.desk.cut_offs.now else c for c in missing[:MOST_NAMED]]
        since = time.strftime("%H:%M", time.localtime(self.since))
        total = len(missing) + len(connected - set(self.desk.dropped))
        return (
            f"{total - len(missing)} of {total} connected since {since} (not yet: {', '.join(names)}{more})"
        )

    def _tell(self) -> None:
        """Log who is missing when nobody has come or gone for some time."""
        missing = set(self.missing)
        if missing == self._told or self.connected is None or time.time() < self.since + CALM_SECONDS:
            return
        if missing:
            log.warning("%s", self.words())
        elif self._told:
            log.info("all clients are connected")
        self._told = missing

    def metrics(self) -> dict[str, int]:
        """Numbers for the metrics page."""
        known = {} if self.connected is None else {"clients_connected": len(self.connected)}
        cut_offs = self.desk.cut_offs
        return {**known, "clients_cut_off": len(cut_offs.now), "cut_offs_total": cut_offs.count}
