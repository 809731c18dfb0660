"""Whole pages: one HTML file without network access. Its policy allows the page's own script by its hash."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from contextlib import closing
from pathlib import Path

import msgspec

from bestarm.errors import InputError
from bestarm.evidence.describe import headline
from bestarm.evidence.record import Evidence, is_evidence
from bestarm.records.record import Record
from bestarm.report import facts as collect
from bestarm.report.facts import Facts, SiteFacts, StudyFacts
from bestarm.report.markup import Html, clean, tag
from bestarm.report.page.arena import arena_sections
from bestarm.report.page.evidence import UNSAVED, evidence_sections
from bestarm.report.page.parts import Section, script, style
from bestarm.report.page.run import run_sections
from bestarm.report.page.site import site_sections
from bestarm.report.page.study import study_sections
from bestarm.study.arena.result import FILE as ARENA
from bestarm.study.arena.result import Arena
from bestarm.study.trials import Trials
from bestarm.util import files

LARGEST_LINK = 1_900_000  # characters: browsers refuse longer addresses


def sections(facts: Facts, attached: Html | None = None) -> list[Section]:
    """The parts of a page: (id, title, HTML). Parts without facts are omitted."""
    if isinstance(facts, StudyFacts):
        return study_sections(facts, attached)
    return site_sections(facts) if isinstance(facts, SiteFacts) else run_sections(facts, attached)


def page(facts: Facts, attachment: bytes | None = None, file_name: str = "record.json") -> str:
    """A whole page.

    Parameters
    ----------
    facts : Facts
        The facts to show.
    attachment : bytes or None
        The record, or the rows of a study, for download.
    file_name : str
        The name of the attachment.

    Returns
    -------
    str
        The HTML.
    """
    title = "bestarm: a study"
    if not isinstance(facts, StudyFacts):
        facts = msgspec.structs.replace(facts, file=file_name)
        title = f"bestarm: {(facts.verdict and facts.verdict.summary) or 'undecided'}"
    return document(title, sections(facts, None if attachment is None else _download(attachment, file_name)))


def document(title: str, made: list[Section]) -> str:
    """A whole file with these sections."""
    links = [tag("li", tag("a", title, href=f"#{key}")) for key, title, _ in made if title]
    body = [
        tag("section", tag("h2", title) if title else None, content, id=key) for key, title, content in made
    ]
    content = (
        f"default-src 'none'; style-src '{_pinned(style())}'; script-src '{_pinned(script())}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=content),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", clean(title, 120)),
        tag("style", Html(style())),
    )
    skip = tag("a", "To the verdict", href="#verdict", class_="skip")
    nav = tag("nav", tag("ul", *links), aria_label="sections")
    active = tag("script", Html(script()))
    whole = tag("html", head, tag("body", skip, nav, tag("main", *body), active), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def _pinned(text: str) -> str:
    """The source expression that allows this text in a page, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _download(data: bytes, file_name: str) -> Html:
    """A link that contains the file, compressed if it is long, and omitted if it is still too long."""
    for kind, ending in (("application/json", ""), ("application/gzip", ".gz")):
        content = base64.b64encode(gzip.compress(data, mtime=0) if ending else data).decode()
        if len(content) <= LARGEST_LINK:
            shown = f"{file_name}{ending}"
            link = tag("a", f"Download {shown}", href=Html(f"data:{kind};base64,{content}"), download=shown)
            packed = ", compressed with gzip" if ending else ""
            return tag("p", link, f" ({len(data):,} bytes{packed})", class_="screen")
    text = f"The record has {len(data):,} bytes, too many for this page: keep its file with the page."
    return tag("p", text)


def write(html: str, path: str | Path) -> Path:
    """Write a page atomically."""
    path = Path(path)
    files.write(path, html.encode())
    return path


def of_record(
    record: Record, *, quick: bool = False, command: str | None = None, file_name: str = "record.json"
) -> str:
    """The page of a run; `file_name` is the name of its record."""
    facts = collect.of_record(record, quick=quick, command=command)
    return page(facts, msgspec.json.encode(record.to_dict()), file_name)


def of_evidence(evidence: Evidence, file_name: str | None = None) -> str:
    """The page of what recorded data show; `file_name` is where the record was saved, if it was."""
    link = _download(msgspec.json.encode(evidence.to_dict()), file_name or UNSAVED)
    return document(f"bestarm: {headline(evidence)}", evidence_sections(evidence, link, file_name))


def of_trials(trials: Trials) -> str:
    """The page of a study."""
    rows = "".join(json.dumps(row, default=str) + "\n" for row in trials.rows())
    return page(collect.of_trials(trials), rows.encode(), "trials.jsonl")


def of_arena(arena: Arena) -> str:
    """The page of an arena."""
    files = [_download(arena.to_json(), "arena.json"), _download(arena.to_csv().encode(), "cells.csv")]
    return document("bestarm: an arena", arena_sections(arena, files))


def read(path: str | Path, *, quick: bool = False) -> str:
    """The page of what is at a path.

    Parameters
    ----------
    path : str or Path
        A record, evidence, a study's rows, an arena's folder, or the folder or journal of a run, of a
        federation's server, of a client or of a mesh's node.
    quick : bool
        Whether to omit everything that needs further runs.

    Returns
    -------
    str
        The HTML.

    Raises
    ------
    InputError
        If there is nothing at the path that a page can show.
    """
    path = Path(path)
    if path.suffix in (".csv", ".jsonl", ".parquet"):
        return of_trials(Trials.load(path))
    if path.name == ARENA or (path / ARENA).is_file():
        return of_arena(Arena.load(path))
    if path.suffix == ".toml":
        raise InputError(
            "this is a scenario, not a run", where=str(path), fix="bestarm run … --report FILE.html"
        )
    if path.is_dir() or path.suffix == ".db":
        return _of_journal(path)
    if is_evidence(path):
        return of_evidence(Evidence.load(path), path.name)
    return of_record(Record.load(path), quick=quick, file_name=path.name)


def _of_journal(path: Path) -> str:
    from bestarm.report.follow import Journalled, Underway

    found = Journalled(path)
    if not found.path.is_file():
        raise InputError("there is no journal here", where=str(found.path), fix="Check the path")
    with closing(found):
        found.catch_up()
        facts = found.facts()
        if found.trouble or facts is None:
            raise InputError(found.trouble.removeprefix(f"{found.path.resolve()}: "), where=str(found.path))
        if isinstance(facts, Underway):
            return document(facts.title, facts.sections())
        return page(facts, found.record())
