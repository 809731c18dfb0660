"""The mailboxes of a federation at its broker: two JetStream streams, and who may read which part of them.

UP stores messages from clients until the server has them; DOWN stores broadcasts and messages to single
clients, with one durable consumer per slot. Streams are only mailboxes: messages lost in them are sent again
from the journals.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation.accounts import longest_message
from bestarm.deploy.federation.broker import Unreachable, fetch, syncs
from bestarm.deploy.federation.setup import Setup
from bestarm.deploy.process import cancellable, together
from bestarm.errors import InputError
from bestarm.protocol.rounds import SERVER

OLDEST = (2, 11)  # version of a NATS server

QUEUE = 64  # messages per client that the broker keeps for the server

SECOND = 1_000_000_000

TRIES, PAUSE = 60, 0.25  # for a request: JetStream may still be reading its store

AT_ONCE = 64  # consumers created at a time

AGAIN_SECONDS = 2  # before a message to a client that did not acknowledge it is delivered again

RECENT = 256  # messages of DOWN that a new consumer delivers

ANSWER_SECONDS = 3.0  # for a stream to store a probe

EXPIRE_SECONDS = 10  # after which a probe in DOWN is removed

DEFAULT_CONSUMERS = 1000  # per stream, if it does not state a number

UNAVAILABLE = 503  # JetStream's code while a cluster has no leader

MISSING = 10059  # JetStream's error code for a stream that does not exist

log = logging.getLogger("bestarm.federation")


class Streams:
    """The streams of one run, accessed through the server's connection."""

    def __init__(self, url: str, setup: Setup, replicas: int = 1) -> None:
        self.url, self.setup, self.replicas = url, setup, replicas
        self.nc: Any = None
        self.fresh: set[str] = set()  # streams that were newly created
        self.lost = asyncio.Event()  # set after a reconnect, or if streams may be lost
        self.probes = {f"{setup.subject}.up.probe": "UP", f"{setup.subject}.down.probe": "DOWN"}
        self.last: dict[str, float] = {}  # when each stream was last known to store a message

    async def api(self, subject: str, wish: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return JetStream's answer to a request; ``Unreachable`` if there is none."""
        import nats.errors

        for _ in range(TRIES):
            try:
                data = json.dumps(wish).encode() if wish else b""
                answer = await cancellable(self.nc.request(f"$JS.API.{subject}", data, timeout=2))
                found: dict[str, Any] = json.loads(answer.data)
                if found.get("error", {}).get("code") != UNAVAILABLE:
                    return found
            except nats.errors.Error:
                pass
            await asyncio.sleep(PAUSE)
        raise Unreachable(f"{self.url}: JetStream does not answer")

    async def _make(self, subject: str, wish: dict[str, Any]) -> None:
        found = await self.api(subject, wish)
        if "error" in found:
            raise Unreachable(f"{self.url}: {subject}: {found['error'].get('description')}")

    async def make(self, slots: Sequence[str]) -> None:
        """Create missing streams and consumers."""
        self._demand_version()
        setup = self.setup
        guarded = {"storage": "file", "deny_delete": True, "deny_purge": True, "num_replicas": self.replicas}
        up = {
            "name": "UP", "subjects": [f"{setup.subject}.up.*"], "retention": "workqueue", "discard": "new",
            "discard_new_per_subject": True, "max_msgs_per_subject": QUEUE,
            "max_msg_size": longest_message(setup), **guarded,
        }  # fmt: skip
        both = [f"{setup.subject}.all", f"{setup.subject}.down.*"]
        down = {
            "name": "DOWN", "subjects": both, "retention": "limits", "max_consumers": len(slots),
            "allow_msg_ttl": True, **guarded,
        }  # fmt: skip
        await self._stream(up)
        await self._stream(down)
        # A new consumer at once gets what the old one had not acknowledged.
        await self.api(f"CONSUMER.DELETE.UP.{SERVER}")
        await self._consumer("UP", SERVER, {"ack_wait": 30 * SECOND, "max_ack_pending": 5000})
        there = await self._consumers("DOWN")
        missing = [slot for slot in slots if slot not in there]
        if missing:
            start = max(1, (await self._info("DOWN"))["state"]["last_seq"] + 1 - RECENT)
            for k in range(0, len(missing), AT_ONCE):
                await together(*(self._mailbox(slot, start) for slot in missing[k : k + AT_ONCE]))

    async def _stream(self, wanted: dict[str, Any]) -> None:
        """Create a stream, or change an existing one to fit."""
        name = wanted["name"]
        found = await self._info(name)
        if not found:
            self.fresh.add(name)
            found = await self.api(f"STREAM.CREATE.{name}", wanted)
            self._demand_made(found, wanted)
        elif changes := self._changes(found["config"], wanted):
            found = await self.api(f"STREAM.UPDATE.{name}", {**found["config"], **changes})
            self._demand_made(found, {"name": name, **changes})

    async def _info(self, name: str) -> dict[str, Any]:
        """The facts about a stream; empty if it does not exist."""
        found = await self.api(f"STREAM.INFO.{name}")
        if found.get("error", {}).get("err_code") == MISSING:
            return {}
        if "error" in found:
            raise Unreachable(f"{self.url}: stream {name}: {found['error'].get('description')}")
        return found

    def _changes(self, now: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """What has to change in a stream with the configuration `now`."""
        limit = now["max_consumers"] if now["max_consumers"] > 0 else DEFAULT_CONSUMERS
        changes = {key: wanted[key] for key in ("num_replicas",) if now.get(key) != wanted[key]}
        if wanted.get("max_consumers", 0) > limit:
            changes["max_consumers"] = wanted["max_consumers"]
        if wanted.get("allow_msg_ttl") and not now.get("allow_msg_ttl"):
            changes["allow_msg_ttl"] = True
        return changes

    def _demand_version(self) -> None:
        """Raise if messages can't expire at this broker: then nothing shows whether DOWN stores them."""
        broker = self.nc.connected_server_version
        if (broker.major, broker.minor) < OLDEST:
            raise InputError(
                f"NATS {broker.major}.{broker.minor} is too old",
                where=self.url,
                expected=f"NATS {OLDEST[0]}.{OLDEST[1]} or newer",
                fix="Update it",
            )

    def _demand_made(self, answer: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Raise unless the broker has created or changed a stream as it was asked to."""
        if "error" not in answer:
            return
        name, why = wanted["name"], answer["error"].get("description")
        if "replicas" in str(why):
            raise InputError(
                f"the stream {name} can't have {self.replicas} replicas ({why})",
                where=self.url,
                expected=f"a NATS cluster of at least {self.replicas} servers with JetStream",
                fix="Give another --replicas",
            )
        if "consumers" in str(why).lower():
            raise InputError(
                f"the stream {name} can't have {wanted['max_consumers']} consumers ({why})",
                where=self.url,
                expected="one consumer for each slot",
                fix=f"Run: nats stream rm {name}. The server creates it again; nothing is lost",
            )
        raise Unreachable(f"{self.url}: stream {name}: {why}")

    def stored(self, stream: str) -> None:
        """Take note that this stream has just stored a message."""
        self.last[stream] = time.monotonic()

    async def trouble(self, names: Sequence[str] = ("UP", "DOWN")) -> str:
        """Why one of these streams stores nothing now; empty if all of them do.

        The server ignores the message in UP, and the one in DOWN expires.
        """
        whys = dict.fromkeys(names, "")

        async def ask(name: str) -> None:
            whys[name] = await self._probe(name)

        await together(*(ask(name) for name in names))
        return "; ".join(
            f"the broker stores nothing in stream {name}: {why}" for name, why in whys.items() if why
        )

    async def _probe(self, name: str) -> str:
        import nats.errors

        begun = time.monotonic()
        subject = next(subject for subject, stream in self.probes.items() if stream == name)
        headers = {"Nats-TTL": f"{EXPIRE_SECONDS}s"} if name == "DOWN" else None
        why = ""
        try:
            answer = await cancellable(self.nc.request(subject, b"", timeout=ANSWER_SECONDS, headers=headers))
            said = json.loads(answer.data)
            why = str(said["error"].get("description")) if "error" in said else ""
        except nats.errors.NoRespondersError:
            why = "it does not exist, or has no leader"
            self.lost.set()
        except (nats.errors.Error, OSError, ValueError) as error:
            if self.last.get(name, 0.0) >= begun:
                return ""  # it is slow because it stores other messages
            why = "no answer" if isinstance(error, nats.errors.TimeoutError) else str(error)
        if not why:
            self.stored(name)
        return why

    async def _consumers(self, stream: str) -> set[str]:
        """The names of a stream's consumers."""
        names: set[str] = set()
        while True:
            found = await self.api(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
            more = set(found.get("consumers") or ()) - names
            names |= more
            if not more or len(names) >= found["total"]:
                return names

    async def _mailbox(self, slot: str, start: int) -> None:
        """Create a client's consumer.

        Its state is in memory, which costs the broker a third of the work. After a restart of the broker it
        is created again, and delivers only recent messages; clients learn of older ones when they connect.
        In a cluster it is on disk: one in memory may stop delivering after most servers were restarted.
        """
        subjects = [f"{self.setup.subject}.all", f"{self.setup.subject}.down.{slot}"]
        config = {
            "filter_subjects": subjects, "ack_wait": AGAIN_SECONDS * SECOND, "max_ack_pending": 1000,
            "mem_storage": self.replicas == 1, "deliver_policy": "by_start_sequence", "opt_start_seq": start,
        }  # fmt: skip
        await self._consumer("DOWN", slot, config)

    async def _consumer(self, stream: str, name: str, config: dict[str, Any]) -> None:
        wish = {
            "stream_name": stream,
            "config": {"durable_name": name, "ack_policy": "explicit", **config},
        }
        await self._make(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", wish)

    async def newest(self) -> Envelope | None:
        """The newest broadcast in the stream; None if there is none."""
        found = await self.api("STREAM.MSG.GET.DOWN", {"last_by_subj": f"{self.setup.subject}.all"})
        if "message" not in found:
            return None
        return Envelope.decode(base64.b64decode(found["message"]["data"]))

    async def unread(self) -> set[str]:
        """The slots whose clients have sent messages that the server has not read yet."""
        prefix = f"{self.setup.subject}.up."
        found = await self.api("STREAM.INFO.UP", {"subjects_filter": f"{prefix}*"})
        return {subject.removeprefix(prefix) for subject in found.get("state", {}).get("subjects") or {}}

    async def has_read_all(self, slot: str) -> bool:
        """Whether the client in this slot has received everything that was sent to it."""
        return _has_read_all(await self.api(f"CONSUMER.INFO.DOWN.{slot}"))

    async def readers(self) -> set[str]:
        """The slots whose clients have received everything that was sent to them."""
        read, offset = set(), 0
        while True:
            found = await self.api("CONSUMER.LIST.DOWN", {"offset": offset})
            page = found.get("consumers") or []
            read |= {facts["name"] for facts in page if _has_read_all(facts)}
            offset += len(page)
            if not page or offset >= found["total"]:
                return read


def _has_read_all(consumer: dict[str, Any]) -> bool:
    return not consumer.get("num_pending", 1) and not consumer.get("num_ack_pending", 1)


async def demand_sync(url: str, monitor: str | None) -> None:
    """Warn if an operator's own NATS server does not sync each message, or if that is unknown.

    By default a broker syncs its store only minutes later, and could lose a message after acknowledging it.
    """
    need = "its configuration needs: jetstream { sync_interval: always }"
    if monitor is None:
        log.warning("%s: unknown whether it syncs each message (give --monitor to check); %s", url, need)
        return
    try:
        page = await asyncio.to_thread(fetch, f"{monitor.rstrip('/')}/jsz")
        if not syncs(page):
            log.warning("%s does NOT sync each message: %s", url, need)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"is not the monitoring page of a NATS server ({error})",
            where=monitor,
            expected="http://HOST:PORT",
        ) from None
