"""A record that was altered does not verify, even with a fresh digest."""

from __future__ import annotations

import copy

import msgspec
import pytest

import bestarm as ba
from bestarm.record import Record, digest

# What no check can know: an input that the conclusions don't depend on, or that only a replay can test.
INPUTS = {("version",), ("seed",), ("options",), ("problem",)}


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from leaves(inner, (*path, place))
    else:
        yield path, value


def altered(value):
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * (1 + 1e-9) + 1e-12
        case str():
            return "00" if value else "x"
        case None:
            return "budget"
        case list():
            return ["x"]
        case dict():
            return {"x": 1}
    raise AssertionError(value)


def put(plain, path, value):
    plain = copy.deepcopy(plain)
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return plain


def with_fresh_digest(plain) -> Record | None:
    try:
        return msgspec.convert({**plain, "digest": digest(plain)}, Record)
    except msgspec.ValidationError:
        return None  # it is not even a record any more


RUNS = {
    "identified": lambda: ba.identify(
        ba.Problem.paper_instance(7), "fed-sel", delta=0.1, seed=1, period=20_000
    ),
    "undecided": lambda: ba.identify(
        ba.Problem.bernoulli([[0.9, 0.1], [0.9, 0.2]]), "fed-sel", delta=0.1, seed=1, budget=9000, period=500
    ),
    "early stop": lambda: ba.identify(
        ba.Problem.bernoulli([[0.95, 0.1], [0.3, 0.3]]), "fed-sel", delta=0.1, seed=1, early_stop=True
    ),
    "real rewards": lambda: ba.identify(
        ba.Problem.from_rewards(
            {
                "g": {"a": {"kind": "beta", "a": 9, "b": 1}, "b": 0.2},
                "h": {"c": {"kind": "table", "values": [0.2, 0.4]}},
            }
        ),
        "fed-sel",
        seed=1,
        c=4,
        radius="sharp",
    ),
}
every_run = pytest.mark.parametrize("make", RUNS.values(), ids=RUNS.keys())


@every_run
def test_a_sound_record_verifies_and_replays(make):
    assert ba.verify(make(), replay=True).failures == ()


@every_run
def test_an_alteration_of_any_field_is_caught_by_the_digest(make):
    plain = make().to_dict()
    for path, value in leaves(plain):
        if path == ("digest",):
            continue
        try:
            record = msgspec.convert(put(plain, path, altered(value)), Record)
        except msgspec.ValidationError:
            continue
        assert "digest" in " ".join(ba.verify(record).failures), path


@every_run
def test_an_alteration_of_any_conclusion_is_caught_without_the_digest(make):
    plain = make().to_dict()
    checked = 0
    for path, value in leaves(plain):
        if path[:1] in INPUTS or path == ("digest",):
            continue
        record = with_fresh_digest(put(plain, path, altered(value)))
        checked += 1
        if record is None or not ba.verify(record).ok:
            continue
        # What is left is a client's raw observation, from which others follow: a replay catches it.
        assert path[:3] == ("verdict", "certificate", "local"), path
        assert {"sum", "top_sum", "top", "arm"} & set(path[-2:]), path
        assert not ba.verify(record, replay=True).ok, path
    assert checked > 40


@every_run
def test_a_conclusion_that_is_taken_out_is_missed(make):
    plain = make().to_dict()
    for path in [
        ("verdict", "certificate", "server"),
        ("verdict", "arm"),
        ("verdict", "candidates"),
        ("pulls", "by_client"),
    ]:
        if not plain[path[0]][path[1]]:
            continue
        record = with_fresh_digest(put(plain, path, None))
        assert record is None or not ba.verify(record).ok, path


def test_another_seed_is_caught_by_the_replay():
    plain = RUNS["identified"]().to_dict()
    record = with_fresh_digest(put(plain, ("seed",), 2))
    assert ba.verify(record).ok
    assert not ba.verify(record, replay=True).ok


def test_another_delta_or_constant_is_caught():
    plain = RUNS["identified"]().to_dict()
    for path, value in [
        (("delta",), 0.05),
        (("options", "c"), 9.0),
        (("options", "period"), 100),
        (("method",), "x"),
    ]:
        assert not ba.verify(with_fresh_digest(put(plain, path, value))).ok, path


def test_rewards_of_a_user_s_function_verify_but_can_t_be_replayed():
    problem = ba.Problem.from_rewards({"g": {"a": lambda rng: rng.random(), "b": 0.1}})
    record = ba.identify(problem, "fed-sel", seed=1)
    assert ba.verify(record).ok
    assert record.good_event is None
    assert "function" in ba.verify(record, replay=True).failures[0]


def test_what_the_server_may_know_verifies_too():
    public = RUNS["identified"]().public()
    assert ba.verify(public).ok
    assert public.verdict.arm == "g1/a1"


def test_a_saved_record_comes_back(tmp_path):
    record = RUNS["identified"]()
    path = record.save(tmp_path / "deep" / "run.json")
    assert Record.load(path) == record
    assert [p.name for p in path.parent.iterdir()] == ["run.json"]


def test_the_clients_part_of_many_clients_is_a_side_file(tmp_path):
    problem = ba.Problem.bernoulli([[0.99]] + [[0.01]] * 1000)
    record = ba.identify(problem, "fed-sel", seed=1, c=2)
    path = record.save(tmp_path / "run.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "run.local.json"]
    again = Record.load(path)
    assert again == record
    assert ba.verify(again)
    side = tmp_path / "run.local.json"
    side.write_bytes(side.read_bytes().replace(b'"g7-1"', b'"g7-2"'))
    assert not ba.verify(Record.load(path))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', "\xff\xfe"])
def test_a_file_that_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ba.InputError, match=r"x\.json"):
        Record.load(path)


def test_a_missing_file_is_refused():
    with pytest.raises(ba.InputError, match="No such file"):
        Record.load("nowhere.json")
