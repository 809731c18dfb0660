"""What the folds of server, client and peer share: inbox, outbox, coins, and tasks that end together."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.identity import Key
from bestarm.deploy.inbox import Inbox
from bestarm.deploy.outbox import Outbox
from bestarm.deploy.process import together
from bestarm.deploy.pulling import Puller
from bestarm.errors import InputError
from bestarm.problem.scale import Scale
from bestarm.util.journal import Journal

RUN = bytes(16)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=60))
def test_each_message_is_delivered_once_and_in_order(arrivals):
    inbox, heard = Inbox(), {"a": [], "b": []}
    for stream, number in arrivals:
        heard[stream] += inbox.take(stream, number, number)
        assert inbox.knows(stream, number)
    for stream, numbers in heard.items():
        assert numbers == list(range(inbox.next[stream]))
        arrived = {number for name, number in arrivals if name == stream}
        assert set(numbers) | set(inbox.held.get(stream, ())) == arrived
        assert (stream in inbox.gaps()) == (arrived > set(numbers))


def outbox(tmp_path, key):
    return Outbox(Journal.create(tmp_path / "journal.db", "test", {}), RUN, "anna", key)


def test_a_message_is_sent_only_after_it_is_on_disk(tmp_path):
    box = outbox(tmp_path, Key.generate())
    box.append("tick", b"1")
    said = [box.say("said", topic, b"x") for topic in ("north", "south", "north")]
    assert not any(len(box.of(topic)) for topic in ("north", "south"))
    assert not len(box.journal)
    assert box.write() == said
    assert [(e.topic, e.sequence) for e in said] == [("north", 0), ("south", 0), ("north", 1)]
    assert [event.kind for event in box.journal.events()] == ["tick", "said", "said", "said"]
    assert box.write() == []
    box.journal.close()


def test_a_message_that_cannot_be_written_is_never_sent(tmp_path):
    box = outbox(tmp_path, Key.generate())
    box.journal.close()
    box.say("said", "north", b"x")
    with pytest.raises(InputError):
        box.write()
    assert not box.of("north")


def test_the_same_bytes_are_restored_and_recognised(tmp_path):
    key = Key.generate()
    box = outbox(tmp_path, key)
    first = box.say("said", "north", b"x")
    box.write()
    again = Outbox(box.journal, RUN, "anna", key)
    for event in box.journal.events():
        again.restore("north", event.seq)
    assert list(again.of("north")) == list(box.of("north")) == [first.encode()]
    assert again.knows(first)
    assert not again.knows(Envelope.sign(key, RUN, "anna", "north", 0, b"y"))
    assert not again.knows(Envelope.sign(key, RUN, "anna", "north", 1, b"x"))
    assert again.say("said", "north", b"z").sequence == 1
    box.journal.close()


def test_coins_accept_a_given_generator():
    def flips(seed):
        puller = Puller(
            None, None, Scale(), coins=True, end="", after=lambda: None, rng=np.random.default_rng(seed)
        )
        return [puller._unit("a", 0.5) for _ in range(100)]

    assert flips(1) == flips(1) != flips(2)


class Trouble(Exception):
    pass


def test_the_first_error_ends_all_tasks_and_is_raised_as_itself():
    ended = []

    async def wait():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(1)

    async def fail():
        await asyncio.sleep(0)
        raise Trouble("no")

    for works, beside in (([wait(), fail()], [wait()]), ([wait()], [fail(), wait()])):
        with pytest.raises(Trouble, match="no"):
            asyncio.run(together(*works, beside=beside))
    assert len(ended) == 4


def test_helpers_end_with_the_work_and_a_cancelled_one_stays_cancelled():
    ended = []

    async def wait():
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(1)

    async def work():
        await asyncio.sleep(random.random() / 100)

    asyncio.run(together(work(), work(), beside=[wait()]))
    assert ended == [1]

    async def main():
        task = asyncio.create_task(together(wait(), beside=[wait()]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == [1, 1, 1]
