"""``client --test``: what it finds, what it says about it, and that it leaves no trace."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bestarm.cli.exit_codes import INTERRUPTED
from bestarm.cli.render.trial import show_trial
from bestarm.cli.sources import Rewards
from bestarm.deploy.federation import files, renewal
from bestarm.deploy.federation import trial as trials
from bestarm.deploy.federation import wire as wires
from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.trial import trial
from bestarm.deploy.identity import Key
from bestarm.deploy.process import free_port
from bestarm.deploy.trial import DRAWS, LOST, UNTOUCHED
from federations import CASES, scenario
from helpers import SECONDS, client, read_only, serving, until

ROWS = "arm,reward\n" + "".join(f"{arm},{k % 2}\n" for arm in "ab" for k in range(2 * DRAWS))


def chosen(**options):
    """How a site makes the source that the operator chose."""
    return Rewards(**options).source()


def about(found, word):
    return [finding for finding in found if finding.about == word]


async def leave(server, task):
    """Stop a client, and wait until the broker has noticed: a client may connect only once."""
    task.cancel()
    await asyncio.wait([task])
    server.attendance.connected = None  # until the next look
    await until(lambda: server.attendance.connected == set())


def digest(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("journal.db")}


@pytest.fixture
def place(tmp_path):
    """The folder of a client whose broker does not run."""
    files.init(CASES["fisher"], tmp_path / "f", port=0)
    return tmp_path / "f" / "clients" / "west-1"


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def test_a_sound_client_is_told_so_and_no_journal_is_made(tmp_path, rows, capsys):
    async def main():
        async with serving(tmp_path / "f", CASES["fisher"]) as (server, _):
            before = len(server.desk.journal), server.desk.refused.total()
            tested = await asyncio.to_thread(
                trial, tmp_path / "f" / "clients" / "west-1", chosen(csv=rows, rows="resample")
            )
            assert (len(server.desk.journal), server.desk.refused.total()) == before, "nothing was sent"
            return tested

    found = asyncio.run(main())
    assert [finding for finding in found if not finding.ok] == []
    names = [finding.about for finding in found]
    checks = ["keys", "clock", "folder", "journal", "source", "arm a", "arm b", "broker", "mailbox", "server"]
    assert names == checks
    assert not list((tmp_path / "f" / "clients" / "west-1").glob("journal*"))
    assert show_trial(found, as_json=False) == 0
    assert "No problems found." in capsys.readouterr().out
    assert show_trial(found, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_a_test_in_the_middle_of_a_run_consumes_no_rows_and_leaves_the_journal_as_it_was(tmp_path, rows):
    folder, case = tmp_path / "f", CASES["fisher"]

    async def main():
        async with serving(folder, case) as (server, tasks):
            running = client(folder, case, "west-1")
            tasks["west-1"] = asyncio.create_task(running.run())
            await until(lambda: server.desk.next["west-1"])
            await leave(server, tasks["west-1"])
            place = folder / "clients" / "west-1"
            before = digest(place)
            assert before
            once = await asyncio.to_thread(trial, place, chosen(csv=rows, rows="once"))
            again = await asyncio.to_thread(trial, place, chosen(csv=rows, rows="resample"))
            assert digest(place) == before
            return running.site.pulls, once, again

    pulls, once, again = asyncio.run(main())
    assert f"{pulls:,} pulls; the run can be resumed" in about(again, "journal")[0].what
    assert UNTOUCHED in about(again, "source")[0].what
    assert about(again, "mailbox")[0].ok
    (spent,) = about(once, "arm a")  # more rows were played than this file has
    assert spent.trouble == "input"
    assert "were played" in spent.what
    assert spent.fix


BAD = {
    "a reward out of bounds": ({"command": "echo 7 {arm}"}, "input"),
    "rewards out of bounds": ({"command": "sh -c 'echo 7' {arm}"}, "input"),
    "a command that does not exist": ({"command": "no-such-sensor {arm}"}, "input"),
    "a command that fails": ({"command": "false {arm}"}, "unreachable"),
    "an address without a listener": ({"http": f"http://127.0.0.1:{free_port()}/{{arm}}"}, "unreachable"),
    "a module that does not exist": ({"arms": "no_such_module:f"}, "input"),
    "a file that does not exist": ({"csv": "no-such-file.csv"}, "input"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_problem_of_a_source_is_found_with_a_way_to_fix_it(place, name, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    source, trouble = BAD[name]
    found = trial(place, chosen(**source))
    bad = [finding for finding in found if not finding.ok and finding.about != "broker"]
    assert bad
    assert {finding.trouble for finding in bad} == {trouble}
    assert all(finding.fix for finding in bad)
    assert show_trial(found, as_json=True) == (2 if trouble == "input" else 5)
    assert not list(place.glob("journal*"))


def test_a_command_that_does_not_exist_gave_no_rewards_and_the_fix_is_about_the_command(place, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    found = trial(place, chosen(command="no-such-sensor {arm}"))
    assert about(found, "source") == []
    assert all("Check that the program is on this computer" in about(found, f"arm {a}")[0].fix for a in "ab")


def test_a_site_with_rewards_out_of_bounds_is_sent_to_the_operator(place, tmp_path, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    (tmp_path / "rows.csv").write_text("arm,reward\na,0\nb,7\n")
    (bad,) = about(trial(place, chosen(csv=tmp_path / "rows.csv")), "source")
    assert "a reward of 7.0" in bad.what
    assert "ask the operator of this run for other bounds" in bad.fix


def test_rewards_in_between_are_a_problem_where_the_scenario_promises_coins(tmp_path, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    files.init(scenario("fed-sel", period=300), tmp_path / "f", port=0)
    found = trial(tmp_path / "f" / "clients" / "west-1", chosen(command="sh -c 'echo 0.5' {arm}"))
    (finding,) = about(found, "arm a")
    assert "nothing in between" in finding.what
    assert LOST in about(found, "source")[0].what


def test_a_broker_that_does_not_run_is_a_problem_of_its_own(place, rows, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    found = trial(place, chosen(csv=rows, rows="resample"))
    (bad,) = [finding for finding in found if not finding.ok]
    assert (bad.about, bad.trouble) == ("broker", "unreachable")
    assert "Start the server" in bad.fix
    assert show_trial(found, as_json=True) == 5


def test_keys_that_others_can_read_are_found(place, rows, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    for name in ("client.key", "client.nk"):
        (place / name).chmod(0o644)
    found = trial(place, chosen(csv=rows, rows="resample"))
    assert [finding.fix for finding in found] == [
        f"Run: chmod 600 {place / name}" for name in ("client.key", "client.nk")
    ]
    assert show_trial(found, as_json=True) == 2


@pytest.mark.slow
def test_a_signing_key_that_the_server_does_not_know_and_a_lost_journal_are_found(
    tmp_path, rows, monkeypatch
):
    folder, case = tmp_path / "f", CASES["fisher"]
    place = folder / "clients" / "west-1"

    async def main():
        async with serving(folder, case) as (server, tasks):
            tasks["west-1"] = asyncio.create_task(client(folder, case, "west-1").run())
            await until(lambda: server.desk.next["west-1"])
            await leave(server, tasks["west-1"])
            for path in place.glob("journal*"):
                path.unlink()
            lost = await asyncio.to_thread(trial, place, chosen(csv=rows, rows="resample"))
            (place / "client.key").unlink()
            Key.create(place / "client.key")
            monkeypatch.setattr(trials, "ANSWER_SECONDS", 1.0)  # there is no answer
            unknown = await asyncio.to_thread(trial, place, chosen(csv=rows, rows="resample"))
            return lost, unknown

    lost, unknown = asyncio.run(main())
    (bad,) = [finding for finding in lost if not finding.ok]
    assert (bad.about, bad.trouble) == ("server", "input")
    assert "older backup" in bad.what
    assert "journal.db" in bad.fix
    (bad,) = [finding for finding in unknown if not finding.ok]
    assert (bad.about, bad.trouble) == ("server", "unreachable")
    assert "not the key" in bad.what


def test_a_clock_that_is_behind_and_a_folder_that_is_read_only_are_found(place, rows, monkeypatch):
    monkeypatch.setattr(wires, "CONNECT_SECONDS", 0.5)
    later = time.time() + 10_000
    os.utime(place / "client.json", (later, later))
    with read_only(place):
        found = trial(place, chosen(csv=rows, rows="resample"))
    (clock,), (folder,) = about(found, "clock"), about(found, "folder")
    assert "newer than this computer's clock" in clock.what
    assert "can't be written" in folder.what
    assert clock.trouble == folder.trouble == "input"


def test_a_revoked_key_and_another_federation_s_certificate_are_found(tmp_path, rows):
    folder, case = tmp_path / "f", CASES["fisher"]
    files.init(case, tmp_path / "other", port=0)

    async def main():
        async with serving(folder, case) as (server, _):
            url = server.federation.setup.url
            stranger = tmp_path / "other" / "clients" / "west-1"
            other = await asyncio.to_thread(lambda: trial(stranger, chosen(csv=rows), url=url))
            files.revoke(folder, "west-1")
            await until(lambda: "west-1" not in server.desk.slots.roster.current)
            mine = await asyncio.to_thread(
                trial, folder / "clients" / "west-1", chosen(csv=rows, rows="resample")
            )
            return other, mine

    for found, why, fix in zip(
        asyncio.run(main()), ("certificate", "refuses this key"), ("ca.pem", "add-client"), strict=True
    ):
        (bad,) = [finding for finding in found if not finding.ok]
        assert bad.about == "broker"
        assert why in bad.what
        assert fix in bad.fix


def test_a_client_that_has_not_heard_of_the_server_s_new_key_is_told_that_all_is_well(tmp_path, rows):
    folder, case = tmp_path / "f", CASES["fisher"]
    files.init(case, folder, port=0)
    files.revoke(folder, "east-1")
    fresh = files.add_client(folder, "east-1")

    async def main():
        async with serving(folder, case) as (server, _):
            for count in (2, 3):
                renewal.renew_server_key(folder)
                await until(lambda count=count: len(server.desk.servers) == count)
            await until(lambda: not server.publisher.pending)
            places = (folder / "clients" / "west-1", fresh)
            return [
                await asyncio.to_thread(trial, place, chosen(csv=rows, rows="resample")) for place in places
            ]

    west, _ = found = asyncio.run(main())
    for each in found:
        bad = [finding for finding in each if not finding.ok]
        assert {finding.about for finding in bad} <= {"source"}, "the rows are not those of east-1"
        assert "its key was renewed" in about(each, "server")[0].what
    assert "with messages" in about(west, "mailbox")[0].what


def test_a_client_that_was_cut_off_is_told_that_the_operator_can_allow_it_again(tmp_path, rows, caplog):
    folder, case = tmp_path / "f", CASES["fisher"]
    command = "bestarm federation allow DIR west-1"

    async def main():
        async with serving(folder, case) as (server, _):
            files.block(folder, server.federation.slot_of("west-1"))
            await until(lambda: server.federation.slots["s1"].blocked)
            with pytest.raises(Unreachable, match="refuses this key") as error:
                await client(folder, case, "west-1").run()
            assert command in str(error.value)
            return await asyncio.to_thread(
                trial, folder / "clients" / "west-1", chosen(csv=rows, rows="resample")
            )

    (bad,) = [finding for finding in asyncio.run(main()) if not finding.ok]
    assert bad.about == "broker"
    assert command in bad.fix
    assert "trying again until the key was refused" in caplog.text


def test_a_second_process_is_bad_input_and_the_server_s_log_names_its_client(tmp_path, rows, caplog):
    folder, case = tmp_path / "f", CASES["fisher"]

    async def main():
        async with serving(folder, case, ["west-1"]) as (server, _):
            await until(lambda: server.desk.next["west-1"])
            found = await asyncio.to_thread(
                trial, folder / "clients" / "west-1", chosen(csv=rows, rows="resample")
            )
            await until(lambda: "a second connection with the key of west-1 was refused" in caplog.text)
            return found

    found = asyncio.run(main())
    assert "another process is connected" in about(found, "broker")[0].what
    assert show_trial(found, as_json=True) == 2


@pytest.mark.parametrize("wrong", ["missing", "clients", "rows.csv"])
def test_a_folder_that_is_not_a_client_s_is_called_that(tmp_path, place, rows, wrong):
    folder = {"missing": tmp_path / "missing", "clients": place.parent, "rows.csv": rows}[wrong]
    (finding,) = trial(folder, chosen(csv=rows))
    assert "client.json" in finding.what
    assert finding.fix == "Name the folder that bestarm federation init made for this client"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_test_also_ends_the_command_that_draws_rewards(tmp_path, place, number):
    script = tmp_path / "slow.py"
    script.write_text(
        "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    drawing = f"{sys.executable} {script} {tmp_path / 'pid'}"
    command = [sys.executable, "-m", "bestarm.cli", "client", str(place), "--exec", drawing, "--test"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        asyncio.run(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        process.send_signal(number)
        assert process.wait(SECONDS) == INTERRUPTED
    asyncio.run(until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()))
