"""A support bundle helps to find a problem, and contains no private key, no reward and no message."""

from __future__ import annotations

import base64
import json
import re
import time
import zipfile

import pytest

from bestarm.cli.bundle import federation_bundle
from bestarm.deploy.bundle import CUT, Bundle, scrub, scrub_line, secrets_in
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import files
from bestarm.deploy.federation.alarms import ALARM
from bestarm.deploy.federation.bundle import bundle
from bestarm.deploy.identity import Key
from bestarm.errors import InputError
from federations import Coins, Folds, scenario

ODD = 0.7391846152  # a reward that occurs nowhere else

LEAK = f"command 'read --token hush-hush', arm \"a\": gave a reward of {ODD}. Expected a reward in [0, 0.5]"


class Odd(Coins):
    """Rewards with many digits, none of which may leave the site."""

    given = ()

    def rewards(self, client, arm, start, times):
        base = super().rewards(client, arm, start, times)
        found = [abs(x - ODD / (k + start + 2)) for k, x in enumerate(base)]
        self.given = [*self.given, *found]
        return found


@pytest.fixture
def federation(tmp_path):
    """A federation in the middle of a run, with rewards in its journals, notes and logs."""
    case = scenario("fed-sel", period=300, delta=0.1)
    folder = tmp_path / "f"
    files.init(case, folder, port=0)
    coins = Odd(case.problem)
    folds = Folds(folder, coins, batch=100)
    while not folds.desk.broadcasts:
        folds.turn()
    key = Key.load(folder / "clients" / "west-1" / "client.key")
    run, now = folds.setup.run, int(time.time())
    folds.desk.take([Envelope.sign(key, run, "west-1", ALARM, now, LEAK.encode()).encode()])
    contents = [e.body for e in folds.desk.journal.events() if e.kind in ("up", "down")]
    folds.close()
    (folder / "server.log").write_text(f"2026-11-16 17:00:00,123 west-1 says: {LEAK}\n")
    line = {"time": "2026-11-16T17:00:00.123Z", "message": LEAK, "reward": ODD, "error": f"ValueError: {ODD}"}
    (folder / "json.log").write_text(json.dumps(line) + "\n")
    parsed = f"[7] 2026/11/16 17:19:04.598057 [ERR] 127.0.0.1:5 - Client parser ERROR, proto='PUB {ODD}'\n"
    (folder / "broker" / "broker.log").write_text(parsed)
    client = folder / "clients" / "west-1"
    (client / "client.log").write_text(f"2026-11-16 17:00:00,123 {LEAK}\n")
    return folder, contents, coins.given


def inside(path):
    """The whole content of a zip file, uncompressed."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def key_files(folder):
    return [path for path in folder.rglob("*") if path.suffix in (".key", ".nk")]


def forms(path):
    """A private key in each form in which it could leak."""
    data = path.read_bytes().strip()
    lines = [line for line in data.splitlines() if not line.startswith(b"-----")]
    yield data
    yield from (line for line in lines if len(line) >= 16)
    if data.startswith(b"-----"):
        der = base64.b64decode(b"".join(lines))
        yield from (der, der.hex().encode(), der[-32:], der[-32:].hex().encode())


@pytest.mark.parametrize("whose", ["server", "client"])
def test_no_private_key_reward_or_message_is_in_a_bundle(federation, tmp_path, whose):
    folder, contents, rewards = federation
    place = folder if whose == "server" else folder / "clients" / "west-1"
    target = tmp_path / "b.zip"
    assert federation_bundle(place, out=target, as_json=True) == 0
    assert target.stat().st_mode & 0o777 == 0o600
    parts = inside(target)
    everything = b"\n".join([*parts.values(), *(name.encode() for name in parts)])
    keys = key_files(folder)
    assert {path.name for path in keys} >= {"server.key", "server.nk", "ca.key", "broker.key", "client.key"}
    for path in keys:
        for secret in forms(path):
            assert secret not in everything, path
    long = [repr(reward).encode() for reward in [ODD, *rewards] if len(repr(reward)) > 8]
    assert len(long) > 100
    assert [reward for reward in long if reward in everything] == []
    assert contents
    for data in contents:
        envelope = Envelope.decode(data if data.startswith(bytes.fromhex(_run(folder))) else data[16:])
        for form in (data, data.hex().encode(), base64.b64encode(data), envelope.signature):
            assert form not in everything
        assert envelope.signature.hex().encode() not in everything
    assert b"hush-hush" not in everything


def _run(folder):
    return files.Federation.load(folder).setup.run.hex()


def test_a_log_file_that_is_named_must_exist(federation, tmp_path):
    folder, _, _ = federation
    with pytest.raises(InputError, match="no such log file"):
        federation_bundle(folder, log_file=[tmp_path / "missing.log"], out=tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_a_bundle_has_what_helps_to_find_a_problem(federation, tmp_path, capsys):
    folder, _, _ = federation
    assert federation_bundle(folder, out=tmp_path / "b.zip") == 0
    said = capsys.readouterr().out
    parts = inside(tmp_path / "b.zip")
    assert all(name in said for name in parts), "what is inside is printed"
    about = json.loads(parts["about.json"])
    assert {"bestarm", "python", "platform", "packages", "disk"} <= set(about)
    assert json.loads(parts["federation.json"])["setup"]["method"] == "fed-sel"
    assert json.loads(parts["roster.json"])["clients"]
    journal = json.loads(parts["journal.json"])
    assert journal["events"]["up"] > 0
    assert journal["events"]["alarm"] == 1
    state = json.loads(parts["state.json"])
    assert state["notes"][0]["client"] == "west-1"
    assert b"bestarm_round" in parts["metrics.txt"]
    modes = {each["name"]: each["mode"] for each in json.loads(parts["files.json"])}
    assert modes["server.key"] == "0600"
    assert all(each["until"] > each["from"] for each in json.loads(parts["certificates.json"]))
    assert parts["logs/server.log"].decode().startswith("2026-11-16 17:00:00,123 west-1 says: ")
    assert json.loads(parts["logs/json.log"])["time"] == "2026-11-16T17:00:00.123Z"
    assert "2026/11/16 17:19:04.598057 [ERR] 127.0.0.1:5" in parts["logs/broker.log"].decode()


def test_the_record_of_a_finished_run_is_included_without_means_and_evidence(tmp_path):
    case = scenario("fisher", delta=0.1)
    files.init(case, tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(case.problem))
    folds.go().save(tmp_path / "f" / files.RECORD)
    folds.close()
    bundle(tmp_path / "f").save(tmp_path / "b.zip")
    record = json.loads(inside(tmp_path / "b.zip")["record.json"])
    assert record["verdict"] == {"status": "identified", "arm": "west/a", "reason": None}
    assert record["evidence"] == 0
    assert "problem" not in record


def test_a_bundle_that_would_contain_a_key_is_not_written(tmp_path):
    files.init(scenario("fisher"), tmp_path / "f", port=0)
    for path in key_files(tmp_path / "f"):
        made = Bundle(tmp_path / "f", "server")
        for secret in forms(path):
            made.parts["leak.txt"] = b"before " + secret + b" after"
            with pytest.raises(InputError, match="private key"):
                made.save(tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()


def test_private_keys_are_found_by_their_content_under_any_name(tmp_path):
    files.init(scenario("fisher"), tmp_path / "f", port=0)
    before = {path for _, path in secrets_in(tmp_path / "f")}
    assert before == set(key_files(tmp_path / "f"))
    (tmp_path / "f" / "server.key").rename(tmp_path / "f" / "old-backup")
    assert tmp_path / "f" / "old-backup" in {path for _, path in secrets_in(tmp_path / "f")}


def test_other_folders_and_existing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="not a folder of a federation"):
        bundle(tmp_path)
    files.init(scenario("fisher"), tmp_path / "f", port=0)
    (tmp_path / "b.zip").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        bundle(tmp_path / "f").save(tmp_path / "b.zip")
    assert (tmp_path / "b.zip").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('rows.csv, line 7: holds a reward of 7. Expected a reward in [0, 1]', "7. Exp"),
        ("http://user:pass@10.0.0.1:80/secret?token=abc: no answer", "secret"),
        ("http://user:pass@10.0.0.1:80/secret?token=abc: no answer", "pass"),
        ("ValueError('the sensor said 12')", "12"),
        ("the mean was -3.25e-4 here", "3.25"),
        ("each row of a file is played once: 1024 rows 3f2a", "3f2a"),
    ],
)  # fmt: skip
def test_texts_are_cut_where_they_may_quote_something_private(text, gone):
    assert gone in text
    assert gone not in scrub(text)
    assert gone not in scrub_line(json.dumps({"message": text, "more": [text]}))
    assert CUT in scrub(text) or not re.search(r"\bpass\b", scrub(text))
