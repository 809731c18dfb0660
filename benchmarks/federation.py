"""The load of a federation: rounds of Fed-SEL with 16, 200 and 1,000 clients, compared with bare NATS.

"Ours" is a server, its broker, and client machines as tasks in a few processes. Rewards are immediate, each
round is one pull, and all means are equal, so that no client drops out. "Bare" is the same kind of broker
with the same accounts, streams, consumers, bytes, syncs and processes, but with plain scripts: nothing is
signed, checked, decided or logged. Where ours commits to a journal, a bare script appends to a file and syncs
it: a client once for each message that it receives or sends, the server once for the messages that it reads
at a time, which it gathers for as long as ours does. "no fsync" is ours with clients whose journals don't
sync: here all clients share one disk, whereas in a deployment each site has its own.

All of them run at the same time and take turns, one round each, in alternating order: while one works, the
others wait before their next broadcast. A round is timed from its broadcast until the server is ready for the
next one. Start-up and Phase I don't count. Ratios compare rounds of the same turn. CPU is that of all rounds
after the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import bestarm as ba
from bestarm.deploy.federation import files, wire
from bestarm.deploy.federation.broker import demand_open_files
from bestarm.deploy.federation.client import Client
from bestarm.deploy.federation.server import Server
from bestarm.deploy.sources import Source
from bestarm.protocol.rounds import SERVER
from bestarm.simulate.setup import Scenario

SIZES = {16: 60, 200: 31, 1000: 5}  # clients: rounds
UP_BYTES = 101  # of a message: its envelope
PROCESSES = 4
LIMIT = 300.0


def measure() -> list[dict[str, Any]]:
    demand_open_files(4 * max(SIZES))
    return [_size(clients, rounds) for clients, rounds in SIZES.items()]


def _size(clients: int, rounds: int) -> dict[str, Any]:
    kinds = ["ours", "bare"] + ["loose"] * (clients <= 200)
    problem = ba.Problem.from_rewards({f"g{k}": {"arm": 0.5} for k in range(clients)})
    scenario = Scenario(problem, "fed-sel", None, {"period": 1, "c": 2.0, "max_rounds": rounds + 1})
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    facts: dict[str, Any] = {}
    parts: dict[str, dict[str, list[int]]] = {}  # by kind and part: ids of processes
    cpu: dict[str, dict[str, float]] = {}  # by kind and part: milliseconds per round
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(lambda: facts.update(disk=_size_of(scratch.glob("ours/clients/*/journal.db*"))))
        servers: dict[str, subprocess.Popen[str]] = {}
        for kind in kinds:
            begun = time.perf_counter()
            made = files.init(scenario, scratch / kind, port=0, spare=0)
            facts["init", kind] = time.perf_counter() - begun
            servers[kind], parts[kind] = _start(stack, kind, scratch / kind, made, rounds, facts)
        before = {kind: _cpu(pids) for kind, pids in parts.items()}
        for number in range(rounds - 1):
            for kind in kinds if number % 2 else reversed(kinds):
                took[kind].append(float(_ask(servers[kind], "go")))
        for kind, pids in parts.items():
            spent = {part: seconds - before[kind][part] for part, seconds in _cpu(pids).items()}
            cpu[kind] = {part: 1e3 * seconds / (rounds - 1) for part, seconds in spent.items()}
        for kind, server in servers.items():
            facts[kind] = json.loads(_ask(server, "end"))
    ms = {kind: 1e3 * statistics.fmean(times) for kind, times in took.items()}
    ratios = sorted(a / b for a, b in zip(took["ours"], took["bare"], strict=True))
    tenth = len(ratios) // 10
    return {
        "clients": clients,
        "rounds": rounds - 1,
        "rounds/s": 1e3 / ms["ours"],
        "messages/s": 2 * clients * 1e3 / ms["ours"],
        "ms a round": ms["ours"],
        "bare ms": ms["bare"],
        **({"no fsync ms": ms["loose"]} if "loose" in ms else {}),
        "× bare": ms["ours"] / ms["bare"],
        "median × bare": statistics.median(ratios),
        "80 % of rounds": f"{ratios[tenth]:.2f} to {ratios[-1 - tenth]:.2f}",
        "load": os.getloadavg()[0],  # of the whole machine in the last minute
        "CPU ms": _parts(cpu["ours"]),
        "bare CPU ms": _parts(cpu["bare"]),
        "CPU × bare": sum(cpu["ours"].values()) / sum(cpu["bare"].values()),
        "server MB": facts["ours"]["server"],
        "broker MB": facts["ours"]["broker"],
        "bare broker MB": facts["bare"]["broker"],
        "bytes up, down": f"{facts['ours']['up']}, {facts['ours']['down']}",
        "disk KB per client": facts["disk"] / clients / 1e3,
        "init s": facts["init", "ours"],
        "start s": facts["start", "ours"],
        "connect and Phase I s": facts["ready", "ours"],
    }


def _start(
    stack: contextlib.ExitStack, kind: str, folder: Path, made: files.Federation, rounds: int, facts: Any
) -> tuple[subprocess.Popen[str], dict[str, list[int]]]:
    """A server that waits before its first broadcast, and the processes of it, its broker and its clients."""
    begun, slots = time.perf_counter(), list(made.slots)
    server = stack.enter_context(_process(kind, "server", folder, rounds))
    _ask(server)
    facts["start", kind] = time.perf_counter() - begun
    clients = [
        stack.enter_context(_process(kind, "clients", folder, rounds, *slots[k::PROCESSES])).pid
        for k in range(PROCESSES)
    ]
    _ask(server)
    facts["ready", kind] = time.perf_counter() - begun - facts["start", kind]
    broker = [int(path.stem.rpartition("_")[2]) for path in (folder / "broker").glob("*.ports")]
    return server, {"server": [server.pid], "broker": broker, "clients": clients}


def _cpu(parts: dict[str, list[int]]) -> dict[str, float]:
    """Seconds of CPU that each part has used so far."""
    return {part: sum(map(cpu_seconds, pids)) for part, pids in parts.items()}


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used so far."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _parts(cpu: dict[str, float]) -> str:
    return ", ".join(f"{part} {ms:.0f}" for part, ms in cpu.items())


def _ask(server: subprocess.Popen[str], word: str = "") -> str:
    assert server.stdin is not None
    assert server.stdout is not None
    if word:
        server.stdin.write(word + "\n")
        server.stdin.flush()
    if not (answer := server.stdout.readline()):
        raise RuntimeError(f"{server.args!r} ended too early")
    return answer


@contextlib.contextmanager
def _process(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.federation", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} if "server" in arguments else {}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield process
            process.wait(60)
        finally:
            process.kill()


def _size_of(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def megabytes(pid: int | str) -> float:
    """The most memory that a process has used."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) / 1e3 if found else float("nan")


class Turns:
    """Before each broadcast of a server: prints the duration of the round, and waits for the next turn."""

    def __init__(self, server: Server) -> None:
        self.server, self.since = server, 0.0

    async def wait(self, up: int, down: int) -> None:
        print(time.perf_counter() - self.since, flush=True)
        if await asyncio.to_thread(sys.stdin.readline) == "end\n":
            assert self.server.broker is not None
            assert self.server.broker.process is not None
            broker = megabytes(self.server.broker.process.pid)
            facts = {"server": megabytes("self"), "broker": broker, "up": up, "down": down}
            print(json.dumps(facts), flush=True)
        self.since = time.perf_counter()


async def _our_server(folder: Path, rounds: int) -> None:
    server = Server(folder, linger=30.0)
    turns, left, resume, publish = Turns(server), rounds, server._resume, wire.publish

    async def ready() -> None:
        print("ready", flush=True)
        await resume()

    async def in_turn(nc: Any, subject: str, data: bytes, *rest: Any) -> None:
        nonlocal left
        if subject.endswith(".all") and left:  # the verdict, after the last round, does not wait
            left -= 1
            last = next(server.desk.journal.events(len(server.desk.journal) - 2))  # before the broadcast
            await turns.wait(len(last.body), len(data))
        await publish(nc, subject, data, *rest)

    server._resume, wire.publish = ready, in_turn  # type: ignore[method-assign]
    await server.run()


class Ones(Source):
    """Rewards that are available immediately."""

    limited = False  # like those of a Python function, which are not waited for

    async def _fetch(self, arm: str, times: int) -> list[float]:
        return [1.0] * times


def _places(folder: Path, slots: Sequence[str]) -> list[Path]:
    """The folders of these slots' clients. The tasks of a process share one setup."""
    seats = files.Federation.load(folder).slots
    places = [folder / "clients" / seat.client for slot in slots if (seat := seats[slot])]
    shared = files.Place.load(places[0]).setup
    files.Setup.from_dict = staticmethod(lambda plain: shared)  # type: ignore[method-assign]
    return places


async def _our_clients(folder: Path, slots: Sequence[str], sync: bool) -> None:
    tasks = []
    for place in _places(folder, slots):
        client = Client(place, lambda site: Ones("ones"))
        if not sync:
            client.site.journal._db.execute("PRAGMA synchronous=OFF")
        tasks.append(asyncio.create_task(client.run()))
        while client.nc is None and not tasks[-1].done():  # not all at once
            await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)


def _wish(most: int) -> bytes:
    """A request for at most this many messages."""
    return json.dumps({"batch": most, "expires": int(LIMIT * 1e9)}).encode()


async def _bare_server(folder: Path, rounds: int) -> None:
    server = Server(folder)
    assert server.broker is not None
    server.broker.start()
    try:
        nc = server.nc = await wire.connect(
            server.url, server.nkey, folder / "broker" / "ca.pem", "server", "_INBOX_server"
        )
        server.streams.nc = nc
        await server.streams.make(list(server.federation.slots))
        print("ready", flush=True)
        subject, clients = f"{server.desk.setup.subject}.all", len(server.federation.slots)
        turns, inbox, js = Turns(server), nc.new_inbox(), nc.jetstream()
        sub = await nc.subscribe(inbox)
        await nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.UP.{SERVER}", _wish(clients * (rounds + 1)), reply=inbox)
        log = _Log(folder / "bare.log")
        for number in range(rounds + 1):
            left = clients
            while left:
                batch = [await sub.next_msg(LIMIT)]
                until = time.perf_counter() + wire.gather_seconds(left)
                while sub.pending_msgs + 1 < left and time.perf_counter() < until:
                    await asyncio.sleep(0.001)
                batch += [await sub.next_msg() for _ in range(sub.pending_msgs)]
                log.append(b"".join(message.data for message in batch))
                for message in batch:
                    await message.ack()
                left -= len(batch)
            if number < rounds:
                await turns.wait(UP_BYTES, _down(clients))
            await js.publish(subject, bytes(_down(clients)), headers={"Nats-Msg-Id": f"{number:032x}"})
        await asyncio.sleep(1.0)
        await nc.close()
    finally:
        server.broker.stop()
        server.desk.journal.close()


def _down(clients: int) -> int:
    """Bytes of a broadcast: an envelope, and a bit for each group."""
    return 103 + clients // 8


class _Log:
    """A file to which each write is synced."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab", buffering=0)

    def append(self, data: bytes) -> None:
        self.file.write(data)
        os.fdatasync(self.file.fileno())


async def _bare_client(place: files.Place, rounds: int) -> asyncio.Task[None]:
    inbox_of = f"_INBOX_{place.slot}"
    nc = await wire.connect(place.setup.url, place.nkey, place.folder / "ca.pem", place.client, inbox_of)
    subject, js, inbox = f"{place.setup.subject}.up.{place.slot}", nc.jetstream(), nc.new_inbox()
    log, arriving = _Log(place.folder / "bare.log"), (await nc.subscribe(inbox)).messages
    await nc.publish(f"{place.setup.subject}.next.{place.slot}", _wish(rounds + 1), reply=inbox)

    async def go() -> None:
        for _ in range(rounds + 1):
            log.append(bytes(UP_BYTES))
            await js.publish(subject, bytes(UP_BYTES), timeout=60)
            message = await anext(arriving)
            log.append(message.data)
            await message.ack()
        await nc.flush()
        await nc.close()

    return asyncio.create_task(go())


async def _bare_clients(folder: Path, slots: Sequence[str], rounds: int) -> None:
    places = [files.Place.load(place) for place in _places(folder, slots)]
    await asyncio.gather(*[await _bare_client(place, rounds) for place in places])


def main(kind: str, role: str, place: str, number: str, *slots: str) -> None:
    """A process of the benchmark."""
    for name in ("asyncio", "bestarm.federation"):  # they log every connection that ends
        logging.getLogger(name).setLevel(logging.ERROR)
    folder, rounds = Path(place), int(number)
    tasks = {
        "ours server": lambda: _our_server(folder, rounds),
        "loose server": lambda: _our_server(folder, rounds),
        "bare server": lambda: _bare_server(folder, rounds),
        "ours clients": lambda: _our_clients(folder, slots, sync=True),
        "loose clients": lambda: _our_clients(folder, slots, sync=False),
        "bare clients": lambda: _bare_clients(folder, slots, rounds),
    }
    asyncio.run(tasks[f"{kind} {role}"]())


if __name__ == "__main__":
    main(*sys.argv[1:])
