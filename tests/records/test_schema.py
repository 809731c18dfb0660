"""The published JSON schema describes every record."""

from __future__ import annotations

import copy

import jsonschema
import pytest

import bestarm as ba
from bestarm.records.schema import make_schema

PROBLEM = ba.Problem.from_rewards({"US": {"A": 0.2, "B": 0.8}, "EU": {"A": 0.3, "B": 0.7}})
RUNS = {
    "anywhere": {},
    "overall": {"question": "overall"},
    "each": {"question": "each", "max_rounds": 2},
    "control": {"question": "control", "control": "A"},
    "fed-sel": {"method": "fed-sel"},
    "peers": {"method": "p2p", "network": ba.Graph.from_edges(2, [(0, 1), (1, 0)]), "force": True},
}


def test_the_published_schema_is_that_of_the_source():
    """If this fails: python docs/schema.py"""
    assert ba.record_schema() == make_schema()


@pytest.mark.parametrize("name", RUNS)
def test_a_record_is_valid_and_one_with_a_wrong_field_is_not(name):
    plain = ba.identify(PROBLEM, seed=1, delta=0.1, **RUNS[name]).to_dict()
    validator = jsonschema.Draft202012Validator(ba.record_schema())
    validator.validate(plain)
    broken = copy.deepcopy(plain)
    broken["verdict"]["status"] = "perhaps"
    assert not validator.is_valid(broken)
    broken = copy.deepcopy(plain)
    del broken["pulls"]
    assert not validator.is_valid(broken)
    if plain["verdict"]["answers"]:
        broken = copy.deepcopy(plain)
        broken["verdict"]["answers"][0]["answer"] = "maybe"
        assert not validator.is_valid(broken)
