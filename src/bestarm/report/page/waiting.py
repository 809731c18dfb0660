"""The page before there is anything to show: what is waited for, where, and how to start it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.protocol.registry import method_named
from bestarm.records.figures import labels
from bestarm.records.questions import intent
from bestarm.report.colours import roster
from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.page.answer import entry
from bestarm.report.page.parts import MOST_ROWS, Section, command
from bestarm.util.text import counted

STARTS = {
    "client.json": ("the client has not started.", "bestarm client {}"),
    "peer.json": ("the node has not started.", "bestarm peer {}"),
    ".db": ("the run has not started.", "bestarm run SCENARIO.toml --journal {}"),
    ".json": ("the run has not written its record.", "bestarm run SCENARIO.toml --out {}"),
    ".csv": ("the study has not written its rows.", "bestarm study SCENARIO.toml --out {}"),
}


def waiting_sections(path: Path) -> list[Section]:
    """The sections of a page for a source at this path that has nothing yet."""
    folder = path.parent if path.name == "journal.db" else path
    if (folder / "federation.json").is_file():
        return _federation(folder)
    kinds = [key for key in ("client.json", "peer.json") if (folder / key).is_file()]
    said, start = STARTS[kinds[0] if kinds else path.suffix if path.suffix in STARTS else ".csv"]
    target = folder if kinds else path
    return [("top", "", _top(said, start.format(shlex.quote(str(target))), path))]


def _top(said: str, start: str, path: Path, labelled: str = "", rows: Sequence[Html] = ()) -> Html:
    words = [
        tag("p", labelled, class_="labels") if labelled else None,
        tag("h1", f"Waiting: {said}", id="verdict"),
        tag("dl", *rows, class_="answers") if rows else None,
        tag("p", "This page follows the run as soon as it starts. To start it:"),
        command(start),
        tag("p", "Looked for: ", tag("code", clean(str(path), 400)), class_="note"),
    ]
    return tag("div", *words, class_="verdict card")


def _federation(folder: Path) -> list[Section]:
    """The server's folder of a federation: its setup and its clients are known before it starts."""
    said, start = "the server has not started.", f"bestarm server {shlex.quote(str(folder))}"
    try:
        from bestarm.deploy.federation.files import Federation

        setup = Federation.load(folder).setup
    except (InputError, ImportError, OSError, ValueError, KeyError):
        return [("top", "", _top(said, start, folder / "journal.db"))]
    layout, delta = setup.layout, setup.options.delta
    options, unproved = len(roster(setup.problem)), method_named(setup.method).unproved
    facts = [
        entry("Takes part", counted(len(layout.clients), "client"), counted(len(layout.groups), "group")),
        entry("Compares", counted(options, "option"), setup.room.summary),
        entry(
            "Risk", "not bounded" if unproved else f"δ = {delta:g}", intent(setup.problem, delta, unproved)
        ),
    ]
    named = labels(setup.name, setup.date, setup.method, delta, None)
    top = _top(said, start, folder / "journal.db", named, facts)
    rows: list[list[Any]] = [
        [name(client, 80), name(layout.groups[layout.group_of[client]].name, 60)]
        for client in layout.clients[:MOST_ROWS]
    ]
    clients = len(layout.clients)
    more = f" (the first {MOST_ROWS:,})" if clients > MOST_ROWS else ""
    start = command("bestarm client NAME --exec '…'")
    about = tag("p", "Each client needs its folder from clients/ and starts with:")
    kept = table(["client", "group"], rows, caption=f"Who will take part{more}")
    return [("top", "", top), ("clients", "Who will take part", join(about, start, kept))]
