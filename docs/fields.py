"""Tables that are made with the documentation: every field of a record, every option of every method.

``conf.py`` puts them into records.md, evidence.md, json.md and scenarios.md. Types and defaults come from
the JSON schemas and from the options classes, so the pages cannot differ from the software.
``tests/house/test_fields.py`` checks that no field is without a meaning.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from docs.output_fields import OUTPUT_FIELDS

import bestarm as ba
from bestarm.cli.json_output import OUTPUTS, output_schema
from bestarm.cli.json_results import SAME
from bestarm.evidence.card import Words
from bestarm.protocol.registry import METHODS
from bestarm.protocol.verdict import REASONS

PLACES = {  # what a reader of the plain files sees instead of a table
    "records": "*`make docs` puts the tables here; `ba.record_schema()` is what they are made from.*",
    "evidence": "*`make docs` puts the tables here.*",
    "json": "*`make docs` puts the tables here; `output_schema` is what they are made from.*",
    "scenarios": "*`make docs` puts the table here; `bestarm run --help` lists the options.*",
}
TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
}

# Fields whose meaning is not among the parameters of their class.
MEANINGS = {
    "Pulls": {
        "total": "pulls of all clients",
        "phase1": "in Fed-SEL Phase I; in Fed-Fisher the quiet looks; in Fed-Bet the pulls before the "
        "first bets",
        "phase2": "all others",
        "max_per_client": "pulls of the busiest client",
        "by_client": "pulls of each client",
    },
    "Visitors": {
        "assigned": "subjects that were given an option",
        "told": "rewards that came",
        "filled": "of the rewards that count: those that did not come by their deadline",
    },
    "Bits": {
        "up": "payload bits from clients, as encoded",
        "down": "payload bits from the server; a broadcast counts once",
        "after": "payload bits of messages that describe the answer after it is known: summaries, and "
        "in Fed-Bet which arms are in, and the winner's sum",
    },
    "Summary": {
        "count": "pulls of each arm",
        "total": "the sum of each arm's rewards, in [0, 1]",
        "squares": "the sum of their squares; null where the method did not ask for them",
    },
    "RefusedSummary": {
        "client": "who sent it",
        "reason": "why it was refused",
        "bytes": "its size",
    },
}

EVIDENCE = {
    "Evidence": {
        "kind": "what this file is",
        "schema": "version of this format",
        "version": "version of bestarm that made the record",
        "source": "the table: a file's name, or what was given",
        "settings": "what was fixed before the data were read",
        "test": "`exact` if Fisher's exact tests decide, else `e-value`",
        "status": "whether every question was answered",
        "best": "the best option: of each site for the question each, under the empty name otherwise; null "
        "if undecided",
        "promise": "`withdrawn` if an alarm says that an assumption does not hold",
        "options": "every option, with its evidence",
        "leads": "how far the best option is ahead, or the one that leads; one per site for the question "
        "each, and none for the question control",
        "rows": "rewards that count",
        "alarms": "assumptions that do not hold",
        "checks": "the sums behind the alarms",
        "notes": "remarks that do not affect the promise",
        "looks": "the counts and the evidence of each look; empty for looks at any time",
        "blocks": "the closed blocks of looks at any time; null otherwise",
        "digest": "SHA-256 over the rest",
    },
    "Words": {
        "headline": "the answer in one sentence, with what was withdrawn",
        "ahead": "how far options are ahead, one sentence each",
        "risk": "what is promised about the answer and the intervals",
        "cost": "what was counted",
        "next": "what to do next, one sentence each",
    },
    "Settings": {
        "question": "`overall`, `anywhere`, `each` or `control`",
        "look": "one look, or looks at any time",
        "looks": "how many looks were declared",
        "delta": "the error probability that was asked for",
        "alpha": "the probability that any interval misses, beyond δ",
        "goal": "`max` or `min`",
        "bounds": "the range of rewards; null if they are 0 or 1",
        "weights": "the weight of each site, frozen at the first look",
        "weighted": "where the weights come from: `equal`, `rows` or `given`",
        "control": "the option that the others are compared with",
        "margin": "the lead over the control that does not matter",
        "simultaneous": "whether all sites share one δ",
        "seed": "of the random orders of the rows",
        "orders": "how many random orders were averaged",
        "order": "the column of the time, `file` for the order of the rows, null if the order means nothing",
        "columns": "which column of the table is what",
        "unit": "what rewards are measured in; empty if not given",
        "percent": "whether the table has percentages, which are read as shares: 12% as 0.12",
    },
    "Option": {
        "name": "the option; `site/option` for the question anywhere",
        "site": "its site, for the question each; empty otherwise",
        "rows": "its rewards",
        "mean": "on your scale; null before the first block of looks at any time is closed",
        "interval": "of the mean; all intervals of a record hold together",
        "status": "`best`, `in` or `out`; for the question control `better`, `worse`, `within`, `open` or "
        "`control`",
        "tests": "the evidence against each claim about it",
        "gap": "its lead over the control",
        "gap_interval": "of that lead",
    },
    "Lead": {
        "site": "for the question each; empty otherwise",
        "option": "the one that is ahead",
        "over": "the next best one",
        "value": "the lead, positive if `option` is better",
        "interval": "of its lead over all other options at once",
    },
    "Test": {
        "claim": "what is tested",
        "level": "the share of δ that it may use",
        "evalue": "the evidence against the claim",
        "pvalue": "where Fisher's exact test decides; null otherwise",
        "rejected": "whether `evalue` is at least 1/`level`, or `pvalue` at most `level`",
    },
    "Alarm": {
        "kind": "`drift` or `dependence`",
        "cell": "the option at a site",
        "pvalue": "of the test",
        "level": "of the test",
    },
    "Check": {
        "kind": "`drift` or `dependence`",
        "cell": "the option at a site",
        "total": "Σd, the sum of differences",
        "squares": "Σd²; the p-value follows from all three",
        "size": "the size of all differences but zeros; 0 if they differ in size",
    },
    "Look": {
        "counts": "the rewards that were there",
        "log_evalues": "for each contest and claim, the logarithm of the e-value",
        "pvalues": "for each contest, the p-values of its claims, where Fisher's exact test decides",
    },
    "Counts": {
        "sites": "names of the sites",
        "options": "names of the options",
        "site": "of each distinct value: the index of its site",
        "option": "the index of its option",
        "value": "the reward, in your unit",
        "count": "how often it was seen",
        "width": "the step of the grid to which values were rounded down; 0 if none",
    },
    "Blocks": {
        "sites": "names of the sites",
        "options": "names of the options",
        "cells": "the site and the option of each cell, as indices",
        "used": "rows of each cell that count",
        "digest": "SHA-256 over the rows that count",
        "waiting": "rows that do not count yet",
        "sums": "for each contest and block: numbers, sums, sums of squares, smallest and largest rewards on "
        "[0, 1], by option and site",
    },
}  # fields of the record of `bestarm evidence`


def type_of(spec: dict[str, Any]) -> str:
    """The type of a field in words, such as "number or null"."""
    if "anyOf" in spec:
        return " or ".join(type_of(part) for part in spec["anyOf"])
    if "$ref" in spec:
        name = spec["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in spec:
        return ", ".join(f"`{value}`" for value in spec["enum"])
    if "prefixItems" in spec:
        return f"[{', '.join(type_of(part) for part in spec['prefixItems'])}]"
    if spec.get("type") == "array":
        return f"list of {type_of(spec.get('items', {}))}"
    if spec.get("type") == "object":
        inner = spec.get("additionalProperties")
        return f"object, name → {type_of(inner)}" if isinstance(inner, dict) else "object"
    kind = spec.get("type", "any")
    return TYPES.get(kind, kind)


def meaning(part: str, field: str, description: str) -> str:
    """What a field means: from this module, or from the parameters of its class."""
    said = {**MEANINGS, **EVIDENCE, **OUTPUT_FIELDS}.get(part, {}).get(field)
    found = re.search(rf"^ *{field} : [^\n]*\n((?: {{8}}[^\n]*\n?)+)", description, re.MULTILINE)
    text = said or (" ".join(found[1].split()) if found else "")
    return text.replace("|", "\\|").replace("``", "`")


def record_fields() -> str:
    """All fields of a record, one table for each kind of object."""
    parts = ba.record_schema()["$defs"]
    order = ["Record", *(name for name in parts if name != "Record")]
    tables = ["\n".join(_table(name, parts[name])) for name in order]
    reasons = "\n".join(f"| `{name}` | {said} |" for name, said in REASONS.items())
    tables.append(f"### Reasons\n\n| `verdict.reason` | the run ended because |\n|---|---|\n{reasons}")
    return "\n\n".join(tables)


def evidence_schema() -> dict[str, Any]:
    """The kinds of objects in the record of evidence, and the card that ``--json`` adds to it."""
    _, parts = msgspec.json.schema_components([ba.Evidence, Words], ref_template="#/$defs/{name}")
    return parts


def evidence_fields() -> str:
    """All fields of a record of evidence, one table for each kind of object."""
    return "\n\n".join("\n".join(_table(name, spec)) for name, spec in evidence_schema().items())


def output_parts() -> dict[str, Any]:
    """The kinds of objects that commands print with --json, each once."""
    return {name: spec for command in OUTPUTS for name, spec in output_schema(command)["$defs"].items()}


def output_fields() -> str:
    """All fields of what commands print with --json: the object of each command, then its parts."""
    seen: set[str] = set()
    tables = []
    for command, kind in OUTPUTS.items():
        others = [other for other, same in SAME.items() if same == command]
        titles = [f"`bestarm {name} --json`" for name in (command, *others)]
        tables.append(f"## {', '.join(titles)}")
        parts = output_schema(command)["$defs"]
        for name in [kind.__name__, *(part for part in parts if part != kind.__name__)]:
            if name not in seen:
                seen.add(name)
                tables.append("\n".join(_table(name, parts[name])))
    return "\n\n".join(tables)


def _table(name: str, spec: dict[str, Any]) -> Iterator[str]:
    """The fields of one kind of object. Only where a field may be left out is there a column of defaults."""
    fields, required = spec["properties"], spec.get("required", ())
    optional = set(fields) - set(required)
    titles = ["field", "type", *(["default"] if optional else []), "meaning"]
    yield f"### {name}\n\n| {' | '.join(titles)} |\n{'|---' * len(titles)}|"
    for field, shape in fields.items():
        given = f"`{json.dumps(shape['default'])}`" if "default" in shape else "absent"
        default = [given if field in optional else ""] if optional else []
        said = meaning(name, field, spec.get("description", ""))
        yield f"| {' | '.join([f'`{field}`', type_of(shape), *default, said])} |"


def options() -> str:
    """All options of all methods, as keys of a scenario: default, meaning, and which methods take them."""
    rows: dict[str, tuple[dict[str, list[str]], str]] = {}
    for name, method in METHODS.items():
        for field in dataclasses.fields(method.options):
            said = str(field.metadata.get("help", "")).replace("|", "\\|")
            defaults, _ = rows.setdefault(field.name, ({}, said))
            default = "none" if field.default is None else f"`{json.dumps(field.default)}`"
            defaults.setdefault(default, []).append(f"`{name}`")
    lines = ["| key | default | meaning | methods |", "|---|---|---|---|"]
    for key, (defaults, said) in rows.items():
        several = len(defaults) > 1
        shown = ", ".join(f"{d} ({', '.join(m)})" if several else d for d, m in defaults.items())
        taken = [name for names in defaults.values() for name in names]
        lines.append(
            f"| `{key}` | {shown} | {said} | {'all' if len(taken) == len(METHODS) else ', '.join(taken)} |"
        )
    return "\n".join(lines)


def fill(page: str, text: str) -> str:
    """Put the tables into the text of a page."""
    makers = {
        "records": record_fields,
        "evidence": evidence_fields,
        "json": output_fields,
        "scenarios": options,
    }
    return text.replace(PLACES[page], makers[page]()) if page in makers else text
