"""Tables that are made with the documentation: every field of a record, every option of every method.

``conf.py`` puts them into records.md and scenarios.md. Types and defaults come from the published JSON schema
and from the options classes, so the pages cannot differ from the software. ``tests/house/test_fields.py``
checks that no field is without a meaning.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import bestarm as ba
from bestarm.protocol.registry import METHODS
from bestarm.protocol.verdict import REASONS

PLACES = {"records": "%%fields%%", "scenarios": "%%options%%"}
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
        "`summaries = false` and in runs of peers. No verdict depends on it",
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
    said = MEANINGS.get(part, {}).get(field)
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
    makers = {"records": record_fields, "scenarios": options}
    return text.replace(PLACES[page], makers[page]()) if page in makers else text
