"""The table of docs/privacy.md names every field of every message that a client sends, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re
from pathlib import Path

import bestarm.deploy.federation
import bestarm.methods
from bestarm.deploy.federation.alarms import ALARM
from bestarm.deploy.federation.desk import NOTE
from bestarm.deploy.federation.hello import HELLO
from bestarm.deploy.federation.pace import PACE, Told
from bestarm.protocol.registry import METHODS
from bestarm.protocol.summaries import Summary

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "privacy.md"
MODULES = ("messages", "uplink", "downlink", "levels")

# What clients do not send: messages of the server, and what both ends know without a message.
FROM_SERVER = {
    "bet.downlink.Named", "bet.downlink.Down", "bet.downlink.Renamed", "bet.downlink.Restart",
    "bet.downlink.Last", "bet.downlink.Missed", "bet.groups.messages.Down", "bet.groups.messages.Restart",
    "bet.robust.messages.Down", "bet.sites.messages.Leg", "bet.sites.messages.Plan", "bet.sites.messages.End",
    "fed_sel.messages.Bound", "fisher.messages.LookDown",
    "fisher.pooled.messages.PoolDown", "rivals.messages.Rest", "rivals.messages.End",
    "protocol.messages.Onward", "protocol.messages.Final",
}  # fmt: skip
NOT_SENT = {
    "bet.downlink.Expected", "bet.uplink.Context", "bet.uplink.Stale", "bet.groups.messages.Block",
    "bet.levels.BetWire", "bet.sites.messages.Wire", "fisher.messages.LookWire", "protocol.messages.Wire",
    "rivals.messages.RivalWire",
}  # fmt: skip


def messages() -> dict[str, list[str]]:
    """Every dataclass of the modules that define messages, with its fields."""
    packages = [*pkgutil.walk_packages(bestarm.methods.__path__, "bestarm.methods.")]
    names = [found.name for found in packages if found.name.rpartition(".")[2] in MODULES]
    classes = {}
    for name in [*names, "bestarm.protocol.messages"]:
        for key, value in vars(importlib.import_module(name)).items():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == name:
                place = name.removeprefix("bestarm.").removeprefix("methods.")
                classes[f"{place}.{key}"] = [field.name for field in dataclasses.fields(value)]
    structs = {"protocol.summaries.Summary": Summary, "deploy.federation.pace.Told": Told}
    return {**classes, **{name: list(struct.__struct_fields__) for name, struct in structs.items()}}


def table() -> dict[str, list[str]]:
    """The rows of the page's table: message and fields."""
    rows = re.findall(
        r"^\| [^|]+ \| `([\w.]+)` \| ([^|]+) \| [^|]+ \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len({name for name, _ in rows}) == len(rows)
    return {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}


def test_the_table_has_every_field_of_every_message_of_a_client():
    found = messages()
    sent = {name: fields for name, fields in found.items() if name not in FROM_SERVER | NOT_SENT}
    assert table() == sent
    assert set(found) >= FROM_SERVER | NOT_SENT  # none of these is out of date


def test_the_table_names_every_method():
    words = PAGE.read_text("utf-8")
    assert all(re.search(rf"^\| (`[\w-]+`, )*`{name}`[ ,]", words, re.MULTILINE) for name in METHODS)


def test_the_sheet_to_sign_names_the_methods_of_the_page():
    sheet, page = (
        {
            name
            for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
            for name in re.findall(r"`([\w-]+)`", row)
        }
        for text in (PAGE.with_name("privacy-sheet.md").read_text("utf-8"), PAGE.read_text("utf-8"))
    )
    assert set(METHODS) <= page & sheet


def signed_topics() -> set[str]:
    """The names of the topics on which the code of a federation signs messages."""
    found = set()
    for path in Path(bestarm.deploy.federation.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called = ast.unparse(node.func)
                topic = {"Envelope.sign": 3, "self.outbox.say": 1}.get(called)
                if topic is not None:
                    found.add(ast.unparse(node.args[topic]))
    return found


def test_the_page_names_what_clients_of_a_federation_sign_besides():
    """A new kind of signed message fails here until the page names it."""
    topics = {"HELLO": HELLO, "NOTE": NOTE, "ALARM": ALARM, "PACE": PACE}
    in_the_table, from_server = {"UP", "SUMMARY"}, {"HAVE", "DOWN", "KEY"}
    assert signed_topics() == topics.keys() | in_the_table | from_server
    words = PAGE.read_text("utf-8")
    assert all(f"`{topic}`" in words for topic in topics.values())
