"""The streams of a federation at a real broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from bestarm.deploy.federation import files, streams
from bestarm.errors import InputError
from federations import CASES, Coins, Folds
from helpers import SECONDS, serving, until


def limit(server):
    """How many consumers the stream DOWN allows."""

    async def asked():
        return (await server.streams.api("STREAM.INFO.DOWN"))["config"]["max_consumers"]

    return asked()


def test_the_stream_to_the_clients_allows_a_consumer_for_each_slot(tmp_path):
    folder, case = tmp_path / "f", CASES["fed-sel"]
    made = files.init(case, folder, port=0, spare=20)

    async def main():
        async with serving(folder, case) as (server, _):
            assert await limit(server) == len(made.slots) == 23

    asyncio.run(main())


def test_an_older_nats_is_refused(tmp_path):
    made = files.init(CASES["fed-sel"], tmp_path / "f", url="nats://localhost:1")
    older = streams.Streams("nats://localhost:1", made.setup)
    older.nc = SimpleNamespace(connected_server_version=SimpleNamespace(major=2, minor=10))
    with pytest.raises(InputError, match=r"NATS 2.10 is too old.*NATS 2.11 or newer"):
        asyncio.run(older.make(list(made.slots)))


@pytest.mark.parametrize("before", [3, -1])
def test_an_existing_stream_with_a_smaller_limit_is_changed(tmp_path, monkeypatch, before):
    folder, case = tmp_path / "f", CASES["fed-sel"]
    monkeypatch.setattr(streams, "DEFAULT_CONSUMERS", 6)

    async def main():
        async with serving(folder, case) as (server, _):
            config = (await server.streams.api("STREAM.INFO.DOWN"))["config"]
            for slot in list(server.federation.slots)[3:]:
                await server.streams.api(f"CONSUMER.DELETE.DOWN.{slot}")
            changed = await server.streams.api("STREAM.UPDATE.DOWN", {**config, "max_consumers": before})
            assert changed["config"]["max_consumers"] == before
            await server.streams.make(list(server.federation.slots))
            assert await limit(server) == len(server.federation.slots) == 7

    asyncio.run(main())


def test_a_limit_that_the_broker_does_not_change_is_reported_with_the_fix(tmp_path, monkeypatch):
    """Brokers before 2.12 don't change the limit of an existing stream."""
    folder, case = tmp_path / "f", CASES["fed-sel"]

    async def main():
        async with serving(folder, case) as (server, _):
            ask = server.streams.api

            async def older(subject, wish=None):
                if subject == "STREAM.UPDATE.DOWN":
                    return {
                        "error": {"description": "stream configuration update can not change MaxConsumers"}
                    }
                return await ask(subject, wish)

            monkeypatch.setattr(server.streams, "api", older)
            slots = [f"s{k}" for k in range(8)]
            with pytest.raises(InputError, match=r"can.t have 8 consumers.*nats stream rm DOWN"):
                await server.streams.make(slots)

    asyncio.run(main())


def test_consumers_that_a_broker_forgot_deliver_recent_messages_and_hellos_bring_the_rest(
    tmp_path, monkeypatch
):
    folder, case = tmp_path / "f", CASES["fisher"]
    monkeypatch.setattr(streams, "RECENT", 0)
    files.init(case, folder, port=0)
    folds = Folds(folder, Coins(case.problem))
    folds.step("server")
    while not folds.desk.done:  # the clients never receive the verdict
        for name in (*folds.names, "server"):
            folds.step(name)
    folds.close()

    async def start(server):
        return (await server.streams.api("CONSUMER.INFO.DOWN.s1"))["config"]["opt_start_seq"]

    async def first():
        async with serving(folder, case) as (server, _):
            await until(lambda: not server.publisher.pending)
            return await start(server), len(server.desk.broadcasts)

    async def second():
        async with serving(folder, case, case.problem.layout.clients) as (server, tasks):
            begin = await start(server)
            await asyncio.wait_for(tasks["server"], SECONDS)
            return begin, server.farewell.unheard

    begin, count = asyncio.run(first())
    assert (begin, count > 1) == (1, True)
    begin, unheard = asyncio.run(second())
    assert (begin > count, unheard) == (True, [])
