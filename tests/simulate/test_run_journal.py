"""A run in process with a journal can be watched, and resumes where it was stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from test_report import Page, safe

import bestarm as ba
from bestarm.cli.verify import verify_federation
from bestarm.errors import InputError
from bestarm.graphs.generators import circulant
from bestarm.problem.rewards import Beta, Recording
from bestarm.report import follow, page
from bestarm.simulate import run_journal as kept
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.identify import Interrupted
from bestarm.simulate.network import Network
from bestarm.util.journal import Journal
from lives import Stream, ask, serving
from marking import slow_but

ROOT = Path(__file__).resolve().parent.parent.parent
MEANS = [[0.9, 0.3], [0.5, 0.2], [0.4, 0.1]]
GROUPS = {f"g{j}": {"a": top, "b": low} for j, (top, low) in enumerate(MEANS)}
PAIRS = ba.Problem.from_rewards(GROUPS)
TRIPLES = ba.Problem.from_rewards(GROUPS, clients=3)
LIAR = [Adversary("g1", "inflate", clients=("g1-1",))]
VALUES = tuple((k * 7 % 10) / 10 for k in range(400))
CASES = {
    "fisher": (PAIRS, {"method": "fisher"}),
    "fed-sel": (PAIRS, {"method": "fed-sel"}),
    "early-stop": (PAIRS, {"method": "fed-sel", "early_stop": True}),
    "budget": (PAIRS, {"method": "fed-sel", "budget": 3000}),
    "robust": (TRIPLES, {"method": "robust-fed-sel", "byzantine": 1, "adversaries": LIAR}),
    "pooled": (TRIPLES, {"method": "fisher", "byzantine": 1, "adversaries": LIAR}),
    "peers": (
        TRIPLES,
        {
            "method": "p2p", "byzantine": 1, "adversaries": LIAR, "exchange": "intervals",
            "network": Network(circulant(9, 4), delay=50.0, start=500.0, crashes=2),
        },
    ),
    "counts": (ba.load(ROOT / "examples/flights.toml").problem, {"method": "fisher"}),
    "recording": (
        ba.Problem.from_rewards({"g": {"a": Recording(VALUES), "b": Beta(2.0, 9.0)}, "h": {"c": 0.2}}),
        {"method": "fisher"},
    ),
    "recordings": (
        ba.Problem.from_rewards(
            {
                "g": {"a": {"kind": "recording", "values": [VALUES, VALUES[1:90], VALUES[::-1]]}, "b": 0.1},
                "h": {"c": 0.2},
            },
            clients={"g": 3},
        ),
        {"method": "fisher"},
    ),
}  # fmt: skip


def run(case, **more):
    problem, keys = CASES[case]
    return ba.identify(problem, delta=0.1, **{"seed": 5, **keys, **more})


def events_of(path):
    with Journal.open(path, write=False) as journal:
        return journal.header, [(event.kind, event.body) for event in journal.events()]


def prefix(path, header, events):
    """The journal of a process that was killed after these events."""
    with Journal.create(path, kept.KIND, header) as journal:
        journal.append_many(events)
    return path


@pytest.mark.parametrize("case", slow_but(["fisher", "pooled", "recordings"], CASES))
def test_a_killed_run_resumes_from_any_journal_event_to_the_same_record(case, tmp_path):
    plain = run(case)
    assert run(case, journal=tmp_path / "run.db") == plain
    header, events = events_of(tmp_path / "run.db")
    assert [kind for kind, _ in events].count(kept.END) == 1
    cuts = range(0, len(events) + 1, max(1, len(events) // 12))
    for n in cuts:
        path = prefix(tmp_path / f"{n}.db", header, events[:n])
        assert run(case, seed=None, journal=path) == plain
        assert events_of(path) == (header, events)


@pytest.mark.parametrize("case", slow_but(["fisher"], CASES))
def test_a_watcher_sees_every_event_and_the_record_at_the_end(case, tmp_path):
    plain = run(case, journal=tmp_path / "run.db")
    source = follow.Journalled(tmp_path / "run.db")
    source.catch_up()
    assert source.trouble == ""
    assert source.count == source.known > 3
    steps = [(n, source.at(n)) for n in range(1, source.count, max(1, source.count // 6))]
    steps.append((source.count, source.facts()))
    first, last = steps[0][1], steps[-1][1]
    assert first.verdict is None
    assert last.verdict is not None
    assert last.verdict.arm == plain.verdict.arm
    assert last.costs.pulls == plain.pulls.total >= first.costs.pulls
    assert last.traces, "what each arm drew is known"
    assert msgspec.json.decode(source.record()) == plain.to_dict()
    for n, facts in reversed(steps):  # looking back starts over
        sections = page.sections(facts)
        assert page.sections(source.at(n)) == sections
        safe(Page("".join(body for _, _, body in sections)))
    source.close()
    assert "is the best arm" in Page(page.read(tmp_path / "run.db")).text or plain.verdict.arm is None


class Tries:
    """Arms that are functions: they record their draws and are interrupted after `most` of them."""

    def __init__(self, most=10**9):
        self.most, self.given = most, []

    def arm(self, mean):
        def one(rng):
            if len(self.given) >= self.most:
                raise KeyboardInterrupt
            value = rng.random()
            self.given.append(value)
            return float(value < mean)

        return one

    def problem(self):
        arms = {"old": self.arm(0.3), "new": self.arm(0.6)}
        return ba.Problem.from_rewards({"attic": arms, "cellar": {"big": self.arm(0.4)}})


def test_a_resumed_function_is_called_only_for_rewards_missing_from_the_journal(tmp_path):
    first = Tries(most=150)
    with pytest.raises(Interrupted) as stopped:
        ba.identify(first.problem(), seed=4, journal=tmp_path / "run.db")
    assert stopped.value.record.interrupted
    _, events = events_of(tmp_path / "run.db")
    steps = [msgspec.json.decode(body, type=kept.Step) for _, body in events]
    paid = sum(pulls for step in steps for batch in step.drawn for _, pulls, _ in batch.totals)
    assert 0 < paid <= 150
    second = Tries()
    record = ba.identify(second.problem(), journal=tmp_path / "run.db")
    assert record.seed == 4
    assert record.verdict.arm == "attic/new"
    assert len(second.given) == record.pulls.total - paid
    assert not set(second.given) & set(first.given)
    third = Tries()
    assert ba.identify(third.problem(), journal=tmp_path / "run.db") == record  # the run is complete
    assert third.given == []


@pytest.mark.parametrize(
    ("change", "names"),
    [({"delta": 0.2}, "options"), ({"seed": 6}, "seed"), ({"method": "fed-sel"}, "method, options")],
)
def test_the_journal_of_another_run_is_refused_and_left_unchanged(change, names, tmp_path):
    path = tmp_path / "run.db"
    keys = {"method": "fisher", "delta": 0.1, "seed": 5}
    ba.identify(PAIRS, journal=path, **keys)
    before = events_of(path)
    with pytest.raises(InputError, match=f"another run: it differs in {names}"):
        ba.identify(PAIRS, journal=path, **{**keys, **change})
    assert events_of(path) == before


def test_a_file_that_is_not_a_run_journal_is_refused(tmp_path):
    path = tmp_path / "run.db"
    Journal.create(path, "federation-server", {}).close()
    with pytest.raises(InputError, match="federation-server"):
        ba.identify(PAIRS, seed=1, journal=path)
    (tmp_path / "x.db").write_text("hello")
    with pytest.raises(InputError, match="not a bestarm journal"):
        ba.identify(PAIRS, seed=1, journal=tmp_path / "x.db")


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda batch: {"sums": (batch.sums[0] + 1.0, *batch.sums[1:])}, "rewards differ"),
        (lambda batch: {"times": batch.times + 1}, "not those that this run asks for"),
        (lambda batch: {"shares": (1, 1)}, "not those that this run asks for"),
        (lambda batch: {"squares": batch.sums}, "not those that this run asks for"),
    ],
)
def test_a_journal_with_forged_rewards_is_refused(forge, says, tmp_path):
    run("fisher", journal=tmp_path / "run.db")
    header, events = events_of(tmp_path / "run.db")
    step = msgspec.json.decode(events[0][1], type=kept.Step)
    step.drawn[0] = msgspec.structs.replace(step.drawn[0], **forge(step.drawn[0]))
    path = prefix(tmp_path / "forged.db", header, [(kept.REWARDS, msgspec.json.encode(step)), *events[1:]])
    with pytest.raises(InputError, match=says):
        run("fisher", journal=path)


def test_a_watcher_reports_a_forged_journal_and_keeps_its_last_state(tmp_path):
    run("fisher", journal=tmp_path / "run.db")
    header, events = events_of(tmp_path / "run.db")
    for k, (forged, says) in enumerate(
        [
            ((kept.REWARDS, msgspec.json.encode(kept.Step(1, []))), "lacks rewards"),
            ((kept.REWARDS, b'{"steps": "x"}'), "can't be read"),
            (
                (kept.END, msgspec.json.encode(kept.Step(0, [kept.Batch(0, (0,), 1, (1.0,), 1)]))),
                "did not ask for",
            ),
        ]
    ):
        path = prefix(tmp_path / f"{k}.db", header, [*events[:2], forged])
        source = follow.Journalled(path)
        source.catch_up()
        assert says in source.trouble
        assert source.facts().verdict is None
        source.close()


class Slow:
    """A run in a thread that waits, once its journal has an event, until it may continue."""

    def __init__(self, path):
        self.path, self.gate, self.record = path, threading.Event(), None
        self.worker = threading.Thread(target=self._run)

    def _run(self):
        coin = Tries().arm(0.6)

        def slow(rng):
            if self.path.exists() and events_of(self.path)[1]:
                assert self.gate.wait(120)
            return coin(rng)

        problem = ba.Problem.from_rewards({"attic": {"old": 0.3, "new": slow}, "cellar": {"big": 0.4}})
        self.record = ba.identify(problem, seed=1, journal=self.path)

    def finish(self):
        self.gate.set()
        self.worker.join(120)


def test_the_live_page_follows_a_run_to_its_verdict(tmp_path):
    slow = Slow(tmp_path / "run.db")
    with serving(slow.path) as url:
        stream = Stream(url)
        stream.until(lambda event: event["state"] == "waiting")
        slow.worker.start()
        try:
            stream.until(lambda event: event["state"] == "going" and event["n"] > 0)
            assert "Not decided yet" in stream.sections["top"]
        finally:
            slow.finish()
        stream.until(lambda event: event["state"] == "over")
        assert "attic/new" in Page(stream.sections["top"]).text
        assert json.loads(ask(url, "/record.json")[2]) == slow.record.to_dict()
        assert "Not decided yet" in json.loads(ask(url, "/at/1")[2])["sections"]["top"]
        stream.close()


def test_ctrl_c_keeps_the_journal_and_the_same_command_resumes(tmp_path):
    (tmp_path / "tie.toml").write_text(
        'method = "fed-sel"\n[[group]]\nname = "g"\narms = { a = 0.5, b = 0.2 }\n'
        '[[group]]\nname = "h"\narms = { a = 0.49999, b = 0.1 }\n'
    )
    command = [sys.executable, "-m", "bestarm.cli", "run", "tie.toml", "--journal", "run.db", "--json"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        source = follow.Journalled(tmp_path / "run.db")
        while not source.count:
            source.catch_up(0.0)
            assert process.poll() is None, process.communicate()
            threading.Event().wait(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "run the same command to resume from run.db" in err
    assert json.loads(out)["interrupted"]
    count = len(events_of(tmp_path / "run.db")[1])
    done = subprocess.run(
        [*command, "--max-rounds", "5"], cwd=tmp_path, capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 2, "other options are another run"
    assert "differs in options" in done.stderr
    assert len(events_of(tmp_path / "run.db")[1]) == count > 0
    source.close()


def test_a_reader_that_is_slower_than_the_writer_finishes(tmp_path, monkeypatch):
    path = tmp_path / "run.db"
    run("fed-sel", journal=path)
    header, events = events_of(path)
    with Journal.create(tmp_path / "growing.db", kept.KIND, header) as journal:
        journal.append_many(events[:10])
        left, take = iter(events[10:]), follow.Fold.take

        def slow(fold, event):
            take(fold, event)
            journal.append(*next(left))  # one more for each that is read

        monkeypatch.setattr(follow.Fold, "take", slow)
        source = follow.Journalled(journal.path)
        source.catch_up()
        assert source.count == 10
        source.catch_up()
        assert source.count == 20
        source.close()


def test_an_interrupt_right_after_a_write_writes_nothing_twice(tmp_path, monkeypatch):
    plain, append = run("fed-sel"), Journal.append_many
    monkeypatch.setattr(kept, "FLUSH_SECONDS", 0.0)

    def interrupted(journal, events):
        seqs = append(journal, events)
        if len(journal) > 20:
            raise KeyboardInterrupt
        return seqs

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append_many", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run("fed-sel", journal=tmp_path / "run.db")
    assert run("fed-sel", journal=tmp_path / "run.db") == plain


def test_an_interrupt_while_the_journal_is_reread_is_reported_as_such(tmp_path, monkeypatch):
    run("fed-sel", journal=tmp_path / "run.db")
    monkeypatch.setattr(kept.Keeper, "stepped", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(Interrupted, match="resumes from") as stopped:
        run("fed-sel", journal=tmp_path / "run.db")
    assert stopped.value.rereading


def test_a_run_journal_must_have_a_recognised_file_name(tmp_path):
    with pytest.raises(InputError, match=r"run\.db"):
        run("fisher", journal=tmp_path / "run.log")
    run("fisher", journal=tmp_path / "run.db")
    with pytest.raises(InputError, match="this is the journal of a run in process"):
        verify_federation(tmp_path / "run.db", None, False)
