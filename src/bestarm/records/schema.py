"""The JSON schema of records, which is published with the package as ``record.schema.json``.

``python docs/schema.py`` writes the file anew after a field of the record has changed.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, cast

import msgspec

from bestarm.records.record import Record

FILE = "record.schema.json"


def make_schema() -> dict[str, Any]:
    """The schema of the record as it is in the source."""
    made = json.loads(msgspec.json.encode(msgspec.json.schema(Record)))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A bestarm record", **made}


def record_schema() -> dict[str, Any]:
    """Return the JSON schema of records, as ``Record.to_dict`` and ``bestarm run --json`` give them.

    Returns
    -------
    dict
        A schema of JSON Schema 2020-12.

    Examples
    --------
    >>> sorted(record_schema()["$defs"])
    ['Answer', 'Bits', 'Pulls', 'Record', 'RefusedSummary', 'Summary', 'Verdict', 'Visitors']
    """
    text = files("bestarm.records").joinpath(FILE).read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
