"""Answers of the broker: each belongs to one message."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import nats.errors
import pytest

from bestarm.deploy.federation.wire import Connection, Feed


class Wire(Connection):
    """A connection to a broker that answers when the test does."""

    def __init__(self):
        super().__init__()
        self.sent, self.hear = [], None

    def new_inbox(self):
        return "_INBOX.x"

    async def subscribe(self, subject, *, cb):
        assert subject.startswith("_INBOX.x")
        self.hear = cb

    async def publish(self, subject, payload=b"", reply="", headers=None):
        self.sent.append((subject, payload, reply))

    async def answer(self, place, data, headers=None):
        await self.hear(SimpleNamespace(subject=self.sent[place][2], data=data, headers=headers))


def test_a_late_answer_is_not_taken_for_the_answer_to_a_later_message():
    async def main():
        wire = Wire()
        with pytest.raises(nats.errors.TimeoutError):
            await wire.ask("up", b"1", 0.01)
        asking = asyncio.create_task(wire.ask("up", b"1", 10.0))
        await asyncio.sleep(0)
        await wire.answer(0, b"late")
        await asyncio.sleep(0.01)
        assert not asking.done()
        await wire.answer(1, b"stored")
        await wire.answer(1, b"repeated")
        assert await asking == b"stored"
        assert not wire.waiting

    asyncio.run(main())


def test_a_message_that_nobody_takes_is_an_error_and_a_cancelled_wait_ends():
    async def main():
        wire = Wire()
        asking = asyncio.create_task(wire.ask("up", b"1", 10.0))
        await asyncio.sleep(0)
        await wire.answer(0, b"", {"Status": "503"})
        with pytest.raises(nats.errors.NoRespondersError):
            await asking
        asking = asyncio.create_task(wire.ask("up", b"1", 10.0))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not wire.waiting

    asyncio.run(main())


def test_a_feed_returns_what_arrives_and_at_once_after_wake():
    async def main():
        wire = Wire()
        feed = Feed(wire, "next")
        assert await feed.next(0.01) == []
        waiting = asyncio.create_task(feed.next(10.0))
        await asyncio.sleep(0)
        message = SimpleNamespace(headers=None, data=b"1")
        await wire.hear(message)
        assert await waiting == [message]
        feed.wake()
        assert await feed.next(10.0) == []
        assert len(wire.sent) == 1  # one request is open for all of them

    asyncio.run(main())
