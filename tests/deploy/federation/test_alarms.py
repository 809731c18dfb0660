"""A client that fails tells the server's operator at once: log, table, journal and live page show it."""

from __future__ import annotations

import asyncio
import subprocess
import time

import pytest

from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import alarms, files, wire
from bestarm.deploy.federation import client as clients
from bestarm.deploy.federation.alarms import ALARM, ALARM_BYTES, MOST_ALARMS
from bestarm.deploy.federation.desk import Desk
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key, Roster
from bestarm.deploy.process import free_port
from bestarm.deploy.sources import FromCsv, FromPython
from bestarm.errors import InputError
from bestarm.report import follow, page
from federations import CASES, scenario
from helpers import PATIENT_CLI, SECONDS, client, read_only, serving, shown, until

WAYS = {
    "a missing file": (["--csv", "no-such-file.csv"], 2, "no-such-file.csv"),
    "a missing column": (["--csv", "{rows}", "--reward-column", "minutes"], 2, "minutes"),
    "a missing arm": (["--csv", "{rows}"], 2, "there are no rewards for arm"),
    "a missing module": (["--arms", "no_such_module:pull"], 2, "no_such_module"),
    "a missing command": (["--exec", "no-such-sensor {arm}"], 2, "can't be started"),
    "a closed port": (["--http", f"http://127.0.0.1:{free_port()}/{{arm}}"], 5, "gave up"),
    "a reward out of bounds": (["--exec", "sh -c 'echo 7' {arm}"], 2, "gave a reward out of bounds"),
    "a read-only folder": (["--exec", "sh -c 'echo 1' {arm}"], 2, "read-only"),
}


@pytest.mark.slow
def test_every_way_to_fail_reaches_the_operator_while_the_server_runs(tmp_path, caplog):
    (tmp_path / "rows.csv").write_text("arm,reward\nx,1\n")
    folder, case = tmp_path / "f", scenario("fisher", clients=3, byzantine=1, delta=0.1)
    names = dict(zip(WAYS, case.problem.layout.clients, strict=False))

    seen = []

    def fail(way):
        args = [word.replace("{rows}", str(tmp_path / "rows.csv")) for word in WAYS[way][0]]
        command = [*PATIENT_CLI, "client", str(folder / "clients" / names[way]), *args]
        return subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)

    async def main():
        async with serving(folder, case, watch=seen.append) as (server, _):
            with read_only(folder / "clients" / names["a read-only folder"]):
                ended = await asyncio.gather(*(asyncio.to_thread(fail, way) for way in WAYS))
            said = {way: done.stderr.decode() for way, done in zip(WAYS, ended, strict=True)}
            codes = {way: done.returncode for way, done in zip(WAYS, ended, strict=True)}
            await until(lambda: {note.client for note in server.desk.notes} >= set(names.values()))
            return codes, said, server.desk.notes, shown(seen[-1])

    codes, said, notes, table = asyncio.run(main())
    assert codes == {way: code for way, (_, code, _) in WAYS.items()}, said
    following = follow.source(folder)
    while following.catch_up(SECONDS):
        pass
    live = next(str(html) for where, _, html in page.sections(following.facts()) if where == "notes")
    for way, (_, _, why) in WAYS.items():
        texts = [note.text for note in notes if note.client == names[way]]
        assert any(why in text for text in texts), (way, texts)
        assert f"{names[way]} says: " in caplog.text
        assert names[way] in live
    assert "gave a reward of 7.0" in said["a reward out of bounds"], "the site's own terminal shows it"
    last = notes[-1]
    assert f"{last.client} said (in round" in table
    found = verify(folder)
    assert [note.client for note in found.notes] == [note.client for note in notes]
    assert found.failures == ()
    assert found.suspects == {}


def test_a_client_that_cannot_start_tells_the_operator_without_a_journal(tmp_path):
    folder = tmp_path / "f"

    async def main():
        async with serving(folder, CASES["fisher"]) as (server, _):
            place = folder / "clients" / "west-1"
            told = await asyncio.to_thread(alarms.tell, place, InputError("the sensor is off"))
            await until(lambda: server.desk.notes)
            return told, list(place.glob("journal*")), server.desk.notes

    told, journals, (note,) = asyncio.run(main())
    assert told
    assert journals == []
    assert (note.client, note.text) == ("west-1", "the sensor is off.")


def test_a_client_that_fails_while_it_runs_and_one_with_an_unexpected_error_tell_the_operator(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(clients, "ALARM_SECONDS", SECONDS)
    folder, case = tmp_path / "f", CASES["fisher"]

    async def main():
        async with serving(folder, case) as (server, tasks):
            fine = client(folder, case, "east-1")
            tasks["east-1"] = asyncio.create_task(fine.run())
            await until(lambda: server.desk.next["east-1"])
            one = client(folder, case, "west-1")
            monkeypatch.setattr(one.site, "ask", lambda *args: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(one.run(), SECONDS)
            await until(lambda: server.desk.notes)
            return server.desk.notes

    (note,) = asyncio.run(main())
    assert note.client == "west-1"
    assert "ZeroDivisionError" in note.text


def test_without_a_broker_the_error_is_noted_for_the_next_run_and_nobody_waits_long(tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "ALARM_SECONDS", 0.2)
    monkeypatch.setattr(alarms, "ALARM_SECONDS", 0.2)
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.2)
    folder, case = tmp_path / "f", CASES["fisher"]
    files.init(case, folder, port=0)
    place = folder / "clients" / "west-1"
    assert alarms.tell(place, InputError("the sensor is off")) is False
    assert alarms.tell(tmp_path, InputError("this is no folder of a client")) is False
    one = clients.Client(place, lambda site: FromPython(lambda arm: 7))
    with pytest.raises(InputError, match="reward of 7"):
        asyncio.run(asyncio.wait_for(one.run(), SECONDS))

    async def main():
        async with serving(folder, case) as (server, tasks):
            tasks["west-1"] = asyncio.create_task(client(folder, case, "west-1").run())
            await until(lambda: server.desk.notes)
            return server.desk.notes[0]

    monkeypatch.setattr(wire, "CONNECT_SECONDS", SECONDS)
    note = asyncio.run(main())
    assert note.client == "west-1"
    assert "gave a reward out of bounds (not shown, for privacy)" in note.text


@pytest.fixture
def desk(tmp_path):
    files.init(CASES["fisher"], tmp_path / "f", port=0)
    setup = files.Federation.load(tmp_path / "f").setup
    roster = Roster.load(tmp_path / "f" / files.ROSTER)
    made = Desk.create(tmp_path / "f" / files.JOURNAL, setup, roster, Key.load(tmp_path / "f" / "server.key"))
    yield made
    made.journal.close()


def test_only_newer_signed_alarms_of_bounded_number_and_length_are_taken(desk, tmp_path):
    key = Key.load(tmp_path / "f" / "clients" / "west-1" / "client.key")
    now = int(time.time())

    def alarm(text, at, by=key, run=desk.setup.run, source="west-1"):
        desk.take([Envelope.sign(by, run, source, ALARM, at, text.encode()).encode()])
        return [note.text for note in desk.notes]

    assert alarm("one", now) == ["one"]
    assert alarm("one", now) == ["one"], "the same again"
    assert alarm("one", now + 1) == ["one"], "it failed again in the same way"
    assert alarm("older", now - 1) == ["one"]
    assert alarm("forged", now + 2, by=Key.generate()) == ["one"]
    assert alarm("elsewhere", now + 2, run=bytes(16)) == ["one"]
    assert alarm("nobody", now + 2, source="nobody") == ["one"]
    assert alarm("x" * (ALARM_BYTES + 1), now + 2) == ["one"]
    assert alarm("two", now + 2) == ["one", "two"]
    for k in range(2 * MOST_ALARMS):
        alarm(f"{k}", now + 3 + k)
    assert len(desk.notes) == MOST_ALARMS
    assert desk.suspects() == {}, "alarms are never evidence"
    folder = desk.journal.path.parent
    assert verify(folder).failures == ()
    assert len(verify(folder).notes) == MOST_ALARMS


def test_an_alarm_holds_no_reward_and_no_line_of_a_file(tmp_path):
    """Data stay at the site, unless its own people tell them: the site's terminal has the whole error."""
    path = tmp_path / "rows.csv"
    path.write_text("arm,reward\na,1\na,7.25\n")
    with pytest.raises(InputError) as found:
        FromCsv(path, arms=["a"])
    assert "line 3: holds a reward of 7.25" in str(found.value)
    told = alarms.words_of(found.value)
    assert told.startswith(
        f"{path}: holds a reward out of bounds (not shown, for privacy). Expected a reward in [0, 1]"
    )
    path.write_text("arm,reward\na,one\n")
    with pytest.raises(InputError) as found:
        FromCsv(path, arms=["a"])
    assert "line 2: holds 'one'" in str(found.value)
    assert alarms.words_of(found.value).startswith(f"{path}: holds no number (not shown, for privacy).")
    assert alarms.words_of(ValueError("7.25")) == "ValueError (not shown, for privacy)"
