"""A full disk ends each process with its own exit code and loses nothing; a read-only folder is called so."""

from __future__ import annotations

import errno
import sys

import pytest

from bestarm.cli.exit_codes import BAD_INPUT, DISK_FULL
from bestarm.errors import DiskFull, InputError
from bestarm.util import files
from bestarm.util.disk_errors import write_error
from bestarm.util.journal import Journal
from marking import slow_but
from small_disk import on_small_disk, python, read_only, shell

JOURNAL = """
from pathlib import Path
from bestarm.errors import DiskFull
from bestarm.util.journal import Journal

path, filler, count = Path("journal.db").resolve(), Path("filler"), 0
filler.write_bytes(bytes(1 << 20))
journal = Journal.create(path, "test")
try:
    while True:
        journal.append("k", b"%d" % count + bytes(10_000))
        count += 1
except DiskFull as error:
    print(error)
journal.close()
filler.unlink()
with Journal.open(path) as journal:
    assert journal.verify() == count > 100, (journal.verify(), count)
    journal.append("k", bytes(10_000))
print("nothing lost")
"""

FILES = """
from pathlib import Path
from bestarm.errors import DiskFull
from bestarm.util.files import write, write_new

path = Path("record.json").resolve()
write(path, b"old")
for attempt in (write, lambda path, data: write_new(path.with_name("new"), data)):
    try:
        attempt(path, bytes(5 << 20))
    except DiskFull as error:
        print(error)
assert path.read_bytes() == b"old"
assert [entry.name for entry in path.parent.iterdir()] == ["record.json"]
"""

KEYS = """
from pathlib import Path
from bestarm.deploy.bundle import Bundle
from bestarm.deploy.federation.keys import Nkey
from bestarm.deploy.identity import Key
from bestarm.errors import DiskFull

here, filler = Path().resolve(), Path("filler")
makers = {"a.key": Key.create, "a.nk": Nkey.create, "a.zip": Bundle(here, "server").save}
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
for name, make in makers.items():
    try:
        make(here / name)
    except DiskFull as error:
        print(error)
assert [entry.name for entry in here.iterdir()] == ["filler"]
filler.unlink()
for name, make in makers.items():
    make(here / name)
assert sorted(entry.name for entry in here.iterdir()) == sorted(makers)
"""

SITE = """
import sys
from pathlib import Path
from bestarm.deploy.federation.files import Place
from bestarm.deploy.federation.site import Site
from bestarm.errors import DiskFull
from bestarm.protocol.events import Pull

place, filler, paid = Place.load(Path(sys.argv[1])), Path("filler"), 0
filler.write_bytes(bytes(3 << 20))
site = Site.open(place)
try:
    while True:
        site.ask(Pull((0, 1), 50), 50)
        rewards = {0: [0.5] * 50, 1: [0.25] * 50}  # now they are paid for
        site.rewards(rewards)
        paid += 100
except DiskFull as error:
    print(error)
site.journal.close()
filler.unlink()
site = Site.open(place)
assert site.pulls == paid > 1000, (site.pulls, paid)
site.ask(Pull((0, 1), 50), 50)
site.rewards(rewards)
site.journal.close()
print("nothing lost")
"""

SCENARIO = """cat > s.toml <<'END'
method = "fed-sel"
delta = 0.1
period = 100_000_000
[[group]]
name = "west"
arms = { a = 0.95, b = 0.02 }
[[group]]
name = "east"
arms = { c = 0.8, d = 0.02 }
END
"""
INIT = "bestarm federation init s.toml --out fed --port 0 > init.txt\n"
RING = """printf 'x,y\\ny,z\\nz,x\\ny,x\\nz,y\\nx,z\\n' > ring.csv
bestarm mesh init ring.csv --groups 'A=x;B=y;C=z' --arms 'A=a;B=b;C=c' --out mesh --port 0 > init.txt
"""
FULL = "dd if=/dev/zero of=filler bs=4k 2>/dev/null\n"

COMMANDS = {
    "run": ("", "bestarm run s.toml --seed 1 --period 4000 --journal run.db"),
    "record": ("", "bestarm run s.toml --seed 1 --period 4000 --out record.json"),
    "study": ("", "bestarm study s.toml --trials 3 --seed 1 --period 4000 --out study.csv"),
    "server": (INIT, "bestarm server fed"),
    "client": (INIT, "bestarm client fed/clients/west-1 --arms bestarm.deploy.sources:Coins"),
    "peer": (RING, "bestarm peer mesh/nodes/x --arms bestarm.deploy.sources:Coins"),
}


def test_a_journal_on_a_full_disk_says_so_and_keeps_all_events(tmp_path):
    done = on_small_disk(tmp_path, python(JOURNAL))
    assert done.returncode == 0, done.stderr
    assert "journal.db: can't be written: the disk is full" in done.stdout
    assert f"make space for {tmp_path} and start again" in done.stdout
    assert "nothing lost" in done.stdout


def test_a_file_on_a_full_disk_keeps_its_old_contents(tmp_path):
    done = on_small_disk(tmp_path, python(FILES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the disk is full") == 2


def test_keys_and_bundles_on_a_full_disk_leave_no_file_and_can_be_written_later(tmp_path):
    done = on_small_disk(tmp_path, python(KEYS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"Make space for {tmp_path} and run the command again") == 3


@pytest.mark.parametrize("name", slow_but(["run"], COMMANDS))
def test_a_command_on_a_full_disk_ends_with_its_own_exit_code(tmp_path, name):
    before, command = COMMANDS[name]
    done = on_small_disk(tmp_path, shell(SCENARIO + before + FULL + command))
    assert done.returncode == DISK_FULL, (done.stdout, done.stderr)
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_client_whose_disk_fills_up_during_a_run_resumes_with_all_its_rewards(tmp_path):
    words = f"{INIT}{sys.executable} -c '{SITE}' fed/clients/west-1"
    done = on_small_disk(tmp_path, shell(SCENARIO + words))
    assert done.returncode == 0, done.stderr
    assert "the disk is full" in done.stdout
    assert "nothing lost" in done.stdout


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_used_up_quota_is_a_full_disk(tmp_path, number):
    found = write_error(OSError(number, "no"), tmp_path / "x")
    assert isinstance(found, DiskFull)
    assert isinstance(found.at("west"), DiskFull)
    assert str(tmp_path) in str(found)


READING = """
import sys
from pathlib import Path
from bestarm.errors import InputError
from bestarm.util.files import write
from bestarm.util.journal import Journal

path = Path("journal.db").resolve()
for attempt in (
    lambda: Journal.open(path),
    lambda: Journal.create(path.with_name("other.db"), "test"),
    lambda: write(path.with_name("record.json"), b"{}"),
):
    try:
        attempt()
    except InputError as error:
        print(error)
try:
    with Journal.open(path, write=False) as journal:
        print(journal.verify(), "events")
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("closed", [True, False])
def test_a_read_only_folder_is_called_read_only_and_its_journal_can_be_read(tmp_path, closed):
    journal = Journal.create(tmp_path / "journal.db", "test")
    journal.append("k", b"1")
    if closed:
        journal.close()
    done = read_only(tmp_path, python(READING))
    journal.close()
    *refused, read = done.stdout.splitlines()
    assert len(refused) == 3, done
    assert all(f"{tmp_path}: can't be written: the folder is read-only" in line for line in refused), refused
    assert read == "1 events"


def test_a_command_on_a_read_only_folder_says_so(tmp_path):
    words = shell("bestarm new x")
    done = read_only(tmp_path, words)
    assert done.returncode == BAD_INPUT
    assert "the folder is read-only" in done.stderr


def test_a_damaged_journal_is_still_called_damaged(tmp_path):
    path = tmp_path / "journal.db"
    with Journal.create(path, "test") as journal:
        journal.append("k", bytes(20_000))
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(InputError, match="damaged"):
        Journal.open(path)


def test_other_errors_of_a_file_say_what_the_system_says(tmp_path):
    files.write(tmp_path / "file", b"")
    with pytest.raises(InputError, match="can't be written: ") as caught:
        files.write(tmp_path / "file" / "x", b"")
    assert not isinstance(caught.value, DiskFull)
    assert "read-only" not in str(caught.value)
