"""A process ends on the first signal, even if a library swallows the cancellation that the signal causes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from nats.aio.client import Client as Nats

from bestarm.cli.exit_codes import INTERRUPTED
from bestarm.deploy.federation import client as clients
from bestarm.deploy.federation import files, wire
from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.client import Client
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.streams import Streams
from bestarm.deploy.process import STOPS, Interrupted, together, until_stopped
from bestarm.deploy.sources import FromPython
from bestarm.util.journal import Journal
from federations import CASES, scenario
from helpers import SECONDS, Processes, client, serving, until
from marking import slow

NEVER_OVER = scenario(
    "fed-sel",
    {"west": {"a": 0.5, "b": 0.01}, "east": {"c": 0.5, "d": 0.01}, "mid": {"e": 0.5, "f": 0.01}},
    period=20,
    delta=0.001,
)


class Swallowing:
    """A call that answers only when it is cancelled, and as if nothing had happened: so may ``wait_for``.

    It swallows one cancellation, so that a test that fails can end.
    """

    def __init__(self):
        self.began, self.swallowed = asyncio.Event(), 0

    async def __call__(self, *_, **__):
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.swallowed += 1
            if self.swallowed > 1:
                raise
        return SimpleNamespace(data=b'{"error": {"description": "too late"}}')


async def ends_when_cancelled_once(work, began, seconds=SECONDS):
    task = asyncio.create_task(work)
    await until(lambda: began.is_set() or task.done())
    task.cancel()
    await asyncio.wait({task}, timeout=seconds)
    return task.cancelled() or task.result()


def broker_that_swallows(call):
    return SimpleNamespace(
        request=call, ask=call, subscribe=call, is_closed=False, is_connected=True, new_inbox=lambda: "inbox"
    )


async def publishing(nc):
    await wire.publish(nc, "subject", b"")


def connection_of(nc):
    connection = wire.Connection()
    connection.new_inbox, connection.subscribe = nc.new_inbox, nc.subscribe
    return connection


async def waiting_for_an_answer(nc):
    await connection_of(nc).ask("subject", b"", 10 * SECONDS)


async def subscribing(nc):
    await wire.Feed(connection_of(nc), "subject").next(0.01)


async def asking(nc):
    streams = Streams("tls://host", SimpleNamespace(subject="ba"))
    streams.nc = nc
    await streams.api("INFO")


@pytest.mark.parametrize("work", [publishing, waiting_for_an_answer, subscribing, asking])
def test_a_loop_around_a_call_that_swallows_a_cancellation_ends(work):
    async def main():
        call = Swallowing()

        async def forever():
            while True:
                await work(broker_that_swallows(call))
                await asyncio.sleep(0.01)

        return await ends_when_cancelled_once(forever(), call.began)

    assert asyncio.run(main())


def test_an_error_in_one_part_does_not_hide_that_all_were_cancelled():
    async def main():
        call = Swallowing()

        async def fails():
            await call()
            raise Unreachable("no answer")

        async def retries():
            while True:
                try:
                    await together(fails())
                except Unreachable:
                    await asyncio.sleep(0.01)

        return await ends_when_cancelled_once(retries(), call.began)

    assert asyncio.run(main())


@pytest.fixture
def own_signals():
    """Restores the handlers that stay ignored after a stop."""
    before = {number: signal.getsignal(number) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_a_signal_ends_what_swallows_it():
    async def main():
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)
        limit = asyncio.timeout(SECONDS)  # so that the test ends even if the signal is lost
        try:
            async with limit:
                await together(publishing(broker_that_swallows(Swallowing())))
        finally:
            late.append(limit.expired())

    late = []
    with pytest.raises(Interrupted):
        until_stopped(main())
    assert late == [False]


STOPPED_OFTEN = """
import asyncio, os, signal, sys
from bestarm.deploy.process import Interrupted, until_stopped

async def main():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("clean")

class Late:
    def __del__(self):  # while the interpreter ends
        os.kill(os.getpid(), signal.SIGTERM)

late = Late()
try:
    until_stopped(main())
except Interrupted:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(130)
"""


def test_further_signals_do_not_change_the_exit_code_of_a_clean_stop():
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED_OFTEN], capture_output=True, text=True, timeout=SECONDS
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "clean\n", "")


def test_handlers_are_as_before_when_the_work_completes():
    async def main():
        return 7

    before = [signal.getsignal(number) for number in STOPS]
    assert until_stopped(main()) == 7
    assert [signal.getsignal(number) for number in STOPS] == before


def swallow(monkeypatch, name, part):
    """The first call of this method with `part` in its subject swallows its cancellation. Returns it."""
    real, call = getattr(Nats, name), Swallowing()

    async def called(self, subject, *args, **options):
        if part in subject and not call.swallowed:
            return await call()
        return await real(self, subject, *args, **options)

    monkeypatch.setattr(Nats, name, called)
    return call


@pytest.mark.parametrize("again", [False, True], ids=["one signal", "a second one during clean-up"])
def test_a_server_ends_and_cleans_up(tmp_path, monkeypatch, again):
    files.init(CASES["fed-sel"], tmp_path / "f", port=0)
    real, closing = Nats.close, []

    async def close(self):
        closing.append(self)
        await asyncio.sleep(0.5 if again else 0.0)
        await real(self)

    async def main():
        call = swallow(monkeypatch, "request", "STREAM.INFO")
        server = Server(tmp_path / "f")
        broker, task = server.broker, asyncio.create_task(server.run())
        await until(call.began.is_set)
        monkeypatch.setattr(Nats, "close", close)
        child = broker.process
        task.cancel()
        await asyncio.wait({task}, timeout=0.2)
        if again:
            await until(lambda: closing)
            task.cancel()
        await asyncio.wait({task}, timeout=SECONDS)
        ended = task.cancelled()
        await server.nc.close()
        return ended, closing, child.poll(), server.desk.journal

    ended, closing, code, journal = asyncio.run(main())
    assert ended
    assert closing
    assert code is not None
    Journal.open(journal.path).close()  # it is not locked any more


def test_a_client_ends_and_cleans_up(tmp_path, monkeypatch):
    case = CASES["fed-sel"]

    async def main():
        async with serving(tmp_path / "f", case):
            one = client(tmp_path / "f", case, "west-1")
            call = swallow(monkeypatch, "subscribe", f"_INBOX_{one.place.slot}.")
            task = asyncio.create_task(one.run())
            await until(call.began.is_set)
            task.cancel()
            await asyncio.wait({task}, timeout=SECONDS)
            ended = task.cancelled()
            return ended, one.site.journal

    ended, journal = asyncio.run(main())
    assert ended
    Journal.open(journal.path).close()  # it is not locked any more


def test_a_client_whose_source_swallows_the_cancellation_ends_and_keeps_its_rewards(tmp_path, monkeypatch):
    case = CASES["fed-sel"]
    files.init(case, tmp_path / "f", port=0)
    monkeypatch.setattr(clients, "CLOSE_SECONDS", 0.1)

    async def main():
        call = Swallowing()

        async def pull(arm, times):
            await call()
            return [1.0] * times

        one = Client(tmp_path / "f" / "clients" / "west-1", lambda site: FromPython(pull))
        task = asyncio.create_task(one.run())
        await until(call.began.is_set)
        task.cancel()
        await asyncio.wait({task}, timeout=SECONDS)
        return task.cancelled(), one.site.made

    ended, made = asyncio.run(main())
    assert ended
    assert made["a"] > 0


def written(folder):
    """When a journal was last written to."""
    return max((path.stat().st_mtime for path in folder.glob("journal.db*")), default=0.0)


def stop_at_random(folder, seed, times):
    """Stop the server and a client again and again while they exchange messages; return the exit codes."""
    rng = random.Random(seed)
    federation, codes = Processes(folder, NEVER_OVER), []
    places = {"server": folder} | {name: folder / "clients" / name for name in federation.names}
    try:
        for name in places:
            federation.start(name)
        for _ in range(times):
            for name in ("server", rng.choice(federation.names)):
                began, end = time.time(), time.monotonic() + SECONDS
                while written(places[name]) < began + 0.1:  # it is at work
                    assert time.monotonic() < end, federation.logs()
                    time.sleep(0.01)
                time.sleep(0.3 * rng.random())
                federation.running[name].send_signal(signal.SIGTERM)
                codes.append(federation.ends(name))
                federation.start(name)
    finally:
        federation.end()
    return codes


@pytest.mark.parametrize(("seed", "times"), [*slow((1, 3)), pytest.param(2, 50, marks=pytest.mark.soak)])
def test_a_busy_process_ends_on_the_first_sigterm_at_any_moment(tmp_path, seed, times):
    codes = set(stop_at_random(tmp_path / "f", seed, times))
    assert INTERRUPTED in codes
    assert codes <= {INTERRUPTED, -signal.SIGTERM}  # the second: while it was still reading its journal
