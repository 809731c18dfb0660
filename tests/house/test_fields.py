"""The reference has every field of a record and every key of a scenario, each with its meaning."""

from __future__ import annotations

import dataclasses
import re

import pytest
from docs import fields

import bestarm as ba
from bestarm.problem.csv_data import DATA_KEYS
from bestarm.problem.question import KEYS as QUESTION_KEYS
from bestarm.protocol.registry import METHODS
from bestarm.scenario import load

SCHEMAS = {
    "records": (ba.record_schema()["$defs"], fields.record_fields, fields.MEANINGS),
    "evidence": (fields.evidence_schema(), fields.evidence_fields, fields.EVIDENCE),
}


@pytest.mark.parametrize("page", SCHEMAS)
def test_every_field_of_a_schema_has_a_type_and_a_meaning(page):
    schema, make, _ = SCHEMAS[page]
    text = make()
    for part, spec in schema.items():
        assert f"### {part}\n" in text
        for field in spec["properties"]:
            (row,) = re.findall(
                rf"^\| `{field}` \|.*$", text.split(f"### {part}\n")[1].split("### ")[0], re.MULTILINE
            )
            _, _, kind, _, meaning, _ = re.split(r"(?<!\\)\|", row)
            assert kind.strip() not in ("", "any"), (part, field)
            assert meaning.strip(), (part, field)


@pytest.mark.parametrize("page", SCHEMAS)
def test_no_meaning_is_kept_for_a_field_that_is_gone(page):
    schema, _, meanings = SCHEMAS[page]
    for part, known in meanings.items():
        assert set(known) <= set(schema[part]["properties"]), part


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "integer"}, "integer"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "number or null"),
        ({"type": "array", "items": {"type": "string"}}, "list of text"),
        ({"prefixItems": [{"type": "number"}, {"type": "number"}], "type": "array"}, "[number, number]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object, name → integer"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"$ref": "#/$defs/Pulls"}, "[Pulls](#pulls)"),
    ],
)
def test_a_type_is_put_into_words(spec, said):
    assert fields.type_of(spec) == said


def test_every_key_of_a_scenario_is_on_its_page(root):
    page = fields.fill("scenarios", (root / "docs/scenarios.md").read_text("utf-8"))
    keys = {
        *load.RUN_KEYS,
        *load.GROUP_KEYS,
        *load.ADVERSARY_KEYS,
        *load.NETWORK_KEYS,
        *DATA_KEYS,
        *QUESTION_KEYS,
    }
    keys |= {field.name for method in METHODS.values() for field in dataclasses.fields(method.options)}
    missing = [key for key in sorted(keys) if not re.search(rf"^\|.*`{key}`", page, re.MULTILINE)]
    missing += [table for table in load.TABLES if f"[{table}]" not in page]
    assert missing == []


@pytest.mark.parametrize("page", fields.PLACES)
def test_a_page_has_one_place_for_its_table(root, page):
    text = (root / f"docs/{page}.md").read_text("utf-8")
    assert text.count(fields.PLACES[page]) == 1
    assert fields.PLACES[page] not in fields.fill(page, text)
