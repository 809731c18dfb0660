"""Folders that earlier versions wrote, stopped in the middle of a run: this version finishes the runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tarfile
from pathlib import Path

import pytest

import bestarm as ba
from bestarm.deploy.experiment.audit import audit
from bestarm.deploy.experiment.folder import JOURNAL
from bestarm.deploy.federation import files as federation_files
from bestarm.deploy.federation.client import Client
from bestarm.deploy.federation.client_folders import CLIENT
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.setup import LAYOUT
from bestarm.deploy.federation.verification import verify as verify_federation
from bestarm.deploy.mesh import files as mesh_files
from bestarm.deploy.mesh.run import Run
from bestarm.deploy.mesh.verification import verify as verify_peer
from bestarm.deploy.process import free_port
from bestarm.deploy.sources import FromPython
from bestarm.records.record import Record
from bestarm.util.journal import Journal

ARCHIVES = Path(__file__).parent / "formats"
REWARDS = {"a": 50.0, "b": 0.0, "c": 10.0, "d": 0.0, "x": 50.0, "y": 0.0, "z": 24.0}
PORT = re.compile(r"((?:localhost|127\.0\.0\.1):)(\d+)")
SECONDS = 120.0


def source(fold):
    def pull(arm, times):
        return [REWARDS[arm]] * times

    return FromPython(pull, low=0.0, high=50.0)


def unpacked(name, folder):
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextlib.contextmanager
def free_ports(folder):
    """Let a run use ports that are free now: another program may use those of the archive."""
    ports = {}

    def replace(new):
        for path in folder.rglob("*.json"):
            path.write_text(PORT.sub(lambda m: m[1] + new(m[2]), path.read_text("utf-8")), "utf-8")

    replace(lambda port: ports.setdefault(port, str(free_port())))
    old = {new: port for port, new in ports.items()}
    yield
    replace(lambda port: old.get(port, port))


def events(folder):
    """The journals in a folder: which events each of them has."""
    found = {}
    for path in sorted(folder.rglob("journal.db")):
        with Journal.open(path, write=False) as journal:
            found[path.relative_to(folder)] = [(event.kind, event.body) for event in journal.events()]
    return found


def pulls(folder):
    """The pulls in each journal, by arm."""
    return {
        path: {
            arm: sum(json.loads(body)["got"].get(arm, 0) for kind, body in journal if kind == "rewards")
            for arm in REWARDS
        }
        for path, journal in events(folder).items()
    }


@pytest.mark.parametrize("archive", ["federation-1", "federation-2", "federation-bet-2"])
def test_a_federation_of_an_earlier_format_is_finished(tmp_path, archive):
    folder = unpacked(archive, tmp_path) / "fed"
    before = events(folder)
    places = [path.parent for path in folder.glob(f"clients/*/{CLIENT}")]

    async def steps():
        clients = [Client(place, source) for place in places]
        server = Server(folder, linger=SECONDS)
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            record = tasks.create_task(server.run())
            verdicts = [tasks.create_task(client.run()) for client in clients]
        return record.result(), [verdict.result() for verdict in verdicts], clients

    with free_ports(folder):
        record, verdicts, clients = asyncio.run(steps())
    assert record.verdict.arm == "north/a"
    assert [verdict.arm for verdict in verdicts] == ["north/a"] * 2
    for path, journal in events(folder).items():
        assert journal[: len(before[path])] == before[path], "what was there stays, byte for byte"
        assert len(journal) > len(before[path])
    counted = {client.place.client: client.site.pulls for client in clients}
    for path, made in pulls(folder).items():
        if path.parent.parent.name == "clients":
            name = json.loads((folder / path).with_name(CLIENT).read_bytes())["client"]
            assert counted[name] == sum(made.values())
    found = verify_federation(folder)
    assert found.ok, found.failures
    for place in places:
        assert verify_federation(folder, place / CLIENT).ok
        if (place / "roster.json").exists():  # in schema 1
            assert verify_federation(folder, place / "roster.json").ok


def test_a_federation_of_schema_1_is_written_in_the_new_format_by_the_server(tmp_path):
    folder = unpacked("federation-1", tmp_path) / "fed"
    old = federation_files.Federation.load(folder)
    server = Server(folder)
    server.desk.journal.close()
    plain = json.loads((folder / federation_files.SETUP).read_bytes())
    assert plain["schema"] == 2
    assert "problem" not in plain["setup"]
    assert (folder / LAYOUT).exists()
    assert federation_files.Federation.load(folder) == old
    federation_files.revoke(folder, "Süd-1")
    place = federation_files.add_client(folder, "Süd-1")
    assert place.name == "Süd-1"
    assert federation_files.Place.load(place).setup == old.setup


@pytest.mark.parametrize("archive", ["mesh-1", "mesh-2"])
def test_a_mesh_of_an_earlier_format_is_finished(tmp_path, archive):
    folder = unpacked(archive, tmp_path) / "mesh"
    before, made = events(folder), pulls(folder)
    places = mesh_files.places(folder)

    async def steps():
        runs = [Run(place, source) for place in places]
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            verdicts = [tasks.create_task(run.run()) for run in runs]
        return [verdict.result() for verdict in verdicts]

    with free_ports(folder):
        verdicts = asyncio.run(steps())
    assert [verdict.arm for verdict in verdicts] == ["north/x"] * 3
    for path, journal in events(folder).items():
        assert journal[: len(before[path])] == before[path], "what was there stays, byte for byte"
    for path, now in pulls(folder).items():
        assert all(now[arm] >= made[path][arm] for arm in now)
    for place in places:
        assert verify_peer(place).ok
        assert Record.load(place / mesh_files.RECORD).verdict.arm == "north/x"


def test_an_experiment_of_an_earlier_format_is_finished(tmp_path):
    folder = unpacked("experiment-2", tmp_path) / "experiment"
    before = events(folder)
    with ba.Experiment.open(folder / JOURNAL) as experiment:
        # This is much later: open rewards are past their deadline.
        filled = [site.filled for site in experiment.status.sites]
        assert filled == [4, 1]
        again = experiment.ask("north", key="visit 1")
        assert experiment.ask("north", key="visit 1") == again
        assert experiment.status.assigned == 151, "keys are forgotten after seven days"
        experiment.tell(again.token, 25.0)
        while experiment.verdict is None:
            for site in ("north", "Süd"):
                given = experiment.ask(site)
                experiment.tell(given.token, {"x": 26.0, "y": 24.0}[given.option])
        assert experiment.verdict.arm == "x"
        assert ba.verify(experiment.record()).ok
    assert not audit(folder / JOURNAL).failures
    (path,) = before
    assert events(folder)[path][: len(before[path])] == before[path]


@pytest.mark.parametrize(
    ("archive", "path", "load"),
    [
        ("federation-1", "fed/federation.json", lambda path: federation_files.Federation.load(path.parent)),
        ("federation-1", "fed/clients/s2/client.json", lambda path: federation_files.Place.load(path.parent)),
        ("mesh-1", "mesh/mesh.json", lambda path: mesh_files.places(path.parent)),
        ("mesh-1", "mesh/nodes/a/peer.json", lambda path: mesh_files.Place.load(path.parent)),
    ],
)
def test_a_file_of_a_newer_version_is_refused_with_what_to_do(tmp_path, archive, path, load):
    file = unpacked(archive, tmp_path) / path
    load(file)
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "schema": 99}))
    with pytest.raises(ba.InputError, match=r"newer version of bestarm \(schema 99\).*Install the newer"):
        load(file)
    file.write_text("{}")
    with pytest.raises(ba.InputError, match="was not written by bestarm"):
        load(file)
