"""The folds of a federation in process: crashes, message orders, drops, and hostile bytes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import random
import secrets
import tempfile
import threading
import time
import types
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.evidence import verify_record
from bestarm.deploy.federation import files
from bestarm.deploy.federation.broker import Unreachable, binary, listens_on
from bestarm.deploy.federation.client_folders import CLIENT
from bestarm.deploy.federation.desk import AHEAD, Desk
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.site import Site
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.identity import Key, Roster
from bestarm.deploy.pulling import Puller
from bestarm.deploy.sources import Exhausted, FromPython, SourceFailed
from bestarm.methods.fisher.messages import LookStopped, encode_withdrawn
from bestarm.protocol.events import Drop, PatienceOver, Pull, Received, Send, Start
from bestarm.protocol.group_server import FIRST_REPORT
from bestarm.protocol.summaries import Summary
from bestarm.records.record import Record
from bestarm.simulate.identify import prepare
from bestarm.simulate.run import Run
from bestarm.util.journal import Journal
from federations import SERVER, Coins, Crash, Folds, comparable, driven, in_process, scenario
from marking import examples, slow_but

TWO = {"west": {"a": 0.99, "b": 0.01}, "east": {"c": 0.5}}
ONE_EACH = {"west": {"a": 0.99}, "east": {"c": 0.5}}
TINY = {
    "fed-sel": scenario("fed-sel", TWO, period=3000, delta=0.1),
    "early": scenario("fed-sel", TWO, period=3000, delta=0.1, early_stop=True),
    "fisher": scenario("fisher", TWO, n0=8, q=2.0, delta=0.1),
    "robust-fed-sel": scenario("robust-fed-sel", ONE_EACH, clients=3, byzantine=1, period=3000, delta=0.1),
    "pooled": scenario("fisher", TWO, clients=3, byzantine=1, n0=8, q=4.0, delta=0.1),
    "bet": scenario("bet", TWO, n1=8, q=2.0, delta=0.1),
    "bet, fill": scenario("bet", TWO, n1=8, q=2.0, delta=0.1, silence="fill"),
    "bet, groups": scenario("bet", TWO, clients=2, n1=8, q=2.0, delta=0.1),
}
SOUND = ("fed-sel", "fisher", "bet, groups")  # their records do not depend on the order within a round


@pytest.fixture(scope="module")
def shelf():
    """A folder in memory if possible, because journals wait for the disk at every append."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def made(shelf):
    """Each federation's folder; ``fresh`` removes the journals of the last run."""
    folders = {}

    def fresh(name):
        if name not in folders:
            folders[name] = shelf / name
            files.init(TINY[name], folders[name], port=0)
        for path in (*folders[name].rglob("journal.db*"), folders[name] / files.RECORD):
            path.unlink(missing_ok=True)
        return folders[name]

    return fresh


class Fuse:
    """Kills the process at append number `at`, right before or right after it."""

    def __init__(self, monkeypatch):
        self.count, self.at, self.before = 0, 0, False
        honest = Journal.append_many

        def append_many(journal, events):
            self.count += 1
            if self.count == self.at and self.before:
                self.blow(journal)
            done = honest(journal, events)
            if self.count == self.at:
                self.blow(journal)
            return done

        monkeypatch.setattr(Journal, "append_many", append_many)

    def blow(self, journal):
        journal.close()
        raise Crash

    def set(self, at, before):
        self.count, self.at, self.before = 0, at, before


@pytest.mark.parametrize("name", slow_but(["fisher"], TINY))
def test_a_crash_at_any_append_changes_nothing(made, name, monkeypatch):
    fuse, case = Fuse(monkeypatch), TINY[name]
    coins = Coins(case.problem)

    def run(at, before):
        folder = made(name)
        fuse.set(at, before)
        folds = Folds(folder, coins)
        record = folds.go()
        folds.check_pulls()
        own = driven(case, Coins(case.problem), folds)
        assert own.public() == record.public(), "no message was lost, and none counted twice"
        record.save(folder / files.RECORD)
        folds.close()
        found = verify(folder)
        assert found.ok, found.failures
        assert found.record == record
        assert record.verdict.arm == "west/a"
        return record

    plain = run(0, False)
    appends = fuse.count
    assert appends > 10
    for at in range(1, appends + 1):
        for before in (False, True):
            record = run(at, before)
            if name in SOUND:
                assert comparable(record) == comparable(plain)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("seed", range(6))
def test_the_record_equals_that_of_bare_machines_in_the_same_order(made, name, seed):
    case, folder = TINY[name], made(name)
    folds = Folds(folder, Coins(case.problem, seed), random.Random(seed))
    record = None
    for _ in range(5000):
        folds.turn()
        if folds.over:
            record = folds.summarise()
            break
        if folds.rng.random() < 0.05 and getattr(folds.desk.machine, "patient", False):
            folds.desk.patience_over()
    assert record is not None
    folds.check_pulls()
    assert driven(case, Coins(case.problem, seed), folds).public() == record.public()
    assert folds.desk.machine.certificate()["events"] == [], "the journal has them"
    assert ba.verify(record).ok
    if name in SOUND:
        assert comparable(in_process(case, Coins(case.problem, seed))) == comparable(record)
    record.save(folder / files.RECORD)
    folds.close()
    assert verify(folder).record == record


# --- drops ---

FOUR = {"one": {"a": 0.9, "b": 0.1}, "two": {"c": 0.6, "d": 0.2}, "three": {"e": 0.3}}
DROPS = {
    "fed-sel": scenario("fed-sel", FOUR, period=2000, delta=0.1),
    "early": scenario("fed-sel", FOUR, period=2000, delta=0.1, early_stop=True, epsilon=0.05),
    "fisher": scenario("fisher", FOUR, delta=0.1),
    "fisher, epsilon": scenario("fisher", FOUR, delta=0.1, epsilon=0.05, budget=4000),
    "robust": scenario("robust-fed-sel", FOUR, clients=3, byzantine=1, period=2000, delta=0.1),
    "robust, f = 0": scenario("robust-fed-sel", FOUR, clients=2, byzantine=0, period=2000, delta=0.1),
    "robust, paper": scenario(
        "robust-fed-sel", FOUR, clients=4, byzantine=1, period=2000, delta=0.1, rules="paper"
    ),
    "pooled": scenario("fisher", FOUR, clients=3, byzantine=1, delta=0.1, epsilon=0.02),
    "pooled, f = 0": scenario("fisher", FOUR, clients=2, byzantine=0, delta=0.1),
    "bet": scenario("bet", FOUR, delta=0.1),
    "bet, n1 = 1": scenario("bet", FOUR, delta=0.3, n1=1, q=1.15, max_rounds=40),
    "bet, epsilon": scenario("bet", FOUR, delta=0.1, epsilon=0.05, budget=4000),
    "bet, groups": scenario("bet", FOUR, clients=2, delta=0.1),
    "bet, groups, budget": scenario("bet", FOUR, clients=2, delta=0.1, budget=150),
}


class Bare:
    """Machines, messages in any order between clients, and an operator who drops the given clients."""

    def __init__(self, case, rng):
        _, method, options = prepare(case, None, {})
        self.run = Run(case.problem, method, options, None, Coins(case.problem, rng.randint(0, 99)))
        self.rng, self.server = rng, self.run.server
        names = case.problem.layout.clients
        self.up, self.down = {n: [] for n in names}, {n: [] for n in names}
        self.pull = dict.fromkeys(names)
        self.hear(self.server.handle(Start()))
        for client in self.run.clients:
            self.speak(client.name, client.handle(Start()))

    def hear(self, actions):
        for action in actions:
            if isinstance(action, Send):
                for box in self.down.values():
                    box.append(action.payload)

    def speak(self, name, actions):
        for action in actions:
            if isinstance(action, Send):
                self.up[name].append(action.payload)
            elif isinstance(action, Pull):
                self.pull[name] = action if action.arms else None

    def step(self, name):
        """Let one client receive, pull and send at random; return whether anything happened."""
        i, client = self.run.index[name], self.run.clients[self.run.index[name]]
        moved = False
        if self.down[name] and self.rng.random() < 0.7:
            self.speak(name, client.handle(Received(SERVER, self.down[name].pop(0))))
            moved = True
        if (pull := self.pull[name]) is not None and self.rng.random() < 0.7:
            self.pull[name] = None
            pulled = self.run.source.draw(i, pull, pull.times)
            self.run.tallies[i].add(pull, pulled)
            self.speak(name, client.handle(pulled))
            moved = True
        if self.up[name] and self.rng.random() < 0.7:
            self.hear(self.server.handle(Received(name, self.up[name].pop(0))))
            moved = True
        return moved

    def idle(self, silent):
        """Whether no client except the silent ones can still act."""
        others = [c for c in self.up if c not in silent]
        return not any(self.up[c] or self.down[c] or self.pull[c] for c in others)


@given(data=st.data(), name=st.sampled_from(sorted(DROPS)))
@settings(max_examples=examples(100))
def test_drops_at_any_moment_end_in_an_honest_verdict(data, name):
    case = DROPS[name]
    layout = case.problem.layout
    rng = random.Random(data.draw(st.integers(0, 99)))
    doomed = data.draw(st.lists(st.sampled_from(layout.clients), unique=True, max_size=len(layout.clients)))
    silent = [c for c in doomed if data.draw(st.booleans())]  # they were gone before the operator noticed
    moments = {c: data.draw(st.integers(0, 40)) for c in doomed}
    bare, said = Bare(case, rng), []
    for turn in range(3000):
        if bare.server.state == "done":
            break
        for c in doomed:
            if moments[c] == turn and bare.server.state != "done":
                bare.hear(bare.server.handle(Drop(c)))
                said.append(c)
        moved = [bare.step(c) for c in rng.sample(layout.clients, len(layout.clients)) if c not in silent]
        if not any(moved) and bare.idle(silent) and turn > 40:
            bare.hear(bare.server.handle(PatienceOver(bare.server.round)))
    server = bare.server
    assert server.state == "done"
    record = bare.run.record()
    assert ba.verify(record.public()).ok, ba.verify(record.public()).failures
    assert ba.verify(record).ok, ba.verify(record).failures
    events = record.verdict.certificate["server"]["events"]
    assert [event[1] for event in events if event[0] == "drop"] == said
    left_out = {w["group"] for w in record.warnings if w["text"].startswith("dropped")}
    named = [record.verdict.arm] if record.verdict.arm else record.verdict.candidates
    assert not {arm.split("/")[0] for arm in named} & left_out
    stay_out = any("stay out" in warning["text"] for warning in record.warnings)
    best = [arm for arm in ("one/a", "two/c", "three/e") if arm.split("/")[0] not in left_out]
    if record.verdict.arm is not None:
        assert record.verdict.arm == best[0] or stay_out
    if not said and not silent:
        assert record.verdict.arm == "one/a"
    if record.verdict.status == "undecided":
        assert record.verdict.reason in ("silence", "budget")


def settle(bare, silent=()):
    """Run all clients except the silent ones until the server has a verdict or nothing changes."""
    for _ in range(2000):
        if bare.server.state == "done" or bare.idle(silent):
            return
        for name in bare.up:
            if name not in silent:
                bare.step(name)
    raise AssertionError("it goes on for ever")


def texts(bare):
    return [warning["text"] for warning in bare.server.warnings]


@pytest.mark.parametrize("name", ["fed-sel", "fisher"])
def test_dropping_a_group_that_beat_no_other_keeps_the_guarantee_for_the_rest(name):
    bare = Bare(DROPS[name], random.Random(1))
    settle(bare, ["one-1"])
    assert bare.server.state == "waiting"
    bare.hear(bare.server.handle(Drop("one-1")))
    settle(bare, ["one-1"])
    assert bare.server.verdict.arm == "two/c"
    assert texts(bare) == ["dropped by the operator: the verdict is about the other groups"]


def test_after_a_fed_sel_leader_is_dropped_the_groups_it_beat_stay_eliminated():
    case = scenario("fed-sel", {"one": {"a": 0.9}, "two": {"c": 0.88}, "three": {"e": 0.01}}, delta=0.1)
    bare = Bare(case, random.Random(1))
    while bare.server.round == 0:
        for name in bare.up:
            bare.step(name)
    assert bare.server.active.tolist() == [True, True, False]
    bare.hear(bare.server.handle(Drop("one-1")))
    settle(bare, ["one-1"])
    assert bare.server.verdict.arm == "two/c"
    assert texts(bare) == [
        "dropped by the operator: arms that lost to it stay out, and the verdict is about the rest"
    ]


@pytest.mark.parametrize(("delta", "proved"), [(0.1, "at most 0.25"), (0.45, "unknown")])
def test_after_a_fed_fisher_leader_is_dropped_the_record_states_the_larger_error_bound(delta, proved):
    groups = {"one": {"a": 0.9, "b": 0.1}, "two": {"c": 0.85, "d": 0.1}, "three": {"e": 0.8}}
    bare = Bare(scenario("fisher", groups, delta=delta), random.Random(1))
    while bare.server.round == 0:
        for name in bare.up:
            bare.step(name)
    leader = bare.server.leader
    bare.hear(bare.server.handle(Drop(bare.run.problem.layout.groups[leader].clients[0])))
    (text,) = texts(bare)
    assert text.endswith(f"; the probability of an error is then {proved}, instead of delta = {delta:g}")


def test_no_candidate_remains_if_all_others_lost_to_a_dropped_leader():
    """The leader is dropped after its bin was sent: all others withdraw, and there is no verdict."""
    bare = Bare(scenario("fisher", {"one": {"a": 0.9}, "two": {"c": 0.8}}, delta=0.1), random.Random(0))
    while bare.server.round == 0:
        for name in bare.up:
            bare.step(name)
    assert bare.server.leader == 0
    bare.hear(bare.server.handle(Drop("one-1")))
    bare.server.handle(Received("two-1", encode_withdrawn(bare.server.wire)[0]))
    assert bare.server.verdict.reason == "silence"
    assert bare.server.verdict.candidates == ()


@pytest.mark.parametrize("name", ["robust", "pooled"])
def test_a_group_tolerates_as_many_dropped_clients_as_liars(name):
    bare = Bare(DROPS[name], random.Random(1))
    bare.hear(bare.server.handle(Drop("one-1")))
    settle(bare, ["one-1"])
    assert bare.server.verdict.arm == "one/a"
    assert texts(bare) == ["one-1 was dropped by the operator, and counts as silent"]

    bare = Bare(DROPS[name], random.Random(1))
    for client in ("one-1", "one-2"):
        bare.hear(bare.server.handle(Drop(client)))
    settle(bare, ["one-1", "one-2"])
    assert bare.server.verdict.arm == "two/c"
    assert texts(bare)[-1] == "dropped by the operator: the verdict is about the other groups"


@pytest.mark.parametrize("rules", ["tight", "paper"])
def test_a_robust_group_that_loses_too_many_later_is_left_out(rules):
    groups = {"one": {"a": 0.9}, "two": {"c": 0.89}, "three": {"e": 0.1}}
    case = scenario("robust-fed-sel", groups, clients=4, byzantine=1, delta=0.1, rules=rules)
    bare = Bare(case, random.Random(1))
    while bare.server.round < 2:
        for name in bare.up:
            bare.step(name)
    voters = np.flatnonzero(bare.server._trust(0)[0])[:2]  # under the paper's rules only those count
    drops = [bare.run.problem.layout.groups[0].clients[i] for i in voters]
    for client in drops:
        assert bare.server.active.tolist() == [True, True, False]
        bare.hear(bare.server.handle(Drop(client)))
    assert bare.server.active.tolist() == [False, True, False]
    settle(bare, drops)
    assert bare.server.verdict.arm == "two/c"
    assert texts(bare)[:2] == [
        f"{drops[0]} was dropped by the operator, and counts as silent",
        f"{drops[1]} was dropped by the operator",
    ]


def test_dropping_a_client_that_had_stopped_does_not_end_the_run():
    bare = Bare(DROPS["fisher, epsilon"], random.Random(1))
    bare.server.handle(Received("three-1", LookStopped().encode(bare.server.wire)[0]))
    bare.hear(bare.server.handle(Drop("three-1")))
    settle(bare, ["three-1"])
    assert bare.server.verdict.arm == "one/a"


def test_with_f_0_a_drop_leaves_a_robust_group_running_and_excludes_a_pooled_one():
    for name, arm in (("robust, f = 0", "one/a"), ("pooled, f = 0", "two/c")):
        bare = Bare(DROPS[name], random.Random(1))
        bare.hear(bare.server.handle(Drop("one-1")))
        settle(bare, ["one-1"])
        assert bare.server.verdict.arm == arm


@pytest.mark.parametrize("name", ["robust", "robust, paper", "robust, f = 0", "pooled", "pooled, f = 0"])
def test_too_many_silent_clients_end_undecided_instead_of_hanging(name):
    bare = Bare(DROPS[name], random.Random(1))
    silent = bare.run.problem.layout.groups[0].clients[: 1 + DROPS[name].options["byzantine"]]
    settle(bare, silent)
    for _ in range(FIRST_REPORT if DROPS[name].options["byzantine"] else 2):
        assert bare.server.state == "waiting"
        bare.hear(bare.server.handle(PatienceOver(bare.server.round)))
        settle(bare, silent)
    assert bare.server.verdict.reason == "silence"
    assert "one/a" in bare.server.verdict.candidates


def test_a_drop_is_in_the_journal_and_in_the_certificate(made):
    folder = made("fisher")
    folds = Folds(folder, Coins(TINY["fisher"].problem))
    folds.desk.drop("west-1")
    folds.desk.drop("west-1")
    folds.desk.journal.close()
    folds.desk = None
    record = folds.go()
    record.save(folder / files.RECORD)
    assert record.verdict.arm == "east/c"
    assert record.verdict.certificate["server"]["events"].count(["drop", "west-1"]) == 1
    assert driven(TINY["fisher"], Coins(TINY["fisher"].problem), folds).public() == record.public()
    folds.close()
    assert verify(folder).ok


# --- hostile bytes ---


def flipped(data, at):
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class Hostile:
    """Messages that anyone may send to the server or to a client, and that must not count."""

    def __init__(self, folds, other, data):
        self.folds, self.other, self.data = folds, other, data
        self.junk = st.binary(max_size=300)

    def to_desk(self):
        """Return bytes, and whether they must be counted as refused."""
        folds, draw = self.folds, self.data.draw
        setup, name = folds.setup, draw(st.sampled_from(folds.names))
        key, run = folds.places[name].key, setup.run
        kind = draw(
            st.sampled_from(["junk", "flip", "repeat", "run", "other", "kind", "early", "echo", "two"])
        )
        accepted = [e for e in folds.desk.slots.accepted.values() if e.source == name]
        number = draw(st.integers(0, 3))
        match kind:
            case "flip" if accepted:
                return flipped(accepted[0].encode(), draw(st.integers(0, 10_000))), True
            case "repeat" if accepted:
                return draw(st.sampled_from(accepted)).encode(), False
            case "two" if accepted:  # its own key and a different message than before: evidence
                first = draw(st.sampled_from(accepted))
                closed = first.slot in folds.desk.slots.evidence
                return Envelope.sign(
                    key, run, name, "up", first.sequence, first.content + b"x"
                ).encode(), closed
            case "run":
                return Envelope.sign(key, secrets.token_bytes(16), name, "up", number, b"x").encode(), True
            case "other":
                return Envelope.sign(self.other, run, name, "up", 5 + number, b"x").encode(), True
            case "kind":
                word = draw(st.sampled_from(["", "down", "have", "UP", "x"]))
                return Envelope.sign(key, run, name, word, number, b"x").encode(), True
            case "early":
                number += len(folds.desk.broadcasts) + AHEAD
                return Envelope.sign(key, run, name, "up", number, b"x").encode(), True
            case "echo" if folds.down:
                return draw(st.sampled_from(folds.down)), True
        return draw(self.junk), True

    def to_site(self, site):
        folds, draw = self.folds, self.data.draw
        run, number = folds.setup.run, draw(st.integers(0, 5))
        kind = draw(st.sampled_from(["junk", "flip", "again", "run", "other", "kind", "early", "up", "have"]))
        match kind:
            case "flip" if folds.down:
                fresh = [d for k, d in enumerate(folds.down) if k not in folds.seen[site.place.client]]
                if fresh:
                    return flipped(fresh[0], draw(st.integers(0, 10_000))), None
            case "again" if folds.down:
                return draw(st.sampled_from(folds.down)), False
            case "run":
                return Envelope.sign(
                    folds.key, secrets.token_bytes(16), SERVER, "down", number, b""
                ).encode(), True
            case "other":
                number += site.heard
                return Envelope.sign(self.other, run, SERVER, "down", number + 10, b"").encode(), True
            case "kind":
                return Envelope.sign(folds.key, run, SERVER, "up", number, b"x").encode(), True
            case "early":
                return Envelope.sign(folds.key, run, SERVER, "down", 10**6, b"x").encode(), True
            case "up" if folds.up:
                return draw(st.sampled_from(folds.up)), True
            case "have":  # an old message of the server: it may arrive at any time
                whom = draw(st.sampled_from(folds.names))
                return Envelope.sign(folds.key, run, SERVER, "have", number, whom.encode()).encode(), False
        return draw(self.junk), True


@pytest.mark.slow
@given(data=st.data(), name=st.sampled_from(["fisher", "pooled"]))
@settings(max_examples=25)
def test_hostile_bytes_between_honest_ones_change_nothing(made, data, name):
    case, folder = TINY[name], made(name)
    folds = Folds(folder, Coins(case.problem), random.Random(data.draw(st.integers(0, 99))))
    hostile = Hostile(folds, Key.from_seed(bytes(range(32))), data)
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 4))):
            folds.turn()
        for _ in range(data.draw(st.integers(0, 4))):
            if folds.desk.done:
                break
            words, counts = hostile.to_desk()
            before = folds.desk.refused.total()
            folds.desk.take([words])
            assert folds.desk.refused.total() == before + counts
        for site in folds.sites.values():
            words, counts = hostile.to_site(site)
            before = site.refused
            site.received(words)
            assert counts is None or site.refused == before + counts
    record = folds.go()
    folds.check_pulls()
    assert record.verdict.arm == "west/a"
    assert not record.proven_faulty
    if name == "fisher":
        assert comparable(record) == comparable(in_process(case, Coins(case.problem)))
    bare = msgspec.structs.replace(record, evidence=[]).public()
    assert driven(case, Coins(case.problem), folds).public() == bare
    record.save(folder / files.RECORD)
    folds.close()
    found = verify(folder)
    assert found.ok, found.failures
    assert len(found.suspects) == len({evidence.first.source for evidence in found.evidence})


@given(data=st.data(), name=st.sampled_from(["robust-fed-sel", "pooled"]))
@settings(max_examples=25)
@pytest.mark.slow
def test_a_client_that_signs_anything_is_tolerated_and_nothing_raises(made, data, name):
    """One liar per group, with a valid key, sends junk, a flipped bit, or another client's message."""
    case, folder = TINY[name], made(name)
    folds = Folds(folder, Coins(case.problem))
    liars = ["west-3", "east-3"]
    folds.working = [c for c in folds.names if c not in liars]
    numbers = dict.fromkeys(liars, 0)
    for turn in range(500):
        if folds.over:
            break
        for liar in liars:
            honest = [e.content for e in folds.desk.slots.accepted.values() if e.content]
            kinds = [st.binary(max_size=40)]
            if honest:
                words = st.sampled_from(honest)
                kinds += [words, st.builds(flipped, words, st.integers(0, 400))]
            if data.draw(st.booleans()):
                content, number = data.draw(st.one_of(kinds)), numbers[liar]
                key = folds.places[liar].key
                folds.up.append(Envelope.sign(key, folds.setup.run, liar, "up", number, content).encode())
                numbers[liar] += number < len(folds.desk.broadcasts) + AHEAD - 1
        folds.turn()
        if turn % 10 == 9 and folds.desk.machine.patient:
            folds.desk.patience_over()
    assert folds.over
    record = folds.desk.record()
    assert record.verdict.arm == "west/a"
    assert {fault["client"] for fault in record.proven_faulty} <= set(liars)
    record.save(folder / files.RECORD)
    folds.close()
    found = verify(folder)
    assert found.ok, found.failures
    assert set(found.suspects) <= set(liars)


def test_a_flood_fills_neither_memory_nor_journal(made):
    folds = Folds(made("fisher"), Coins(TINY["fisher"].problem))
    place, desk, run = folds.places["west-1"], folds.desk, folds.setup.run
    for k in range(3000):
        source = f"nobody {k}" if k % 2 else "west-1"
        kind = "up" if k % 3 else "x"
        blank = Envelope(run, source, kind, k, b"x", bytes(64)).encode()
        desk.take([blank, secrets.token_bytes(50), bytes(1 << 16)])
    assert len(desk.refused) < 12
    assert len(desk.journal) == 0
    for k in range(1, 3 * AHEAD):  # valid, but number 0 never arrives
        for story in (b"one", b"two", b"three"):
            desk.take([Envelope.sign(place.key, run, "west-1", "up", k, story).encode()])
    assert len(desk.inbox.held["west-1"]) == AHEAD - 1
    assert len(desk.slots.evidence) == AHEAD - 1
    assert len(desk.journal) == 2 * (AHEAD - 1)
    site = folds.sites["east-1"]
    while not site.ups:
        folds.step("east-1")
    folds.step("east-1")
    before = len(site.journal)
    have = Envelope.sign(folds.key, run, SERVER, "have", 0, b"east-1").encode()
    for _ in range(100):  # an old message of the server, repeated
        site.received(have)
        assert site.sent == 0
        site.sent = len(site.ups)
    assert len(site.journal) <= before + 2
    for k in range(2000):
        site.received(Envelope(run, SERVER, "down", k, b"", bytes(64)).encode())
    assert not site.inbox.held
    assert site.refused == 2000
    folds.close()


# --- what else could get lost ---


def test_conflicting_messages_of_one_client_are_kept_as_evidence(made):
    folder = made("fisher")
    folds = Folds(folder, Coins(TINY["fisher"].problem))
    place = folds.places["west-1"]
    while not folds.desk.slots.accepted:
        folds.step("west-1")
        folds.step(SERVER)
    folds.desk.take([Envelope.sign(place.key, place.setup.run, place.client, "up", 0, b"other").encode()])
    folds.go().save(folder / files.RECORD)
    folds.close()
    found = verify(folder)
    assert found.ok
    assert list(found.suspects) == ["west-1"]
    assert len(found.evidence) == 1


def test_an_early_broadcast_that_was_acknowledged_survives_a_crash(made):
    """The broker does not deliver the broadcast again."""
    folds = Folds(made("fisher"), Coins(TINY["fisher"].problem), random.Random(0))
    name = "west-1"
    while len(folds.down) < 1:
        folds.turn()
    place = folds.places[name]
    early = Envelope.sign(folds.key, folds.setup.run, SERVER, "down", folds.sites[name].heard + 1, b"junk")
    folds.sites[name].received(early.encode())
    folds.sites[name].journal.close()
    folds.sites[name] = None
    site = Site.open(place)
    assert site.inbox.held == {SERVER: {early.sequence: early}}
    site.journal.close()
    folds.close()


def test_a_client_resends_on_the_server_s_request_even_after_a_crash(made):
    folds = Folds(made("fisher"), Coins(TINY["fisher"].problem))
    site = folds.sites["west-1"]
    while not site.sent:
        folds.step("west-1")
    folds.up.clear()  # the broker has lost its store
    site.stop("budget")  # any append records what was sent
    site.received(folds.desk.have("west-1"))
    site.journal.close()
    again = Site.open(folds.places["west-1"])
    assert again.sent == 0
    again.journal.close()
    folds.sites["west-1"] = None
    folds.close()


def test_messages_signed_by_a_revoked_key_count_if_received_before_and_else_are_signed_again(shelf):
    """West gets a new key twice: after the server has its first message, and before it has another."""
    folder, case = shelf / "keys", TINY["fisher"]
    files.init(case, folder, port=0)
    folds = Folds(folder, Coins(case.problem))

    def new_key():
        old = folds.sites["west-1"].place.folder
        folds.sites["west-1"].journal.close()
        files.revoke(folder, "west-1")
        folds.desk.set_roster(Roster.load(folder / files.ROSTER))
        place = files.add_client(folder, "west-1")
        folds.desk.set_roster(Roster.load(folder / files.ROSTER))
        for path in old.glob("journal.db*"):
            path.rename(place / path.name)
        folds.places["west-1"] = files.Place.load(place)
        folds.sites["west-1"] = Site.open(folds.places["west-1"])

    while not folds.desk.slots.accepted:
        folds.step("west-1")
        folds.step(SERVER)
    new_key()
    while len(folds.sites["west-1"].ups) < 2:
        folds.turn()
    assert folds.up or folds.sites["west-1"].sent < 2, "the second has not come yet"
    new_key()
    assert folds.sites["west-1"].sent == 0
    record = folds.go()
    assert record.verdict.arm == "west/a"
    assert not folds.desk.slots.evidence
    assert comparable(record) == comparable(in_process(case, Coins(case.problem)))
    record.save(folder / files.RECORD)
    folds.close()
    found = verify(folder)
    assert found.ok, found.failures


def test_a_journal_that_lost_its_last_events_is_resumed(made):
    """An append that did not return may be torn. The rest is a prefix, and the run ends the same way."""
    folder, case = made("fisher"), TINY["fisher"]
    folds = Folds(folder, Coins(case.problem))
    plain = comparable(folds.go())
    header, events = folds.desk.journal.header, list(folds.desk.journal.events())
    folds.close()
    for keep in range(len(events)):
        folder = made("fisher")
        with Journal.create(folder / files.JOURNAL, "federation-server", header) as journal:
            journal.append_many([(event.kind, event.body) for event in events[:keep]])
        desk = Desk(Journal.open(folder / files.JOURNAL), folds.key)
        assert not desk.failures
        desk.take([event.body for event in events if event.kind == "up"])
        assert desk.done
        desk.take([event.body for event in events if event.kind == "summary"])
        assert comparable(desk.record()) == plain
        desk.journal.close()


def test_verification_detects_a_tampered_journal(made):
    folder = made("fed-sel")
    folds = Folds(folder, Coins(TINY["fed-sel"].problem))
    folds.go().save(folder / files.RECORD)
    path = folder / files.JOURNAL
    header, events = folds.desk.journal.header, list(folds.desk.journal.events())
    folds.close()
    assert verify(folder).ok
    path.unlink()
    with Journal.create(path, "federation-server", header) as journal:  # a whole new file, with a false sum
        for kind, body in ((e.kind, bytearray(e.body)) for e in events):
            if kind == "up":
                body[-65] ^= 1
            journal.append(kind, bytes(body))
    found = verify(folder)
    assert not found.ok
    assert "signature" in found.failures[0]


def test_evidence_of_equivocation_is_in_the_record_and_checked_by_the_roster(made):
    folder, case = made("robust-fed-sel"), TINY["robust-fed-sel"]
    folds = Folds(folder, Coins(case.problem))
    liar = folds.places["east-2"]
    for content in (b"one", b"two"):
        folds.up.append(Envelope.sign(liar.key, folds.setup.run, "east-2", "up", 0, content).encode())
    record = folds.go()
    record.save(folder / files.RECORD)
    folds.close()
    (evidence,) = record.evidence
    assert (evidence["accused"], evidence["topic"], evidence["sequence"]) == ("east-2", "up", 0)
    assert Record.load(folder / files.RECORD) == record
    assert ba.verify(record).ok
    assert verify(folder).ok
    assert verify_record(record, folder / files.ROSTER).ok
    swapped = {**evidence, "first": evidence["second"], "second": evidence["first"]}
    for forgery in (
        {**evidence, "accused": "east-1"},
        {**evidence, "second": "00"},
        {**evidence, "topic": "x"},
    ):
        other = msgspec.structs.replace(record, evidence=[forgery]).sealed()
        assert not verify_record(other, folder / files.ROSTER).ok
    other = msgspec.structs.replace(record, evidence=[swapped]).sealed()
    assert verify_record(other, folder / files.ROSTER).ok, "it proves the same"
    other.save(folder / files.RECORD)
    assert verify(folder).failures == ("record.json: evidence does not follow from the journal",)


def forged(folder, scratch, case):
    """An attacker with the server's folder writes a new run with new keys for all clients."""
    folds = Folds(folder, Coins(case.problem))
    folds.close()
    (folder / files.JOURNAL).unlink()
    roster = Roster.load(folder / files.ROSTER)
    folds.desk = Desk.create(folder / files.JOURNAL, folds.setup, roster, folds.key)
    for name, place in folds.places.items():
        key = Key.generate()
        roster = roster.revoke(name).add(name, name.partition("-")[0], key.public)
        (scratch / name).mkdir(parents=True)
        folds.sites[name] = Site.open(dataclasses.replace(place, key=key, folder=scratch / name))
    folds.desk.set_roster(roster)
    folds.go().save(folder / files.RECORD)
    folds.close()
    return roster


def test_a_forged_run_is_detected_by_its_roster_and_by_one_that_a_site_kept(made, tmp_path):
    folder = made("fisher")
    honest = (folder / files.ROSTER).read_bytes()
    kept, pinned = tmp_path / "kept.json", folder / "clients" / "west-1" / CLIENT
    kept.write_bytes(honest)
    try:
        roster = forged(folder, tmp_path, TINY["fisher"])
        found = verify(folder)
        assert len(found.failures) == 4, "two keys revoked, two keys new"
        assert all("roster.json does not have the key" in failure for failure in found.failures)
        assert len(found.changes) == 4
        assert any("west-1 was given the key" in change for change in found.changes)

        roster.save(folder / files.ROSTER)  # anyone with the folder can write that too
        assert verify(folder).ok
        found = verify(folder, kept)
        assert len(found.failures) == 2
        assert "a message from west-1 is signed with key" in "".join(found.failures)
        assert "has the digest of" in "".join(verify(folder, pinned).failures)
        (folder / files.ROSTER).unlink()
        assert not verify(folder).ok
    finally:
        (folder / files.ROSTER).write_bytes(honest)
    folder = made("fisher")
    folds = Folds(folder, Coins(TINY["fisher"].problem))
    folds.go().save(folder / files.RECORD)
    folds.close()
    assert verify(folder, kept).ok
    assert verify(folder, pinned).ok
    other = json.loads(pinned.read_bytes())
    other["setup"]["keys"]["delta"] = 0.2
    (tmp_path / CLIENT).write_text(json.dumps(other))
    assert "another run" in verify(folder, tmp_path / CLIENT).failures[0]
    assert "another run" in verify(folder, kept).failures[0], "the file next to it says so"
    (folder / files.RECORD).write_text("{")
    assert "record.json" in verify(folder).failures[0]


@pytest.mark.parametrize(
    "change", [{"roster": 5}, {"roster": "{}"}, {"setup": 5}, {"keys": 5}, {"problem": []}, {"server": "00"}]
)
def test_an_invalid_header_fails_verification_without_a_crash(made, tmp_path, change):
    folder = made("fisher")
    folds = Folds(folder, Coins(TINY["fisher"].problem))
    folds.go()
    header, events = folds.desk.journal.header, list(folds.desk.journal.events())
    folds.close()
    for key, value in change.items():
        (header if key in header else header["setup"])[key] = value
    with Journal.create(tmp_path / "journal.db", "federation-server", header) as journal:
        journal.append_many([("strange", b""), *((event.kind, event.body) for event in events)])
    found = verify(tmp_path / "journal.db")
    assert not found.ok
    assert all(failure.isprintable() for failure in found.failures)


# --- the folder, and changes to it ---


@pytest.mark.parametrize(
    "host",
    ["", "a b", "../x", "http://x", "server.example.org:4222", "[::1]", "-x", "1.2.3", "fe80::1%lo", "é b"],
)
def test_an_invalid_host_leaves_no_folder(tmp_path, host):
    with pytest.raises(ba.InputError, match="is not a host"):
        files.init(TINY["fisher"], tmp_path / "f", host=host)
    assert not (tmp_path / "f").exists()


def test_a_host_that_is_not_in_ascii_is_refused_with_its_ascii_form(tmp_path):
    with pytest.raises(ba.InputError, match=r"Use xn--mnster-3ya\.example"):
        files.init(TINY["fisher"], tmp_path / "f", host="Münster.example")


@pytest.mark.parametrize(
    ("option", "text"), [({"port": 99999}, "99999 is not a port"), ({"spare": -1}, "-1 spare")]
)
def test_an_invalid_number_is_named(tmp_path, option, text):
    with pytest.raises(ba.InputError, match=text) as error:
        files.init(TINY["fisher"], tmp_path / "f", **option)
    assert ("--port" in str(error.value)) == ("port" in option)
    assert ("--spare" in str(error.value)) == ("spare" in option)


def test_init_says_that_the_folder_is_not_empty(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ba.InputError, match="the folder is not empty"):
        files.init(TINY["fisher"], tmp_path)
    with pytest.raises(ba.InputError, match="this is a file"):
        files.init(TINY["fisher"], tmp_path / "notes.txt")


def test_the_broker_listens_where_its_clients_look_for_it():
    listens = {
        "localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "[::1]", "2001:db8::1": "[::]",
        "10.0.0.1": "0.0.0.0", "server.example.org": "0.0.0.0",
    }  # fmt: skip
    for host, address in listens.items():
        files.demand_host(host)
        assert listens_on(host) == address


def test_the_folder_is_private(shelf):
    folder = shelf / "private"
    files.init(TINY["fisher"], folder, port=0)
    if os.name == "posix":
        assert folder.stat().st_mode & 0o777 == 0o700
        assert all(place.stat().st_mode & 0o777 == 0o700 for place in (folder / "clients").iterdir())


def test_two_concurrent_commands_both_take_effect(shelf, monkeypatch):
    """The second command starts after the first has read the files and before it writes them."""
    folder, load = shelf / "both", files.Federation.load
    files.init(TINY["fisher"], folder, port=0)
    other = threading.Thread(target=files.revoke, args=(folder, "west-1"))

    def slowly(path):
        federation = load(path)
        if not other.ident:
            other.start()
            other.join(1.0)
        return federation

    monkeypatch.setattr(files.Federation, "load", slowly)
    files.drop(folder, "east-1")
    other.join()
    federation = load(folder)
    assert federation.dropped == ["east-1"]
    assert federation.slot_of("west-1") is None


def test_a_half_finished_revocation_is_completed_and_the_new_key_gets_its_own_slot(shelf):
    folder = shelf / "half"
    files.init(TINY["fisher"], folder, port=0)
    Roster.load(folder / files.ROSTER).revoke("west-1").save(folder / files.ROSTER)  # and no further
    (folder / "clients" / "west-1.s3").mkdir()  # left by an add-client that was killed
    place = files.Place.load(files.add_client(folder, "west-1"))
    assert files.Federation.load(folder).slot_of("west-1") == place.slot
    for _ in range(2):
        files.revoke(folder, "west-1")
        federation = files.Federation.load(folder)
        assert federation.slot_of("west-1") is None
        assert place.nkey.public not in (folder / "broker" / "accounts.conf").read_text()
        assert all(seat.revoked for seat in federation.slots.values() if seat and seat.client == "west-1")


def test_a_broker_that_cannot_run_is_an_input_error(tmp_path, monkeypatch):
    (tmp_path / "nats-server").write_text("")
    (tmp_path / "nats-server").chmod(0o644)
    monkeypatch.setenv("NATS_SERVER", str(tmp_path / "nats-server"))
    with pytest.raises(ba.InputError, match="can't be run"):
        binary()


# --- the drivers, without a network ---


@pytest.fixture
def server(made):
    """A server that is not started, and its clock."""
    one = Server(made("fisher"), patience=10.0)
    one.nc, one.ready = types.SimpleNamespace(is_connected=True), True
    yield one
    one.desk.journal.close()


@pytest.mark.parametrize(
    ("name", "patience", "seconds"),
    [("fisher", None, None), ("robust-fed-sel", None, 60.0), ("robust-fed-sel", math.inf, math.inf)],
)
def test_patience_is_limited_where_clients_may_lie_unless_it_is_infinite(made, name, patience, seconds):
    one = Server(made(name), patience=patience)
    left = one.time_left()
    one.desk.journal.close()
    assert one.patience == left == seconds


def test_a_client_with_a_gap_is_asked_less_and_less_often_and_a_dropped_one_never(server):
    server.desk.inbox.held = {"west-1": {1: b"x"}, "east-1": {1: b"x"}}
    server.desk.dropped.append("east-1")
    asked = [now for now in range(3600) if server.publisher.gaps(float(now)) == {"west-1"}]
    assert asked[:4] == [0, 1, 3, 7]
    assert len(asked) < 25
    server.desk.inbox.held = {}
    assert not server.publisher.gaps(5000.0)
    server.desk.inbox.held = {"west-1": {3: b"x"}}
    assert server.publisher.gaps(5001.0) == {"west-1"}


def test_unreadable_orders_are_reported_once_and_a_full_disk_is_not_ignored(server, caplog):
    honest = (server.folder / files.ROSTER).read_bytes()
    try:
        server._orders()
        (server.folder / files.ROSTER).write_text("garbage")
        os.utime(server.folder / files.SETUP, ns=(1, 1))
        for _ in range(4):
            server._orders()
        assert len([r for r in caplog.records if "not a roster" in r.message]) == 1
    finally:
        (server.folder / files.ROSTER).write_bytes(honest)
    server.desk.slots.roster = Roster()
    server.desk.journal._fit = False  # an append failed
    with pytest.raises(ba.InputError, match="takes no more events"):
        server._orders()


def test_a_key_that_is_revoked_while_the_broker_starts_is_revoked_there_too(shelf):
    folder = shelf / "early order"
    files.init(TINY["fisher"], folder, port=0)
    one, reloads = Server(folder), []

    def start():  # it has read its accounts; the operator is quicker than our first look
        files.revoke(folder, "west-1")
        one._orders()
        raise Crash

    one.broker = types.SimpleNamespace(start=start, reload=lambda: reloads.append(1), stop=lambda: None)
    with pytest.raises(Crash):
        asyncio.run(one.run())
    assert reloads == [1]


@pytest.mark.parametrize("silent", [True, False])
def test_shutdown_does_not_wait_for_a_broker_that_is_gone(server, monkeypatch, silent):
    async def answer(subject):
        if silent:
            await asyncio.sleep(3600)
        raise Unreachable("it is gone")

    monkeypatch.setattr(server.streams, "api", answer)
    server.desk.next["west-1"] = 1
    asyncio.run(server.farewell.run(0.0))
    assert server.farewell.unheard == ["west-1"]


@pytest.mark.parametrize("threaded", [False, True])
def test_a_client_that_is_stopped_keeps_all_rewards_that_were_paid(made, threaded):
    place, paid = files.Place.load(made("fisher") / "clients" / "west-1"), Counter()

    def pay(arm, times):
        reached.set()
        time.sleep(0.05)
        paid[arm] += times
        return [1.0] * times

    async def pay_one(arm):
        reached.set()
        await asyncio.sleep(0.001)
        paid[arm] += 1
        return 1.0

    stops = 0
    for delay in (0.0, 0.03, 0.1):
        site, reached = Site.open(place), threading.Event()
        if site.pull is None:  # all rewards are in
            break
        stops += 1
        source = FromPython(pay if threaded else pay_one)
        puller = Puller(site, source, place.setup.scale, coins=False, end="", after=lambda: None)

        async def main(puller=puller, delay=delay, reached=reached):
            working = asyncio.create_task(puller.run())
            await asyncio.to_thread(reached.wait, 60)
            await asyncio.sleep(delay)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

        asyncio.run(main())
        site.journal.close()
        site = Site.open(place)
        assert site.made == paid
        site.journal.close()
    assert stops


@pytest.mark.parametrize("name", ["fed-sel", "fisher", "robust-fed-sel", "pooled"])
def test_a_source_that_ran_out_unreported_resumes_when_it_is_fixed(made, name, caplog):
    place = files.Place.load(made(name) / "clients" / "west-1")

    def work(rewards):
        def pull(arm, times):
            if played[arm] >= rewards:
                raise Exhausted(f"all {rewards} rewards were played")
            times = min(times, rewards - played[arm])
            played[arm] += times
            return [float(arm == "a")] * times

        site = Site.open(place)
        played = Counter(site.made)
        source = FromPython(pull)
        source.finite = True
        puller = Puller(site, source, place.setup.scale, coins=False, end="budget", after=lambda: None)

        async def main():
            working = asyncio.create_task(puller.run())
            while not working.done() and not site.ups:
                await asyncio.sleep(0.01)
            working.cancel()
            return (await asyncio.gather(working, return_exceptions=True))[0]

        try:
            return asyncio.run(main()), site.ups, [event.kind for event in site.journal.events()]
        finally:
            site.journal.close()

    end, ups, kinds = work(3)
    assert "can run out, and this run has no budget" in caplog.text
    assert isinstance(end, SourceFailed)
    assert "all 3 rewards were played" in str(end)
    assert not ups
    assert "stop" not in kinds
    assert work(10**6)[1], "it pulls on, and reports"


# --- after the verdict ---


def summary_envelope(place, content, number=0):
    return Envelope.sign(place.key, place.setup.run, place.client, "summary", number, content).encode()


def test_a_lying_malformed_early_or_second_summary_is_refused_and_changes_no_verdict(made):
    folder = made("fisher")
    folds = Folds(folder, Coins(TINY["fisher"].problem))
    west, east = folds.places["west-1"], folds.places["east-1"]
    folds.desk.take([summary_envelope(west, b"\x80")])  # before the verdict
    assert len(folds.desk.journal) == 0
    while not folds.over:
        folds.turn()
    desk, before = folds.desk, folds.desk.record()
    (own,) = folds.sites["west-1"].summaries
    impossible = Summary((4,), (2.5,), (2.0,)).encode()[0]  # its rewards are 0/1
    desk.take([summary_envelope(east, impossible)])
    desk.take([summary_envelope(east, b"x", number=1), summary_envelope(east, bytes(4000))])
    desk.take([Envelope(west.setup.run, "west-1", "summary", 0, b"x", bytes(64)).encode(), own, own])
    desk.take([summary_envelope(west, b"\x80")])
    record = desk.record()
    assert list(record.summaries) == ["west-1"]
    assert [row.client for row in record.refused_summaries] == ["east-1"]
    assert record.verdict == before.verdict
    assert (record.rounds, record.bits.up, record.bits.down) == (
        before.rounds,
        before.bits.up,
        before.bits.down,
    )
    assert record.bits.after > 0
    assert [evidence["accused"] for evidence in record.evidence] == ["west-1"], "it signed two summaries"
    before.save(folder / files.RECORD)  # the server was stopped right after the verdict
    folds.close()
    assert verify(folder).ok, verify(folder).failures
    record.save(folder / files.RECORD)
    assert verify(folder).ok, verify(folder).failures


def test_a_summary_follows_from_the_rewards_and_survives_a_restart(made):
    folder = made("bet")
    folds = Folds(folder, Coins(TINY["bet"].problem))
    record = folds.go()
    site = folds.sites["west-1"]
    sent = list(site.summaries)
    assert sum(record.summaries["west-1"].count) == site.pulls - sum(map(len, site.kept))
    site.journal.close()
    again = Site.open(folds.places["west-1"])
    assert list(again.summaries) == sent, "a client signs one summary, and sends the same bytes again"
    again.journal.close()
    folds.sites["west-1"] = None
    folds.close()


def test_with_summaries_off_nothing_is_signed_and_nothing_accepted(tmp_path):
    case = scenario("fisher", TWO, n0=8, q=2.0, delta=0.1, summaries=False)
    files.init(case, tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(case.problem))
    record = folds.go()
    assert record.summaries is None
    assert record.bits.after == 0
    assert not folds.sites["west-1"].summaries
    folds.desk.take([summary_envelope(folds.places["west-1"], b"\x80")])
    assert folds.desk.record() == record
    folds.close()
