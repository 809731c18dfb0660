"""Answers of the broker: each belongs to one message."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import nats.errors
import pytest

from bestarm.deploy.federation.wire import Connection, Feed, acknowledge, publish

SECONDS = 30.0  # less than the wait that is switched off in a test

NUMBER = 7  # of its subscription


class Wire(Connection):
    """A connection to a broker that answers when the test does."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def new_inbox(self):
        return "_INBOX.x"

    async def subscribe(self, subject, *, cb):
        assert subject.startswith("_INBOX.x")
        return SimpleNamespace(_id=NUMBER)

    def hear(self, message):
        self.heard[NUMBER](message)

    def post(self, subject, data=b"", reply="", headers=None):
        self.sent.append((subject, data, reply))

    def reply(self, place, data, headers=None):
        self.hear(SimpleNamespace(subject=self.sent[place][2], data=data, headers=headers))


def test_a_late_answer_is_not_taken_for_the_answer_to_a_later_message():
    async def main():
        wire = Wire()
        with pytest.raises(nats.errors.TimeoutError):
            await wire.ask("up", b"1", 0.01)
        asking = asyncio.create_task(wire.ask("up", b"1", 10.0))
        await asyncio.sleep(0)
        wire.reply(0, b"late")
        await asyncio.sleep(0.01)
        assert not asking.done()
        wire.reply(1, b"stored")
        wire.reply(1, b"repeated")
        assert await asking == b"stored"
        assert not wire.waiting

    asyncio.run(main())


def test_a_message_that_nobody_takes_is_an_error_and_a_cancelled_wait_ends():
    async def main():
        wire = Wire()
        asking = asyncio.create_task(wire.ask("up", b"1", 10.0))
        await asyncio.sleep(0)
        wire.reply(0, b"", {"Status": "503"})
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
        wire.hear(message)
        assert await waiting == [message]
        feed.wake()
        assert await feed.next(10.0) == []
        assert len(wire.sent) == 1  # one request is open for all of them

    asyncio.run(main())


def test_a_feed_waits_a_moment_for_enough_messages_but_not_for_more(monkeypatch):
    async def main():
        wire, message = Wire(), SimpleNamespace(headers=None, data=b"1")
        feed = Feed(wire, "next")
        assert await feed.next(0.01, enough=2) == []
        wire.hear(message)
        assert await feed.next(10.0, enough=2) == [message]  # the second one does not come in time
        monkeypatch.setattr("bestarm.deploy.federation.wire.GATHER_SECONDS", 60.0)
        waiting = asyncio.create_task(feed.next(10.0, enough=2))
        await asyncio.sleep(0)
        for _ in range(2):
            wire.hear(message)
            await asyncio.sleep(0.01)
        assert await waiting == [message, message]
        wire.hear(message)
        assert await feed.next(10.0, enough=0) == [message]
        feed = Feed(wire, "next", batch=1)
        assert await feed.next(0.01) == []
        wire.hear(message)
        async with asyncio.timeout(SECONDS):
            assert await feed.next(10.0, enough=2) == [message]  # no second one was asked for

    asyncio.run(main())


def test_messages_are_heard_as_they_are_read_with_a_status_and_no_other_headers():
    async def main():
        wire, heard = Wire(), []
        await wire.listen("_INBOX.x", heard.append)
        for headers in (b"", b"NATS/1.0\r\nNats-Msg-Id: 5\r\n\r\n", b"NATS/1.0 408 Request Timeout\r\n\r\n"):
            await wire._process_msg(NUMBER, b"_INBOX.x", b"ack", b"1", headers)
        assert [(each.subject, each.reply, each.data) for each in heard] == 3 * [("_INBOX.x", "ack", b"1")]
        assert [(each.headers or {}).get("Status") for each in heard] == [None, None, "408"]

    asyncio.run(main())


class Line:
    """The transport of a connection, with what was written to it."""

    def __init__(self):
        self.pieces = []

    def write(self, data):
        self.pieces.append(data)


def connected():
    nc = Connection()
    nc._status, nc._transport = Connection.CONNECTED, Line()
    return nc, nc._transport.pieces


def test_a_message_is_sent_at_once_and_in_one_piece_with_what_was_acknowledged_before():
    async def main():
        nc, pieces = connected()
        nc.answers = "_INBOX.x"
        acknowledge(nc, [SimpleNamespace(reply="ack.1"), SimpleNamespace(reply="ack.2")], later=True)
        assert pieces == []
        reply = nc.begin("up", b"data", {"Nats-Msg-Id": "7"})
        head = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
        size = b"%d %d" % (len(head), len(head) + 4)
        acks = b"PUB ack.1  0\r\n\r\nPUB ack.2  0\r\n\r\n"
        assert pieces == [acks + b"HPUB up %s %s\r\n%sdata\r\n" % (reply.encode(), size, head)]

    asyncio.run(main())


def test_a_message_that_was_begun_is_sent_again_only_if_no_answer_comes():
    async def main():
        wire = Wire()
        wire.answers, wire.heard[NUMBER] = "_INBOX.x", wire._answered
        begun = wire.begin("up", b"1")
        storing = asyncio.create_task(publish(wire, "up", b"1", shortest=10.0, begun=begun))
        await asyncio.sleep(0)
        wire.reply(0, b'{"seq": 1}')
        await storing
        assert len(wire.sent) == 1
        begun = wire.begin("up", b"2")
        storing = asyncio.create_task(publish(wire, "up", b"2", shortest=0.01, begun=begun))
        while len(wire.sent) < 3:
            await asyncio.sleep(0.01)
        assert [data for _, data, _ in wire.sent] == [b"1", b"2", b"2"]
        wire.reply(2, b'{"seq": 2}')
        await storing
        assert not wire.waiting

    asyncio.run(main())


def test_nothing_is_sent_or_kept_without_a_connection():
    nc = Connection()
    with pytest.raises(nats.errors.ConnectionClosedError):
        nc.post("up", b"1")
    acknowledge(nc, [SimpleNamespace(reply="ack.1")])
    assert not nc._pending
