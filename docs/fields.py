"""Tables that are made with the documentation: every field of a record, every option of every method.

``conf.py`` puts them into records.md, evidence.md and scenarios.md. Types and defaults come from the JSON
schemas and from the options classes, so the pages cannot differ from the software.
``tests/house/test_fields.py`` checks that no field is without a meaning.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

import bestarm as ba
from bestarm.protocol.registry import METHODS
from bestarm.protocol.verdict import REASONS

PLACES = {"records": "%%fields%%", "evidence": "%%fields%%", "scenarios": "%%options%%"}
TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
}

# Fields whose meaning is not among the parameters of their class.
MEANINGS = {
    "Record": {
        "simulation": "a sentence, if rewards were drawn from a file with replacement: how many draws, "
        "from how many rows",
        "schema": "version of this format",
        "version": "version of bestarm that made the record",
        "method": "name of the method",
        "delta": "the error probability that was asked for",
        "seed": "the seed; null in a deployed run",
        "options": "all options of the method",
        "problem": "the problem as it takes to run it again. With data from a file, `problem.data` has "
        "`csv` (the file's name), `reward` (the column), `rows`, `rewards`, `resample`, `skipped`, "
        "`counts`, `shuffled` and `notes`",
        "verdict": "the answer",
        "rounds": "exchanges with the server; in Fed-SEL the Phase I reports are the first",
        "pulls": "how many pulls were made; null where the server does not know it",
        "bits": "how many bits the messages hold",
        "wire_bytes": "bytes of all payloads, padding included",
        "proven_faulty": "clients that sent what no honest client can send, and how",
        "good_event": "whether the event held on which the promise rests: in Fed-SEL every mean that a "
        "decision used was within its radius; in Fed-Bet and Fed-Fisher the best arm was never dropped. "
        "Null if unknown",
        "warnings": "what a reader of the verdict must know",
        "adversaries": "simulated liars",
        "peers": "without a server: the verdict of each honest peer. The record of one peer of a mesh has "
        "only its own",
        "network": "without a server: the network",
        "evidence": "proof that a client signed two different messages with the same number: `accused`, "
        "`topic`, `sequence`, and both signed envelopes as hex in `first` and `second`",
        "interrupted": "whether the run was stopped before its end",
        "time": "the simulator's clock at the verdict: each client makes one pull per step, all in "
        "parallel. Without a server, when the last honest peer decides. Null in a deployed run",
        "summaries": "what each client sent after the verdict about all its arms; null with "
        "`summaries = false`. No verdict depends on it",
        "refused_summaries": "summaries that no rewards have, second ones, and those of clients that are "
        "proven faulty",
        "name": "a label: the scenario's file, for a record of `bestarm run`",
        "date": "a label: the day of the run, for a record of `bestarm run`",
        "digest": "SHA-256 over the rest; an empty `evidence`, empty `answers` and a null `time` are left "
        "out",
    },
    "Pulls": {
        "total": "pulls of all clients",
        "phase1": "in Fed-SEL Phase I; in Fed-Fisher the quiet looks; in Fed-Bet the pulls before the "
        "first bets",
        "phase2": "all others",
        "max_per_client": "pulls of the busiest client",
        "by_client": "pulls of each client",
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
        "rows": "rewards that count",
        "alarms": "assumptions that do not hold",
        "checks": "the sums behind the alarms",
        "notes": "remarks that do not affect the promise",
        "looks": "the counts and the evidence of each look; empty for looks at any time",
        "blocks": "the closed blocks of looks at any time; null otherwise",
        "digest": "SHA-256 over the rest",
    },
    "Settings": {
        "question": "`overall`, `anywhere`, `each` or `control`",
        "look": "one look, or looks at any time",
        "looks": "how many looks were declared",
        "delta": "the error probability that was asked for",
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
    },
    "Option": {
        "name": "the option; `site/option` for the question anywhere",
        "site": "its site, for the question each; empty otherwise",
        "rows": "its rewards",
        "mean": "on your scale; null before the first block of looks at any time is closed",
        "interval": "of the mean",
        "status": "`best`, `in` or `out`; for the question control `better`, `worse`, `within`, `open` or "
        "`control`",
        "tests": "the evidence against each claim about it",
        "gap": "its lead over the control",
        "gap_interval": "of that lead",
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
        "squares": "Σd²; the p-value follows from both",
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
    said = {**MEANINGS, **EVIDENCE}.get(part, {}).get(field)
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
    """The kinds of objects in the record of evidence."""
    _, parts = msgspec.json.schema_components([ba.Evidence], ref_template="#/$defs/{name}")
    return parts


def evidence_fields() -> str:
    """All fields of a record of evidence, one table for each kind of object."""
    return "\n\n".join("\n".join(_table(name, spec)) for name, spec in evidence_schema().items())


def _table(name: str, spec: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}\n\n| field | type | default | meaning |\n|---|---|---|---|"
    for field, shape in spec["properties"].items():
        given = "" if field in spec.get("required", ()) else f"`{json.dumps(shape.get('default'))}`"
        said = meaning(name, field, spec.get("description", ""))
        yield f"| `{field}` | {type_of(shape)} | {given} | {said} |"


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
    makers = {"records": record_fields, "evidence": evidence_fields, "scenarios": options}
    return text.replace(PLACES[page], makers[page]()) if page in makers else text
