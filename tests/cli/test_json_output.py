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
