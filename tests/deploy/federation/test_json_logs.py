"""Server and clients with ``--log json``: every line of their stderr is one object, even when they fail."""

from __future__ import annotations

import json

import pytest

from federations import CASES
from helpers import PATIENT_CLI, SECONDS, Processes

COINS = ("--arms", "bestarm.deploy.sources:Coins")


@pytest.mark.slow
def test_every_line_of_a_run_is_json_with_its_run_and_client_and_the_verdict_is_among_them(tmp_path):
    federation = Processes(tmp_path / "f", CASES["fisher"], linger=SECONDS, cli=PATIENT_CLI)
    kept = tmp_path / "logs" / "west-1.log"
    kept.parent.mkdir()
    try:
        federation.start("server", "--log", "json", "--json")
        federation.says("server", "connected to the broker")
        federation.start("east-1", "--exec", "no-such-sensor {arm}", "--log", "json")
        assert federation.ends("east-1") == 2
        federation.says("server", "east-1 says: ")
        federation.start("east-1", *COINS, "--log", "json")
        federation.start("west-1", *COINS, "--log", "json", "--log-file", str(kept))
        federation.start("mid-1", *COINS, "--log", "json")
        federation.wait()
        assert [federation.ends(name) for name in federation.names] == [0, 0, 0]
    finally:
        federation.end()

    def lines(path):
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in found if "level" in line]  # the others are results, on stdout

    run = json.loads((tmp_path / "f" / "federation.json").read_text())["setup"]["run"]
    server = lines(tmp_path / "f" / "server.log")
    assert all(line["run"] == run for line in server if line["logger"] == "bestarm")
    events = [line.get("event") for line in server]
    assert "round" in events
    assert [line["client"] for line in server if line.get("event") == "note"] == ["east-1"]
    assert server[-1]["event"] == "verdict"
    assert server[-1]["arm"] == "west/a"
    failed = [line for line in lines(tmp_path / "f" / "east-1.log") if line["level"] == "error"]
    assert "no-such-sensor" in failed[0]["message"]
    for path, name in ((kept, "west-1"), (tmp_path / "f" / "mid-1.log", "mid-1")):
        found = lines(path)
        assert {line["client"] for line in found if line.get("event") == "progress"} == {name}
        assert found[-1]["event"] == "verdict"
