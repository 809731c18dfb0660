"""The folders that ``federation init`` makes: small, complete, and named after their sites."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.deploy.federation.client_folders import CLIENT
from bestarm.deploy.federation.setup import LAYOUT, SMALL_LAYOUT
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Roster
from federations import Coins, Folds, scenario


@pytest.fixture
def shelf():
    """A folder in memory, if there is one, because these tests write many files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


TINY = scenario("fisher", delta=0.2)


def of_size(clients):
    return scenario("fed-sel", {f"site {k}": {"old": 0.5, "new": 0.6} for k in range(clients)})


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_folders_of_2000_clients_are_a_few_kilobytes_each(shelf):
    made = files.init(of_size(2000), shelf / "f", port=0)
    sizes = [size_of(place) for place in (shelf / "f" / "clients").iterdir()]
    assert len(sizes) == 2000
    assert max(sizes) < 4096
    assert size_of(shelf / "f") < 2000 * 6000, "the server's files grow no faster than the clients"
    place = files.Place.load(shelf / "f" / "clients" / "site-1999-1")
    assert (place.client, place.setup) == ("site 1999-1", made.setup)


def test_a_large_layout_is_one_file_that_a_site_needs_next_to_its_folder(shelf):
    made = files.init(of_size(400), shelf / "f", port=0)
    assert len(made.setup.layout_file) > SMALL_LAYOUT
    own = shutil.copytree(shelf / "f" / "clients" / "site-7-1", shelf / "site" / "own")
    with pytest.raises(ba.InputError, match=r"no layout\.json .*Copy layout\.json"):
        files.Place.load(own)
    shutil.copy(shelf / "f" / LAYOUT, shelf / "site")
    assert files.Place.load(own).setup == made.setup
    shutil.copy(shelf / "f" / LAYOUT, own)
    (shelf / "site" / LAYOUT).unlink()
    assert files.Place.load(own).setup == made.setup


def test_a_layout_of_another_run_is_not_used(shelf):
    for name, size in (("f", 400), ("g", 401)):
        files.init(of_size(size), shelf / name, port=0)
    own = shutil.copytree(shelf / "f" / "clients" / "site-7-1", shelf / "site" / "own")
    shutil.copy(shelf / "g" / LAYOUT, own)
    with pytest.raises(ba.InputError, match="no layout"):
        files.Place.load(own)
    shutil.copy(shelf / "f" / LAYOUT, own.parent)
    assert files.Place.load(own).client == "site 7-1"


def test_a_small_federation_needs_nothing_but_the_folder_of_a_client(shelf):
    made = files.init(TINY, shelf / "f", port=0)
    own = shutil.copytree(shelf / "f" / "clients" / "west-1", shelf / "site" / "own")
    shutil.rmtree(shelf / "f")
    assert files.Place.load(own).setup == made.setup


def test_the_folders_are_named_after_their_sites(shelf):
    groups = {"Süd": {"a": 0.5}, "süd": {"b": 0.6}, "東京": {"c": 0.7}, "St. Mary's": {"d": 0.4}}
    made = files.init(scenario("fed-sel", groups), shelf / "f", port=0)
    folders = made.folders()
    assert folders == {
        "Süd-1": "Süd-1", "süd-1": "süd-1.s2", "東京-1": "東京-1", "St. Mary's-1": "St.-Mary-s-1",
    }  # fmt: skip
    for client, name in folders.items():
        assert files.Place.load(shelf / "f" / "clients" / name).client == client
    assert files.Federation.load(shelf / "f").folders() == folders


def test_a_site_vouches_for_the_keys_of_its_time(shelf):
    """A client knows the keys that existed when its folder was made, whatever changed before or after."""
    folder = shelf / "f"
    files.init(TINY, folder, port=0)
    for client in ("west-1", "east-1"):  # before the server has ever run
        files.revoke(folder, client)
        files.add_client(folder, client)
    first, second = (folder / "clients" / name / CLIENT for name in ("west-1.s4", "east-1.s5"))
    shutil.move(folder / "clients" / "west-1", shelf / "old")
    shutil.rmtree(folder / "clients" / "east-1")
    folds = Folds(folder, Coins(TINY.problem))
    folds.go().save(folder / files.RECORD)
    folds.close()
    assert verify(folder).ok
    assert verify(folder, second).ok
    found = verify(folder, first).failures
    assert len(found) == 1
    assert "a message from east-1 is signed with key" in found[0]
    found = verify(folder, shelf / "old" / CLIENT).failures
    assert len(found) == 2
    assert all("is signed with key" in failure for failure in found)


def test_a_roster_without_additions_has_the_bytes_of_schema_1(shelf):
    files.init(TINY, shelf / "f", port=0)
    plain = json.loads((shelf / "f" / files.ROSTER).read_bytes())
    assert plain["schema"] == 1
    files.revoke(shelf / "f", "west-1")
    files.add_client(shelf / "f", "west-1")
    roster = Roster.load(shelf / "f" / files.ROSTER)
    assert json.loads(roster.encode())["schema"] == 2
    assert [m.added for m in roster.members if m.client == "west-1"] == [0, 1]


def test_replicas_are_kept_and_only_for_a_cluster(shelf):
    with pytest.raises(ba.InputError, match="embedded broker is a single server"):
        files.init(TINY, shelf / "f", port=0, replicas=3)
    with pytest.raises(ba.InputError, match="replicas = 0"):
        files.init(TINY, shelf / "f", url="tls://nats.example.org:4222", replicas=0)
    files.init(TINY, shelf / "f", url="tls://nats.example.org:4222", replicas=3)
    assert files.Federation.load(shelf / "f").replicas == 3


def test_a_folder_of_a_newer_version_says_so(shelf):
    files.init(TINY, shelf / "f", port=0)
    for path, load in (
        (shelf / "f" / files.SETUP, files.Federation.load),
        (shelf / "f" / "clients" / "west-1" / CLIENT, files.Place.load),
    ):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "schema": 99}))
        with pytest.raises(ba.InputError, match=r"newer version of bestarm \(schema 99\)"):
            load(path.parent)
