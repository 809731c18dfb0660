"""The reference has every field of a record and every key of a scenario, each with its meaning."""

from __future__ import annotations

import dataclasses
import re

import pytest
from docs import fields

import bestarm as ba
from bestarm.graphs.generators import complete
from bestarm.problem.csv_data import DATA_KEYS
from bestarm.problem.question import KEYS as QUESTION_KEYS
from bestarm.protocol.registry import METHODS
from bestarm.scenario import load

SCHEMAS = {
    "records": (ba.record_schema()["$defs"], fields.record_fields, fields.MEANINGS),
    "evidence": (fields.evidence_schema(), fields.evidence_fields, fields.EVIDENCE),
    "json": (fields.output_parts(), fields.output_fields, fields.OUTPUT_FIELDS),
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
            _, _, kind, *_, meaning, _ = re.split(r"(?<!\\)\|", row)
            assert kind.strip() not in ("", "any"), (part, field)
            assert meaning.strip(), (part, field)


@pytest.mark.parametrize("page", SCHEMAS)
def test_no_meaning_is_kept_for_a_field_that_is_gone(page):
    schema, _, meanings = SCHEMAS[page]
    for part, known in meanings.items():
        assert set(known) <= set(schema[part]["properties"]), part


def test_the_fields_of_plain_objects_in_a_record_are_named():
    liars = [ba.Adversary("g1", "not-a-number", 1), ba.Adversary("g2", "extreme", 2)]
    problem = ba.Problem.bernoulli([[0.9, 0.3], [0.75, 0.2]], clients=3)
    network = ba.Network(complete(6), delay=5)
    crowd = ba.Problem.bernoulli([[0.9, 0.3], [0.75, 0.2]], clients=5)
    records = [
        ba.identify(problem, "robust-fed-sel", byzantine=1, seed=1, adversaries=liars),
        ba.identify(problem, "p2p", network=network, seed=1),
        ba.identify(
            crowd, "bet", delta=0.1, byzantine=1, seed=7, adversaries=[ba.Adversary("g1", "extreme", 3)]
        ),
    ]
    page = fields.record_fields()
    for field in ("proven_faulty", "warnings", "adversaries", "network", "problem"):
        (row,) = re.findall(rf"^\| `{field}` \|.*$", page, re.MULTILINE)
        found = [getattr(record, field) for record in records if getattr(record, field)]
        assert found, field
        for plain in [one for value in found for one in (value if isinstance(value, list) else [value])]:
            assert [key for key in plain if f"`{key}`" not in row] == [], field


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
