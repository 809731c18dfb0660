"""A method that asks for shares and moments runs like any other: clock, journal, resume, live view, rerun."""

from __future__ import annotations

import json

import msgspec
import pytest
from test_run_journal import events_of, prefix

import bestarm as ba
from bestarm.problem.rewards import Beta, Recording
from bestarm.protocol.events import Pull, Pulled
from bestarm.report import follow
from bestarm.report.facts.again import traces_again
from bestarm.simulate import run_journal as kept
from bestarm.simulate.identify import prepare, run_of
from uneven import METHOD, SHARE

PROBLEM = ba.Problem.from_rewards(
    {"g": {"a": Beta(8.0, 2.0), "b": Recording((0.5, 0.25) * 2000)}, "h": {"c": 0.2, "d": 0.3}}
)


@pytest.fixture(autouse=True)
def uneven():
    ba.register_method(METHOD)


def test_a_run_counts_every_pull_and_keeps_the_moments():
    record = ba.identify(PROBLEM, "uneven", seed=5)
    assert record.verdict.arm == "g/a"
    local = record.verdict.certificate["local"]
    assert record.pulls.total == sum(part["count"] * (SHARE + 1) for part in local.values())
    sums, times, squares, least, most, _ = local["g-1"]["rewards"][0]
    assert (times, sums[1], squares[1]) == (32, 12.0, 5.0)
    assert (least[1], most[1]) == (0.25, 0.5)
    assert ba.verify(record).ok


def test_a_pull_takes_one_step_of_the_clock_per_pull_of_any_arm():
    problem = ba.Problem.from_rewards({"g": {"a": 0.9, "b": 0.5}, "h": {"c": 0.2}})
    problem, method, options = prepare(problem, "uneven", {"n0": 11})
    run = run_of(problem, method, options, 5)
    run.begin()
    run.mail.append((0, b""))  # it arrives while the first client pulls
    run.step()
    assert run.now == 11 * SHARE
    first, second = run.clients
    assert (second.count, first.count, first.ignored) == (11, 9, 1)  # it had begun its ninth round
    assert run.total == 11 * SHARE + 9 * (SHARE + 1)
    run.step()
    assert run.now == 11 * SHARE + 2 * (SHARE + 1)
    assert first.count == 11


def test_a_killed_run_resumes_to_the_same_record(tmp_path):
    plain = ba.identify(PROBLEM, "uneven", seed=5)
    assert ba.identify(PROBLEM, "uneven", seed=5, journal=tmp_path / "run.db") == plain
    header, events = events_of(tmp_path / "run.db")
    for n in range(len(events) + 1):
        path = prefix(tmp_path / f"{n}.db", header, events[:n])
        assert ba.identify(PROBLEM, "uneven", journal=path) == plain
        assert events_of(path) == (header, events)


@pytest.mark.parametrize("field", ["sums", "squares", "least", "most"])
def test_forged_moments_in_a_journal_are_refused(field, tmp_path):
    ba.identify(PROBLEM, "uneven", seed=5, journal=tmp_path / "run.db")
    header, events = events_of(tmp_path / "run.db")
    step = msgspec.json.decode(events[0][1], type=kept.Step)
    changed = (0.125, *getattr(step.drawn[0], field)[1:])
    step.drawn[0] = msgspec.structs.replace(step.drawn[0], **{field: changed})
    path = prefix(tmp_path / "forged.db", header, [(kept.REWARDS, msgspec.json.encode(step)), *events[1:]])
    with pytest.raises(ba.InputError, match="rewards differ"):
        ba.identify(PROBLEM, "uneven", journal=path)


def test_a_watcher_counts_the_pulls_of_each_arm(tmp_path):
    record = ba.identify(PROBLEM, "uneven", seed=5, journal=tmp_path / "run.db")
    source = follow.Journalled(tmp_path / "run.db")
    source.catch_up()
    assert source.trouble == ""
    sums = source.fold.sums
    source.close()
    count = record.verdict.certificate["local"]["g-1"]["count"]
    assert {arm: max(line) for (client, arm), line in sums.items() if client == 0} == {
        0: SHARE * count,
        1: count,
    }


def test_a_journal_stores_shares_and_moments_only_for_pulls_that_ask(tmp_path):
    for method in ("uneven", "fisher"):
        ba.identify(PROBLEM, method, seed=5, journal=tmp_path / f"{method}.db")
    fields = {
        method: {
            len(batch)
            for _, body in events_of(tmp_path / f"{method}.db")[1]
            for batch in json.loads(body)["drawn"]
        }
        for method in ("uneven", "fisher")
    }
    assert fields == {"uneven": {9}, "fisher": {5}}
    pull = Pull((0, 1), 3, shares=(2, 1))
    batch = kept.Batch.of(4, pull, 3, Pulled((1.0, 2.0), 2))
    assert batch.plain() == (4, (0, 1), 3, (1.0, 2.0), 2, (2, 1))
    assert msgspec.json.decode(msgspec.json.encode(batch.plain()), type=kept.Batch) == batch
    none = kept.Batch.of(4, Pull((0, 1), 3, moments=True), 3, None)
    assert (none.plain(), none.pulled, list(none.totals)) == ((4, (0, 1), 3, (), 0), None, [])


def test_a_rerun_traces_the_pulls_of_each_arm():
    record = ba.identify(PROBLEM, "uneven", seed=5)
    traces = {(trace.client, trace.arm): trace.pulls[-1] for trace in traces_again(PROBLEM, record)}
    count = record.verdict.certificate["local"]["g-1"]["count"]
    assert (traces["g-1", "a"], traces["g-1", "b"]) == (SHARE * count, count)
