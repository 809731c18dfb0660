"""What commands print with --json is valid against the published schemas."""

from __future__ import annotations

import json

import jsonschema
import pytest

from bestarm.cli.json_output import OUTPUTS, output_schema
from bestarm.errors import InputError
from command_line import bestarm

GAPS = ["--gaps", "north=0,0.1;south=0.05", "--trials", "20", "--seed", "1", "--method", "fisher"]
COMMANDS = {
    "plan": ["plan", *GAPS, "--json"],
    "plan with a schedule": ["plan", *GAPS, "--max-rounds", "5", "--quick", "--json"],
    "arena": ["arena", "--methods", "bet,lucb", "--instances", "zipf", "--trials", "5", "--json"],
    "study": ["study", "{examples}/target-detection.toml", "--trials", "5", "--seed", "1", "--json"],
    "network": ["network", "{examples}/robots.toml", "--json"],
    "check": ["check", "{examples}/flights.toml", "--json"],
    "experiment status": ["experiment", "status", "shop", "--json"],
}

SITES = """delta = 0.05
[[group]]
name = "north"
arms = ["a", "b"]
[[group]]
name = "south"
arms = ["c"]
"""
PEERS = f"""method = "p2p"
exchange = "intervals"
byzantine = 0
{SITES}
[network]
edges = [["north-1", "south-1"], ["south-1", "north-1"]]
"""
SHOP = ["experiment", "new", "shop", "--option", "A", "--option", "B", "--site", "us", "--binary", "--json"]
FEDERATION = ["federation", "init", "sites.toml", "--out", "fed", "--port", "4222", "--json"]
MESH = ["mesh", "init", "peers.toml", "--out", "mesh", "--port", "7443", "--json"]
RUN = ["run", "{examples}/target-detection.toml", "--seed", "7", "--out", "run.json"]
SHORT = {  # commands in the order in which they can be run in one folder; some need an earlier one
    "new": ["new", "{examples}/deliveries.csv", "--name", "draft", "--json"],
    "verify": ["verify", "run.json", "--json"],
    "report": ["report", "run.json", "--quick", "--json"],
    "figures": ["figures", "made", "--only", "5", "--json"],
    "federation init": FEDERATION,
    "federation revoke": ["federation", "revoke", "fed", "north-1", "--json"],
    "federation add-client": ["federation", "add-client", "fed", "north-1", "--json"],
    "federation drop": ["federation", "drop", "fed", "north-1", "--json"],
    "federation renew-certificate": ["federation", "renew-certificate", "fed", "--authority", "--json"],
    "federation renew-server-key": ["federation", "renew-server-key", "fed", "--json"],
    "federation bundle": ["federation", "bundle", "fed", "--json"],
    "mesh init": MESH,
    "mesh check": ["mesh", "check", "mesh", "--offline", "--json"],
    "mesh bundle": ["mesh", "bundle", "mesh", "--json"],
    "experiment new": SHOP,
    "experiment caller": ["experiment", "caller", "shop", "web", "--json"],
    "experiment stop": ["experiment", "stop", "shop", "--json"],
}


def test_short_results_are_valid(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites.toml").write_text(SITES, encoding="utf-8")
    (tmp_path / "peers.toml").write_text(PEERS, encoding="utf-8")
    bestarm(*(word.format(examples=root / "examples") for word in RUN))
    for name, words in SHORT.items():
        done = bestarm(*(word.format(examples=root / "examples") for word in words))
        jsonschema.Draft202012Validator(output_schema(name)).validate(json.loads(done.stdout))
    audited = json.loads(bestarm("verify", "shop", "--json").stdout)
    jsonschema.Draft202012Validator(output_schema("verify")).validate(audited)


@pytest.mark.parametrize("name", COMMANDS)
def test_output_is_valid_and_without_a_field_it_is_not(name, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "experiment status":
        bestarm("experiment", "new", "shop", "--option", "A", "--option", "B", "--site", "us", "--binary")
    done = bestarm(*(word.format(examples=root / "examples") for word in COMMANDS[name]))
    plain = json.loads(done.stdout)
    command = next(known for known in OUTPUTS if name.startswith(known))
    validator = jsonschema.Draft202012Validator(output_schema(command))
    validator.validate(plain)
    del plain[next(iter(plain))]
    assert not validator.is_valid(plain)


def test_arena_json_is_what_the_command_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = json.loads(bestarm(*COMMANDS["arena"], "--out", "found").stdout)
    assert json.loads((tmp_path / "found/arena.json").read_text("utf-8")) == printed
    jsonschema.Draft202012Validator(output_schema("arena")).validate(printed)


def test_an_unknown_command_has_no_schema():
    with pytest.raises(InputError, match="plan"):
        output_schema("plam")
