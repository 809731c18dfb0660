"""A federation on an operator's NATS cluster: each message is kept by several servers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess

import pytest

from bestarm.deploy.federation import files
from bestarm.deploy.federation.broker import binary
from bestarm.deploy.federation.keys import demand_url
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.process import free_port
from bestarm.errors import InputError
from federations import CASES
from helpers import SECONDS, check_pulls, client, get, listening, serving, until


class Cluster:
    """Three real NATS servers on this computer, with the accounts of a federation."""

    def __init__(self, folder, federation, ports):
        self.folder, self.ports = folder, ports
        routes = [free_port() for _ in ports]
        others = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
        self.running = {}
        for k, (port, route) in enumerate(zip(ports, routes, strict=True)):
            (folder / f"n{k}.conf").write_text(
                f"""listen: "127.0.0.1:{port}"
                server_name: "n{k}"
                jetstream {{ store_dir: "{folder}/store{k}", sync_interval: always }}
                cluster {{ name: "c", listen: "127.0.0.1:{route}", routes: [ {others} ] }}
                include "{federation.name}/broker/accounts.conf"
                """
            )
            self.start(f"n{k}")

    def start(self, name):
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.running[name] = subprocess.Popen(
                [binary(), "-c", str(self.folder / f"{name}.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name):
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    def end(self):
        for name in self.running:
            self.kill(name)


@contextlib.contextmanager
def cluster(folder, case):
    """A folder for a federation on a cluster, and the cluster."""
    ports = [free_port() for _ in range(3)]
    url = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
    files.init(case, folder, url=url, replicas=3)
    one = Cluster(folder.parent, folder, ports)
    try:
        yield one
    finally:
        one.end()


@pytest.mark.slow
@pytest.mark.parametrize("which", ["leader", "other"])
def test_a_run_continues_when_a_server_of_three_is_killed(tmp_path, which):
    folder, case = tmp_path / "f", CASES["robust-fed-sel"]
    names = case.problem.layout.clients

    async def main(nats):
        await until(lambda: all(listening(port) for port in nats.ports))
        async with serving(folder, case, names[:-1], patience=SECONDS) as (server, tasks):
            for stream in ("UP", "DOWN"):
                assert (await server.streams.api(f"STREAM.INFO.{stream}"))["config"]["num_replicas"] == 3
            await until(lambda: server.desk.waiting_for() == [names[-1]] and not server.health.trouble)
            place = (await server.streams.api("STREAM.INFO.UP"))["cluster"]
            assert len(place["replicas"]) == 2
            nats.kill(place["leader"] if which == "leader" else place["replicas"][0]["name"])
            tasks[names[-1]] = asyncio.create_task(client(folder, case, names[-1]).run())
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            return record, [event.kind for event in server_events(folder)]

    with cluster(folder, case) as nats:
        record, kinds = asyncio.run(main(nats))
    assert record.verdict.arm == "west/a"
    assert "patience" not in kinds, "nobody was silent: the cluster was without a leader"
    found = verify(folder)
    assert found.ok, found.failures
    check_pulls(folder, names)


@pytest.mark.slow
def test_without_a_majority_nothing_is_healthy_and_patience_stands_until_a_server_is_back(tmp_path):
    folder, case, port, patience = tmp_path / "f", CASES["robust-fed-sel"], free_port(), 2.0
    names = case.problem.layout.clients

    async def main(nats):
        await until(lambda: all(listening(port) for port in nats.ports))
        async with serving(folder, case, names[:-1], metrics=port, patience=SECONDS) as (server, tasks):
            await until(lambda: server.desk.waiting_for() == [names[-1]] and not server.health.trouble)
            for name in ("n0", "n1"):
                nats.kill(name)
            await until(lambda: server.health.trouble)
            server.patience = patience
            server.waiting.restart(server.desk.machine)
            tasks[names[-1]] = asyncio.create_task(client(folder, case, names[-1]).run())
            for _ in range(4):
                assert await asyncio.to_thread(get, port, "/healthz") == (503, "")
                await asyncio.sleep(patience / 2)
            assert server.time_left() == patience
            server.patience = SECONDS
            nats.start("n0")
            await until(lambda: not server.health.trouble)
            return await asyncio.wait_for(tasks["server"], SECONDS)

    with cluster(folder, case) as nats:
        record = asyncio.run(main(nats))
    assert record.verdict.arm == "west/a"
    assert "patience" not in [event.kind for event in server_events(folder)]
    check_pulls(folder, names)


def server_events(folder):
    from bestarm.deploy.federation.desk import KIND
    from bestarm.util.journal import Journal

    with contextlib.closing(Journal.open(folder / files.JOURNAL, KIND, write=False)) as journal:
        return list(journal.events())


def test_the_embedded_broker_has_no_replicas(tmp_path):
    files.init(CASES["fed-sel"], tmp_path / "f", port=0)
    with pytest.raises(InputError, match=r"embedded broker is a single server.*Give --nats"):
        Server(tmp_path / "f", replicas=3)
    with pytest.raises(InputError, match=r"embedded broker is a single server.*Give --nats"):
        files.init(CASES["fed-sel"], tmp_path / "g", port=0, replicas=3)
    with pytest.raises(InputError, match="1 to 5"):
        Server(tmp_path / "f", url="nats://localhost:1", replicas=0)


def test_one_server_cannot_keep_three_replicas(tmp_path):
    folder, case = tmp_path / "f", CASES["fed-sel"]

    async def main():
        async with serving(folder, case) as (server, _):
            server.streams.replicas = 3
            with pytest.raises(InputError, match=r"can't have 3 replicas.*a NATS cluster of at least 3"):
                await server.streams.make(list(server.federation.slots))

    asyncio.run(main())


def test_several_addresses_are_checked_one_by_one():
    demand_url("tls://a:4222,tls://b:4222, tls://c:4222")
    with pytest.raises(InputError, match='"b:4222" is not an address'):
        demand_url("tls://a:4222,b:4222")
    with pytest.raises(InputError, match='"" is not an address'):
        demand_url("tls://a:4222,")
    with pytest.raises(InputError, match="only some of these use TLS"):
        demand_url("tls://a:4222,nats://b:4222")
