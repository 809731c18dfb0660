"""A record that was altered does not verify, even with a fresh digest."""

from __future__ import annotations

import copy
import hashlib
import json

import msgspec
import pytest

import bestarm as ba
from bestarm.methods.fed_sel.messages import Report
from bestarm.protocol.events import Received, Start
from bestarm.protocol.messages import Wire
from bestarm.protocol.registry import METHODS
from bestarm.records.build import count_pulls, on_user_scale
from bestarm.records.record import Record, digest, plain_json
from marking import slow_but

# Fields that no check covers: inputs that no conclusion depends on, or that only a replay can test.
INPUTS = {("version",), ("seed",), ("options",), ("problem",), ("delta",), ("name",), ("date",)}


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
        return None  # it is not a record any more


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
    "fisher": lambda: ba.identify(ba.Problem.paper_instance(3), "fisher", delta=0.1, seed=1, quiet=2),
    "fisher with epsilon": lambda: ba.identify(
        ba.Problem.bernoulli([[0.7, 0.7], [0.6, 0.2]]), "fisher", seed=1, epsilon=0.1, budget=100_000
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
every_short_run = pytest.mark.parametrize(
    "make", slow_but([RUNS["early stop"], RUNS["real rewards"]], RUNS.values()), ids=RUNS.keys()
)


@every_run
def test_a_sound_record_verifies_and_replays(make):
    assert ba.verify(make(), replay=True).failures == ()


@every_short_run
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


@every_short_run
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
        # The rest are the clock, a client's raw observations, from which others follow, and their sums.
        if path[0] not in ("time", "summaries"):
            assert path[:3] == ("verdict", "certificate", "local"), path
            assert {"sum", "top_sum", "top", "arm", "rival", "look"} & set(path[-2:]), path
        assert not ba.verify(record, replay=True).ok, path
    assert checked > 40


def test_a_record_that_was_written_before_records_had_a_time_keeps_its_digest(tmp_path):
    plain = RUNS["early stop"]().to_dict()
    for key in ("time", "evidence", "digest", "summaries", "refused_summaries", "name", "date"):
        del plain[key]
    del plain["verdict"]["answers"], plain["options"]["summaries"], plain["bits"]["after"]
    plain["digest"] = hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()
    path = tmp_path / "record.json"
    path.write_text(json.dumps(plain), encoding="utf-8")
    record = Record.load(path)
    assert record.time is None
    assert ba.verify(record, replay=True).failures == ()


@every_run
def test_a_removed_conclusion_is_caught(make):
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


def forge(record: Record, change) -> ba.Verification:
    """Let `change` rewrite the plain record, give it a fresh digest, and check it."""
    plain = record.to_dict()
    change(plain, plain["verdict"]["certificate"])
    forged = with_fresh_digest(plain)
    return ba.Verification(False, ("not a record",)) if forged is None else ba.verify(forged)


def rebuilt(plain, payload: bytes, client: str, number: int = 0):
    """The record with one client message replaced and all conclusions of the server recomputed."""
    events = plain["verdict"]["certificate"]["server"]["events"]
    event = [e for e in events if e[1] == client][number]
    event[2] = payload.hex()
    layout, scale = ba.Problem.layout_from_dict(plain["problem"])
    options = METHODS[plain["method"]].options(**plain["options"], delta=plain["delta"])
    server = METHODS[plain["method"]].server(layout, options)
    server.handle(Start())
    for _, sender, data in events:
        server.handle(Received(sender, bytes.fromhex(data)))
    local = plain["verdict"]["certificate"]["local"]
    verdict = msgspec.structs.replace(on_user_scale(server.verdict, scale), certificate={})
    plain["verdict"] = plain_json(verdict)
    plain["verdict"]["certificate"] = {"server": plain_json(server.certificate()), "local": local}
    plain |= {"rounds": server.rounds, "wire_bytes": server.bytes}
    plain["bits"] = {"up": server.bits_up, "down": server.bits_down}
    plain["pulls"] = plain_json(count_pulls(METHODS[plain["method"]], layout, options, local))


def test_a_report_of_an_arm_that_never_won_is_caught():
    """A forger who rewrites a client's report, its sums and every conclusion is still caught."""
    record = ba.identify(ba.Problem.bernoulli([[0.9, 0.85], [0.5, 0.1]]), "fed-sel", delta=0.1, seed=1)
    wire = Wire((2, 2), (True, True))

    def change(plain, certificate):
        part = certificate["local"]["g1-1"]
        part["exits"] = {column: [] for column in part["exits"]}
        part["arm"], part["sent"]["sum"] = 1, [round(0.85 * part["epoch"])]
        rebuilt(
            plain, Report(1, part["epoch"], part["sent"]["sum"][0] / part["epoch"]).encode(wire, 0)[0], "g1-1"
        )

    result = forge(record, change)
    assert any("its eliminations do not agree" in failure for failure in result.failures)


def test_an_unfinished_report_marked_as_finished_is_caught():
    problem = ba.Problem.bernoulli([[0.9, 0.9, 0.1], [0.3, 0.1]])
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, budget=60_000)
    assert record.verdict.status == "undecided"
    wire = Wire((3, 2), (True, True), stoppable=True)

    def change(plain, certificate):
        part = certificate["local"]["g1-1"]
        report = Report(part["arm"], part["epoch"], part["sent"]["sum"][0] / part["epoch"])
        rebuilt(plain, report.encode(wire, 0)[0], "g1-1")
        assert plain["verdict"]["status"] == "identified"

    assert not forge(record, change).ok


def fisher_run() -> Record:
    return ba.identify(ba.Problem.bernoulli([[0.5], [0.9, 0.3]]), "fisher", delta=0.1, seed=3, n0=8)


def test_a_fisher_client_s_forged_withdrawal_is_caught():
    """g2 wins; the forger makes it withdraw after the first look, so that g1 would win."""
    record = fisher_run()
    assert (record.verdict.arm, record.rounds > 1) == ("g2/a1", True)

    def change(plain, certificate):
        del certificate["server"]["events"][4:]
        part = certificate["local"]["g2-1"]
        part["exits"] = {column: [] for column in part["exits"]}
        part["sent"] = {column: values[:1] for column, values in part["sent"].items()}
        rebuilt(plain, b"\x80", "g2-1", 1)

    assert not forge(record, change).ok


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part.update(look=30, count=10**6),
        lambda part: part.update(look=part["look"] + 1, count=part["count"] + 4),
        lambda part: part["exits"].update(look=[40] * len(part["exits"]["look"])),
        lambda part: part["exits"].update(rival=[0] * len(part["exits"]["rival"])),
        lambda part: part["exits"].update({c: v * 2 for c, v in part["exits"].items()}),
        lambda part: part["exits"].update({c: [] for c in part["exits"]}),
        lambda part: part["sent"].update({c: v[:-1] for c, v in part["sent"].items()}),
        lambda part: part["sent"].update({c: [*v, v[-1] + 1] for c, v in part["sent"].items()}),
        lambda part: part["sent"].update(arm=[1] * len(part["sent"]["arm"])),
    ],
)
def test_a_fisher_client_s_forged_looks_exits_and_reports_are_caught(change):
    record = fisher_run()
    assert record.verdict.certificate["local"]["g2-1"]["exits"]["arm"] == [1]

    def forged(plain, certificate):
        change(certificate["local"]["g2-1"])
        recount(plain, certificate)

    assert not forge(record, forged).ok


def test_a_huge_look_number_is_rejected():
    record = fisher_run()
    result = forge(record, lambda plain, certificate: certificate["local"]["g1-1"].update(look=10**9))
    assert not result.ok


def test_the_last_digit_of_a_logarithm_may_differ():
    record = fisher_run()

    def change(plain, certificate):
        for row in certificate["server"]["rounds"]:
            row["log_p"] = [value * (1 + 1e-15) for value in row["log_p"]]

    assert forge(record, change).ok


def recount(plain, certificate):
    layout, _ = ba.Problem.layout_from_dict(plain["problem"])
    method = METHODS[plain["method"]]
    options = method.options(**plain["options"], delta=plain["delta"])
    plain["pulls"] = plain_json(count_pulls(method, layout, options, certificate["local"]))


def test_impossible_sums_counts_and_budgets_are_caught():
    record = RUNS["undecided"]()

    def exit_too_early(plain, certificate):
        certificate["local"]["g1-1"]["exits"] |= {"epoch": [1], "top_sum": [1e9]}
        recount(plain, certificate)

    def pulls_out_of_nothing(plain, certificate):
        certificate["local"]["g1-1"]["count"] += 10**12
        recount(plain, certificate)

    def smaller_budget(plain, certificate):
        plain["options"]["budget"] = 1000

    for change in (exit_too_early, pulls_out_of_nothing, smaller_budget):
        assert not forge(record, change).ok, change


def test_removed_fields_and_unsupported_claims_are_caught():
    record = RUNS["identified"]()

    def no_good_event(plain, certificate):
        plain["good_event"] = None

    def no_local_part(plain, certificate):
        certificate["local"] = None

    def claims_without_ground(plain, certificate):
        certificate["local"] = None
        plain["pulls"]["total"] = 7

    for change in (no_good_event, no_local_part, claims_without_ground):
        assert not forge(record, change).ok, change


def test_a_user_s_own_table_is_replayed_unchanged():
    for table in (ba.Table((0.0, 1.0), (1.0, 3.0)), ba.Table((1.0, 0.5, 0.0), (1.0, 3.0, 1.0))):
        problem = ba.Problem.from_rewards({"g": {"a": table, "b": 0.1}})
        assert ba.verify(ba.identify(problem, "fed-sel", seed=1), replay=True).failures == ()


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


def test_the_public_part_of_a_record_verifies_too():
    public = RUNS["identified"]().public()
    assert ba.verify(public).ok
    assert public.verdict.arm == "g1/a1"


def test_a_saved_record_loads_unchanged(tmp_path):
    record = RUNS["identified"]()
    path = record.save(tmp_path / "deep" / "run.json")
    assert Record.load(path) == record
    assert [p.name for p in path.parent.iterdir()] == ["run.json"]


@pytest.mark.slow
def test_client_data_of_large_runs_is_stored_in_a_side_file(tmp_path):
    problem = ba.Problem.bernoulli([[0.99]] + [[0.01]] * 1000)
    record = ba.identify(problem, "fed-sel", seed=1, c=2)
    path = record.save(tmp_path / "run.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.json", "run.local.json"]
    again = Record.load(path)
    assert again == record
    assert ba.verify(again)
    named_file = ba.identify(
        ba.Problem.from_rewards({"g": {"a": 0.9, "b": 0.1}}, clients={"g": ["file"]}), seed=1
    )
    assert Record.load(named_file.save(tmp_path / "named.json")) == named_file
    side = tmp_path / "run.local.json"
    side.write_bytes(side.read_bytes().replace(b'"g7-1"', b'"g7-2"'))
    assert not ba.verify(Record.load(path))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', "\xff\xfe"])
def test_a_file_that_is_not_a_record_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ba.InputError, match=r"x\.json"):
        Record.load(path)


def test_a_missing_file_is_refused():
    with pytest.raises(ba.InputError, match="No such file"):
        Record.load("nowhere.json")


def test_an_old_record_without_evidence_is_still_sound(tmp_path):
    record = ba.identify(ba.Problem.bernoulli([[0.9, 0.2], [0.5]]), method="fed-sel", seed=1)
    plain = record.to_dict()
    assert plain.pop("evidence") == []
    (tmp_path / "old.json").write_text(json.dumps(plain))
    loaded = ba.Record.load(tmp_path / "old.json")
    assert loaded == record
    assert ba.verify(loaded, replay=True).ok
