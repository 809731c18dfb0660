"""The mesh: folds that survive any crash, real processes that are killed, a liar, and unauthorised probes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import time

import grpc
import msgspec
import numpy as np
import pytest

import bestarm as ba
from bestarm.deploy.envelope import Envelope, Evidence
from bestarm.deploy.evidence import is_evidence, save_evidence, verify_evidence
from bestarm.deploy.identity import Roster
from bestarm.deploy.mesh import certificates, files, wire
from bestarm.deploy.mesh import run as peer_run
from bestarm.deploy.mesh.certificates import certify, new_tls_key
from bestarm.deploy.mesh.check import check
from bestarm.deploy.mesh.demo import BEST, Crowd, scenario
from bestarm.deploy.mesh.node import EVIDENCE, MAX_REPORT, MAX_SLOTS, REPORT, Node
from bestarm.deploy.mesh.run import Run
from bestarm.deploy.mesh.verification import verify
from bestarm.deploy.process import STOPS, terminable
from bestarm.deploy.sources import FromPython
from bestarm.errors import InputError
from bestarm.graphs.generators import circulant, complete
from bestarm.graphs.graph import Graph
from bestarm.methods.p2p.messages import Claim, Conclusion
from bestarm.protocol.events import PatienceOver, Pulled, Start, Stop
from bestarm.simulate.identify import prepare
from bestarm.simulate.network import Network
from bestarm.simulate.network_run import NetworkRun
from bestarm.util.journal import Journal
from marking import slow

SECONDS = 120.0  # long enough for any step on a slow machine; reached only if something never happens
SMALL = {"north": {"a": 0.95, "b": 0.05}, "south": {"c": 0.5, "d": 0.02}}


def small(exchange="intervals", clients=4, graph=None):
    problem = ba.Problem.from_rewards(SMALL, clients=clients)
    options = {"exchange": exchange, "byzantine": 1, "delta": 0.1}
    network = Network(graph or complete(2 * clients))
    return ba.Scenario(problem, "p2p", None, options, network=network)


def make(case, folder, **options):
    return files.init(*files.terms_of(case, {}), folder, port=0, **options)


@pytest.fixture
def fast_disk(monkeypatch):
    """Skip fsync: these tests crash processes, not the machine."""
    made = Journal.__init__

    def hasty(self, *args):
        made(self, *args)
        self._db.execute("PRAGMA synchronous=OFF")

    monkeypatch.setattr(Journal, "__init__", hasty)


class Coins:
    """Each peer's arms pay the same rewards in the same order in every run."""

    def __init__(self, problem):
        self.problem, self.drawn = problem, {}

    def rewards(self, i, arm, start, times):
        if (i, arm) not in self.drawn:
            mean = self.problem.rewards[i][arm].p
            self.drawn[i, arm] = (np.random.default_rng([i, arm]).random(200_000) < mean) * 1.0
        return self.drawn[i, arm][start : start + times].tolist()


class Crash(BaseException):
    pass


class Folds:
    """A mesh without a network: messages arrive repeatedly and in any order. Every node may crash."""

    def __init__(self, folder, case, seed=0):
        self.folder, self.case, self.coins = folder, case, Coins(case.problem)
        self.names = case.problem.layout.clients
        self.rng = random.Random(seed)
        self.places = [files.Place.load(files.place_of(folder, case.problem.layout, n)) for n in self.names]
        self.nodes = []

    def open(self):
        self.nodes = []
        for place in self.places:
            self.nodes.append(Node.open(place))
        self.at = {}

    def close(self):
        for node in self.nodes:
            node.journal.close()

    def step(self, i):
        node = self.nodes[i]
        senders = [u for u, n in enumerate(self.nodes) if self.names[u] in node.place.hears]
        self.rng.shuffle(senders)
        for u in senders:
            start = self.at.get((u, i), 0)
            self.at[u, i] = len(self.nodes[u].outgoing)
            node.take([(self.names[u], data) for _, data in self.nodes[u].outgoing[start:]])
        if node.pull is not None:
            pull = node.pull
            times = min(pull.times, 500)
            node.ask(pull, times)
            got = {}
            for arm, share in zip(pull.arms, pull.each, strict=True):
                need = times * share - len(node.kept[arm])
                got[arm] = self.coins.rewards(i, arm, node.made[node.group.arms[arm]], need)
            node.rewards(got)
        elif node.machine.pending:
            node.tick()

    def go(self):
        for _ in range(3000):
            order = list(range(len(self.nodes)))
            self.rng.shuffle(order)
            for i in order:
                self.step(i)
            if all(node.done for node in self.nodes):
                return
        raise AssertionError("no verdict")


def same_as_in_process(folder, case, names):
    """Fold each journal through the in-process driver: the same sums, the same reports in the same order."""
    terms = None
    for name in names:
        place = files.Place.load(files.place_of(folder, case.problem.layout, name))
        terms = place.setup
        with Journal.open(place.folder / files.JOURNAL, write=False) as journal:
            events = list(journal.events())
        script = [json.loads(e.body) for e in events if e.kind == "rewards"]
        script = iter([Pulled(tuple(body["sums"]), body["times"]) for body in script if body["times"]])

        class Script:
            def draw(self, client, pull, times, script=script):
                return next(script)

        _, method, options = prepare(case, None, {})
        run = NetworkRun(case.problem, method, options, 0, Script(), case.network)
        i = run.index[name]
        run.away.clear()
        assert set(run.hears[i]) == set(place.hears)
        sent = []
        run._send = lambda i, send, sent=sent: sent.append(send.payload)
        run._tell(i, Start())
        for event in events:
            match event.kind:
                case "rewards" if json.loads(event.body)["times"]:
                    run._finish(i, json.loads(event.body)["times"])
                case "heard":
                    envelope = Envelope.decode(event.body)
                    run._delivery(envelope.source, i, envelope.content)()
                case "tick":
                    run._tell(i, PatienceOver(1))
                case "stop":
                    run._tell(i, Stop(event.body.decode()))
        said = [Envelope.decode(e.body).content for e in events if e.kind == "said"]
        assert sent == said
        found = verify(place.folder)
        assert found.ok, found.failures
        assert run.peers[i].verdict == found.verdict
        assert run.peers[i].verdict is not None
    assert terms is not None


@pytest.mark.parametrize("exchange", ["means", "intervals"])
def test_every_peer_reaches_the_verdict_of_the_in_process_driver(tmp_path, exchange, fast_disk):
    case = small(exchange)
    make(case, tmp_path / "m")
    folds = Folds(tmp_path / "m", case)
    folds.open()
    folds.go()
    assert [node.verdict.arm for node in folds.nodes] == ["north/a"] * 8
    assert not any(node.evidence or node.machine.faulty or node.refused for node in folds.nodes)
    folds.close()
    same_as_in_process(tmp_path / "m", case, folds.names)


class Unruly(Folds):
    """A node's messages overtake each other and arrive twice; streams sometimes restart."""

    def step(self, i):
        node = self.nodes[i]
        for u, other in enumerate(self.nodes):
            if self.names[u] in node.place.hears:
                fresh = other.outgoing[self.at.get((u, i), 0) :]
                under_way = self.rng.sample(fresh, len(fresh)) + fresh[:2]
                if self.rng.random() < 0.1:
                    under_way = list(other.outgoing)
                node.take([(self.names[u], data) for _, data in under_way])
                self.at[u, i] = len(other.outgoing)
        super().step(i)


@pytest.mark.parametrize("seed", range(3))
def test_reports_that_overtake_each_other_convict_no_honest_peer(tmp_path, seed, fast_disk):
    """A node processes the reports of one source about one arm-set in order, and waits for missing ones."""
    close = {"north": {"a": 0.9, "b": 0.05}, "south": {"c": 0.75, "d": 0.02}}  # causes many reports
    case = dataclasses.replace(small(), problem=ba.Problem.from_rewards(close, clients=4))
    make(case, tmp_path / "m")
    folds = Unruly(tmp_path / "m", case, seed)
    folds.open()
    folds.go()
    assert [node.verdict.arm for node in folds.nodes] == ["north/a"] * 8
    assert not any(node.evidence or node.machine.faulty for node in folds.nodes)
    assert {why for node in folds.nodes for _, why in node.refused} == {"early"}
    for node in folds.nodes:
        turns = {}
        for event in node.journal.events():
            if event.kind == "heard":
                envelope = Envelope.decode(event.body)
                turns.setdefault((envelope.source, envelope.topic), []).append(envelope.sequence)
        assert all(numbers == list(range(len(numbers))) for numbers in turns.values())
    folds.close()


@pytest.mark.parametrize(
    ("exchange", "every"),
    [
        *slow(("means", 15), ("intervals", 23)),
        ("intervals", 61),
        *(pytest.param("intervals", k, marks=pytest.mark.soak) for k in (7, 40)),
    ],
)
def test_a_crash_after_any_append_retracts_nothing_that_was_sent(
    tmp_path, exchange, every, monkeypatch, fast_disk
):
    case = small(exchange)
    make(case, tmp_path / "m")
    honest, made, opened, count = Journal.append_many, Journal.__init__, [], 0

    def fragile(self, events):
        nonlocal count
        done = honest(self, events)
        count += 1
        if count % every == 0:
            raise Crash
        return done

    def known(self, *args):
        opened.append(self)
        made(self, *args)

    monkeypatch.setattr(Journal, "__init__", known)
    monkeypatch.setattr(Journal, "append_many", fragile)
    folds = Folds(tmp_path / "m", case, seed=every)
    crashes, said = 0, {}
    for _ in range(2000):
        try:
            folds.open()
            folds.go()
            break
        except Crash:
            crashes += 1
            for node in folds.nodes:  # sent messages are sent again, byte for byte
                before = said.get(node.place.name, [])
                assert node.own[: len(before)] == before
                said[node.place.name] = list(node.own)
            while opened:
                opened.pop().close()
    else:
        raise AssertionError("it never ended")
    assert crashes > 3
    for node in folds.nodes:
        assert node.verdict.arm == "north/a"
        assert not node.evidence
        assert not node.machine.faulty
        assert node.pulls == node.machine.pulls + sum(map(len, node.kept))
    folds.close()
    same_as_in_process(tmp_path / "m", case, folds.names)


def test_equivocation_is_detected_by_comparing_neighbours_and_reported_to_all(tmp_path, fast_disk):
    """Each neighbour hears one version only; the relayed versions conflict."""
    case = small("means", clients=5, graph=circulant(10, 6))
    make(case, tmp_path / "m")
    folds = Folds(tmp_path / "m", case)
    folds.open()
    liar = folds.nodes[9]
    key, run, name = liar.place.key, liar.place.setup.run, liar.place.name
    stories = [
        Envelope.sign(key, run, name, "south", 0, Claim(1, arm, mean=0.9).encode((2, 2), "means")[0])
        for arm in (0, 1)
    ]
    hearers = [n.name for n in liar.place.heard]
    for k, hearer in enumerate(hearers):
        node = folds.nodes[folds.names.index(hearer)]
        node.take([(name, REPORT + stories[k % 2].encode())])
        assert not node.evidence
    liar.outgoing.clear()
    folds.nodes.pop()
    folds.go()
    assert [node.verdict.arm for node in folds.nodes] == ["north/a"] * 9
    assert [list(node.evidence) for node in folds.nodes] == [[name]] * 9
    roster = Roster.load(tmp_path / "m" / files.ROSTER)
    assert all(node.evidence[name].verify(roster) for node in folds.nodes)
    folds.nodes.append(liar)
    folds.close()


def test_reports_that_are_forged_out_of_order_mislabelled_or_of_another_run_do_not_count(tmp_path):
    case = small("intervals")
    make(case, tmp_path / "m")
    folds = Folds(tmp_path / "m", case)
    folds.open()
    node, liar = folds.nodes[0], folds.nodes[1].place
    other = folds.nodes[2].place
    claim = Claim(0, 0, lower=0.5, upper=0.9).encode((2, 2), "intervals")[0]
    end = Conclusion(1, 0).encode((2, 2), "intervals")[0]

    def report(key=liar.key, run=liar.setup.run, source=liar.name, label="north", number=0, content=claim):
        return REPORT + Envelope.sign(key, run, source, label, number, content).encode()

    good = report()
    same = Envelope.decode(good[1:])
    long = report(content=bytes(MAX_REPORT))
    probes = {
        "malformed": [b"", b"x", good[:-1], good + b"\0", EVIDENCE + b"\0" * 99, b"z" + good[1:], long],
        "signature": [report(source=other.name), report(key=other.key)],
        "source": [report(source="nobody")],
        "run": [report(run=bytes(16))],
        "early": [report(number=1), report(number=2**32 - 1)],
        "label": [report(label="south"), report(label=""), report(label="nowhere"), report(content=end)],
        "own": [report(source=node.place.name)],
        "evidence": [EVIDENCE + Evidence(same, same).encode()],
    }
    before = len(node.journal)
    for reason, messages in probes.items():
        for data in messages:
            node.take([(liar.name, data)])
            assert node.refused.pop((liar.name, reason)) == 1
    assert not node.refused
    assert len(node.journal) == before
    assert not node.slots.accepted
    node.take([(other.name, good)])  # its signature counts, not the relaying node
    assert len(node.journal) == before + 1
    folds.close()


def test_a_peers_record_contains_verdict_and_evidence_and_is_checked_by_the_roster(tmp_path, fast_disk):
    case = small("means", clients=5, graph=circulant(10, 6))
    make(case, tmp_path / "m")
    folds = Folds(tmp_path / "m", case)
    folds.open()
    folds.go()
    node, liar = folds.nodes[0], folds.nodes[int(folds.names.index(folds.nodes[0].place.hears[0]))]
    first = liar.own[0]
    second = Envelope.sign(
        liar.place.key, first.run, first.source, first.topic, first.sequence, first.content + b"x"
    )
    node.take([(first.source, EVIDENCE + Evidence(first, second).encode())])
    folder, name = node.place.folder, node.place.name
    record = node.record()
    record.save(folder / files.RECORD)
    folds.close()
    assert record.verdict.arm == record.peers[name].arm == "north/a"
    assert record.pulls.by_client == {name: node.pulls - sum(map(len, node.kept))}
    assert [each["accused"] for each in record.evidence] == [first.source]
    assert ba.verify(record).ok
    found = verify(folder)
    assert found.ok, found.failures
    assert found.record == record

    def failures_of(**changes):
        msgspec.structs.replace(record, **changes).sealed().save(folder / files.RECORD)
        return " ".join(verify(folder).failures)

    forged = {**record.evidence[0], "second": record.evidence[0]["second"][:-2] + "ff"}
    assert "does not hold" in failures_of(evidence=[forged])
    assert "accuses no client" in failures_of(evidence=[{**forged, "accused": "nobody"}])
    assert failures_of(evidence=[]) == "", "the record may be older than the evidence"
    assert "delta" in failures_of(delta=0.2)
    wrong = msgspec.structs.replace(record.verdict, arm="south/c")
    assert "verdict" in failures_of(verdict=wrong)
    assert "the network is missing" in failures_of(peers={})


def test_reports_of_a_known_liar_are_neither_stored_nor_relayed(tmp_path, fast_disk):
    case = small("intervals")
    make(case, tmp_path / "m")
    folds = Folds(tmp_path / "m", case)
    folds.open()
    node, liar, twofaced = folds.nodes[0], folds.nodes[1].place, folds.nodes[2].place
    claim, other = (Claim(0, 0, lower=low, upper=0.9).encode((2, 2), "intervals")[0] for low in (0.1, 0.2))

    def report(place, number, content):
        return place.name, REPORT + Envelope.sign(
            place.key, place.setup.run, place.name, "north", number, content
        ).encode()  # fmt: skip

    node.take([report(liar, 0, claim)])
    node.take([report(liar, 1, bytes(1500))])  # detected by the machine
    assert list(node.suspects()) == [liar.name]
    node.take([report(twofaced, 0, claim), report(twofaced, 0, other)])  # detected by its signatures
    assert set(node.suspects()) == {liar.name, twofaced.name}
    events, sent = len(node.journal), len(node.outgoing)
    for place, number in ((liar, 2), (twofaced, 1)):
        node.take([report(place, k, bytes([k]) * 1500) for k in range(number, 99)])
    assert (len(node.journal), len(node.outgoing)) == (events, sent)
    node.take([report(liar, 0, other)])  # evidence is still sent
    assert len(node.outgoing) == sent + 1
    assert node.outgoing[-1][1][:1] == EVIDENCE
    assert node.slots.most == MAX_SLOTS
    folds.close()


def test_a_peer_with_a_restored_old_journal_stops_when_neighbours_report_it(tmp_path, fast_disk):
    case, folder = small("means"), tmp_path / "m"
    make(case, folder)
    folds = Folds(folder, case)
    folds.open()
    node = folds.nodes[0]
    folds.close()
    old = node.place.folder / files.JOURNAL
    shutil.copy(old, tmp_path / "old.db")
    folds.open()
    folds.go()
    name = node.place.name
    said, heard = folds.nodes[0].own, folds.nodes[1].outgoing
    assert [("", data) for source, data in heard if source == name]
    folds.nodes[0].take([("north-2", data) for source, data in heard if source == name])  # nothing new
    folds.close()
    for path in old.parent.glob("journal.db*"):
        path.unlink()
    shutil.copy(tmp_path / "old.db", old)
    node = Node.open(node.place)
    forged = dataclasses.replace(said[0], signature=bytes(64))
    node.take([("north-2", REPORT + forged.encode())])
    assert node.refused["north-2", "own"] == 1
    with pytest.raises(InputError, match="older than the reports of this node"):
        node.take([("north-2", data) for source, data in heard if source == name])
    assert not node.own
    node.journal.close()
    line = wire.Line(
        folds.nodes[1].place, next(n for n in folds.nodes[1].place.heard if n.name == name), heard
    )
    line.begin()
    assert line.own[-1][1:] == said[0].encode()


def test_a_peer_without_its_journal_tells_its_neighbours_nothing_and_is_not_accused(
    tmp_path, fast_disk, monkeypatch
):
    """Its neighbours come back only after it has signed other reports than before."""
    case, folder = small("means"), tmp_path / "m"
    make(case, folder)
    folds = Folds(folder, case)
    folds.open()
    folds.go()
    folds.close()
    for path in folds.places[0].folder.glob("journal.db*"):
        path.unlink()
    monkeypatch.setattr(peer_run, "GRACE", 0.0)

    async def main():
        lost = Run(folds.places[0].folder, lambda node: FromPython(lambda arm: float(arm == "a")))
        task = asyncio.create_task(lost.run())
        try:
            await until(lambda: lost.node.own)
            async with running(folder, case, folds.names[1:]) as (runs, _):
                with pytest.raises(InputError, match="older than the reports of this node"):
                    await asyncio.wait_for(task, SECONDS)
                await asyncio.sleep(0.2)
                return [run.node.suspects() for run in runs.values()]
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    assert asyncio.run(main()) == [{}] * 7


def test_a_liar_that_moves_by_tiny_steps_causes_only_logarithmically_many_messages(tmp_path, fast_disk):
    case = small("intervals")
    make(case, tmp_path / "m")
    folds = Folds(tmp_path / "m", case)
    folds.open()
    node = folds.nodes[0]

    def say(i, number, low, high):
        place, content = folds.places[i], Claim(1, 0, lower=low, upper=high).encode((2, 2), "intervals")[0]
        envelope = Envelope.sign(place.key, place.setup.run, place.name, "south", number, content)
        node.take([(place.name, REPORT + envelope.encode())])

    say(4, 0, 0.1, 0.5)
    say(5, 0, 0.1, 0.9)
    seconds, steps = 0.0, 0
    while seconds < 3e6:
        say(6, steps, 0.05, 0.899 - steps * 1e-6)
        steps += 1
        assert node.machine.pending  # each step changes its view
        seconds += node.patience
        node.tick()
    assert not node.machine.faulty
    groups = 2
    most = 8 * (2 * groups + 1) + math.log(1 + seconds / 2) / math.log(9 / 8) + 1
    assert 50 < node.ticks <= most
    assert len(node.own) < MAX_SLOTS / 2
    folds.close()


def test_own_reports_and_evidence_are_sent_before_relayed_ones(tmp_path):
    case = small("means")
    make(case, tmp_path / "m")
    place = files.Place.load(files.place_of(tmp_path / "m", case.problem.layout, "north-1"))
    outbox = [("south-1", b"flood")] * 99 + [("north-1", b"own"), ("", b"evidence")]

    async def first():
        line = wire.Line(place, place.heard[0], outbox)
        line.free = True
        return wire.unpack(await anext(line._messages()))

    words = asyncio.run(first())
    assert words[:2] == [b"own", b"evidence"]
    assert len(words) == 101


def complete_view(found, honest):
    return all(found.get(n, {}).get("done") and found[n]["suspects"] for n in honest)


def campaign(folder, seed, restarts=0):
    """Peers start in random order, with a liar, one that is killed and restarted, and one that is late."""
    rng = random.Random(seed)
    case = scenario()
    names = list(case.problem.layout.clients)
    rng.shuffle(names)
    liar, killed, late, *_ = names
    crowd = Crowd(folder, case, liars=[liar], pause=0.01)
    try:
        for name in names:
            if name != late:
                crowd.start(name)
                time.sleep(0.1 * rng.random())
        assert crowd.wait(lambda found: found.get(killed, {}).get("pulls", 0) > 0), crowd.logs()
        time.sleep(rng.random())
        crowd.kill(killed)
        crowd.start(late)
        crowd.start(killed)
        assert crowd.wait(lambda found: complete_view(found, crowd.honest)), crowd.logs()
        for _ in range(restarts):
            victim = rng.choice(crowd.honest)
            crowd.kill(victim)
            (crowd.place(victim) / files.STATUS).unlink()
            crowd.start(victim)
            assert crowd.wait(lambda found: complete_view(found, crowd.honest)), crowd.logs()
    finally:
        crowd.end()
    for name in crowd.honest:
        # A peer that exits by itself may get the stop signal while Python shuts down.
        assert crowd.processes[name].returncode in (0, -signal.SIGTERM), crowd.logs()
        found = verify(crowd.place(name))
        assert found.ok, found.failures
        assert found.verdict.arm == BEST
        assert set(found.suspects) == {liar}
        assert [e.first.source for e in found.evidence] == [liar]
    same_as_in_process(folder, case, crowd.honest)
    return crowd, liar


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_twelve_processes_with_a_liar_a_kill_and_a_late_start_decide_correctly(tmp_path, seed):
    crowd, liar = campaign(tmp_path / "m", seed, restarts=3 if seed == 0 else 0)
    proof = crowd.place(crowd.honest[0]) / f"evidence-{liar}.json"
    assert verify_evidence(proof) == (liar, True)
    cli = [sys.executable, "-m", "bestarm.cli", "verify", "--json"]
    done = subprocess.run([*cli, str(proof)], capture_output=True, text=True, timeout=SECONDS)
    assert json.loads(done.stdout) == {"ok": True, "accused": liar}
    plain = json.loads(proof.read_text())
    changed = bytearray.fromhex(plain["evidence"])
    changed[-1] ^= 1
    plain["evidence"] = changed.hex()
    (tmp_path / "evidence.json").write_text(json.dumps(plain))
    assert verify_evidence(tmp_path / "evidence.json", proof.parent / files.ROSTER) == (liar, False)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 53))
def test_fifty_more_campaigns(tmp_path, seed):
    campaign(tmp_path / "m", seed, restarts=1)


@pytest.mark.slow
def test_the_demo_decides_correctly(tmp_path):
    cli = [sys.executable, "-m", "bestarm.cli", "mesh", "demo", "--json"]
    done = subprocess.run(cli, capture_output=True, text=True, timeout=4 * SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["ok"]
    assert set(shown["verdicts"].values()) == {BEST}
    assert all(names == ["south-4"] for names in shown["accused"].values())


@pytest.mark.slow
def test_a_peer_stopped_after_its_verdict_exits_cleanly(tmp_path):
    """Its neighbour never starts, so it would serve forever."""
    group = [{"name": "all", "clients": 2, "arms": {"a": 0.9, "b": 0.1}}]
    case = scenario(group=group, network={"generator": "complete", "n": 2}, byzantine=0)
    crowd = Crowd(tmp_path / "m", case)
    try:
        crowd.start("all-1")
        assert crowd.wait(lambda found: found.get("all-1", {}).get("done")), crowd.logs()
        crowd.processes["all-1"].terminate()
        assert crowd.processes["all-1"].wait(SECONDS) == 0, crowd.logs()
    finally:
        crowd.end()
    said = json.loads((crowd.place("all-1") / "peer.log").read_text())
    assert (said["status"], said["arm"]) == ("identified", "all/a")


def pulls_of(case, coins, name):
    i = case.problem.layout.clients.index(name)

    def source(node):
        arms = node.group.arms
        return FromPython(lambda arm, times: coins.rewards(i, arms.index(arm), node.made[arm], times))

    return source


@contextlib.asynccontextmanager
async def running(folder, case, names, **options):
    """Run these peers in this process, on real sockets; all end with the test."""
    coins, layout = Coins(case.problem), case.problem.layout
    runs, tasks = {}, {}
    try:
        for name in names:
            runs[name] = Run(files.place_of(folder, layout, name), pulls_of(case, coins, name), **options)
            tasks[name] = asyncio.create_task(runs[name].run())
        yield runs, tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def until(condition, seconds=SECONDS):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        await asyncio.sleep(0.02)


@pytest.mark.slow
def test_peers_exit_by_themselves_when_all_neighbours_have_the_verdict(tmp_path, fast_disk):
    case = small("means")
    make(case, tmp_path / "m")

    async def main():
        async with running(tmp_path / "m", case, case.problem.layout.clients) as (_, tasks):
            return await asyncio.wait_for(asyncio.gather(*tasks.values()), SECONDS)

    assert [verdict.arm for verdict in asyncio.run(main())] == ["north/a"] * 8

    async def again():  # all receipts have arrived: it waits for no other peer
        async with running(tmp_path / "m", case, ["north-1"]) as (_, tasks):
            return await asyncio.wait_for(tasks["north-1"], SECONDS)

    assert asyncio.run(again()).arm == "north/a"


@pytest.mark.parametrize("spent", [False, True])
def test_an_undecided_peer_says_whom_it_waits_for_and_ends_when_patience_runs_out(tmp_path, spent):
    case = small("means", graph=circulant(8, 5))
    make(case, tmp_path / "m")

    async def main():
        async with running(tmp_path / "m", case, ["north-1"], patience=0.5) as (runs, tasks):
            run = runs["north-1"]
            if spent:
                run.node.stop("spent")
            assert await asyncio.wait_for(tasks["north-1"], SECONDS) is None
            return run

    run = asyncio.run(main())
    assert run.gave_up == ("budget" if spent else "silence")
    status = json.loads((run.place.folder / files.STATUS).read_text())
    assert status["spent"] == spent
    assert status["waits_for"] == list(run.place.hears)
    assert status["unreachable"] == [n.name for n in run.place.heard]
    with Journal.open(run.place.folder / files.JOURNAL, write=False) as journal:
        assert len(journal) > 0
    assert run.node.verdict is None  # it can resume


async def tell(neighbour, tls, messages):
    """Call a peer's Report and return the code of its refusal."""
    channel = wire.channel_to(neighbour, tls)

    async def stream():
        for data in messages:
            yield wire.pack([data])

    try:
        return await channel.stream_unary(f"/{wire.SERVICE}/Report")(stream(), timeout=SECONDS)
    except grpc.RpcError as error:
        return error.code()
    finally:
        await channel.close()


def test_unauthorised_connections_deliver_nothing(tmp_path):
    case = small("means", graph=circulant(8, 5))
    make(case, tmp_path / "m")
    other = tmp_path / "other"
    make(case, other)
    layout = case.problem.layout
    code = grpc.StatusCode

    async def main():
        async with running(tmp_path / "m", case, ["north-1"]) as (runs, tasks):
            run = runs["north-1"]
            await until(lambda: run.gate.server is not None and not run.node.pull)
            node, place = run.node, run.place
            own = files.Neighbour("north-1", place.address, place.tls[1].decode(), True, True)
            hears = {n: files.Place.load(files.place_of(tmp_path / "m", layout, n)) for n in place.hears}
            near = next(iter(hears.values()))
            only_heard = next(n.name for n in place.neighbours if not n.hears)
            deaf = files.Place.load(files.place_of(tmp_path / "m", layout, only_heard))
            group = near.setup.layout.group_of[near.name]
            claim = Claim(group, 0, mean=0.5).encode((2, 2), "means")[0]
            label = near.setup.layout.groups[group].name

            def report(key=near.key, run=near.setup.run):
                return REPORT + Envelope.sign(key, run, near.name, label, 0, claim).encode()

            before = len(node.journal)

            def untouched():
                return len(node.journal) == before and not node.slots.accepted

            # Another key under the right name, vouched for by nobody, or by a neighbour's own certificate.
            stolen = new_tls_key()
            chain = issued_by(near.tls, stolen, near.name)
            strangers = {
                "an unknown authority": files.Place.load(files.place_of(other, layout, near.name)).tls,
                "the right name with another key": (stolen, certify(stolen, near.name)),
                "a certificate that a neighbour issued": (stolen, chain),
            }
            for who, tls in strangers.items():
                assert await tell(own, tls, [report()]) == code.UNAVAILABLE, who
                assert untouched(), who
            naked = grpc.aio.secure_channel(
                own.address, grpc.ssl_channel_credentials(own.certificate.encode()), options=wire.CLIENT
            )
            plain = grpc.aio.insecure_channel(own.address, options=wire.CLIENT)
            for channel in (naked, plain):  # no certificate; no TLS
                with pytest.raises(grpc.RpcError) as refused:
                    await channel.unary_unary(f"/{wire.SERVICE}/Look")(b"", timeout=SECONDS)
                assert refused.value.code() == code.UNAVAILABLE
                await channel.close()
            # Its certificate is known, but this peer does not listen to it.
            assert await tell(own, deaf.tls, [report()]) == code.PERMISSION_DENIED
            assert run.gate.turned_away == 1
            assert await tell(own, near.tls, [REPORT + bytes(wire.MAX_MESSAGE)]) == code.RESOURCE_EXHAUSTED
            old = files.Place.load(files.place_of(other, layout, near.name))
            tasks["replay"] = asyncio.create_task(tell(own, near.tls, [report(run=old.setup.run)]))
            await until(lambda: node.refused[near.name, "run"] == 1)
            assert untouched()
            # A flood is read at a bounded rate, and others are still heard.
            heard, began = node.refused.total(), time.monotonic()
            tasks["flood"] = asyncio.create_task(tell(own, near.tls, [b"junk"] * 10**6))
            friend = next(p for p in hears.values() if p.name != near.name)
            j = friend.setup.layout.group_of[friend.name]
            word = Envelope.sign(
                friend.key, friend.setup.run, friend.name, friend.setup.layout.groups[j].name, 0,
                Claim(j, 0, mean=0.5).encode((2, 2), "means")[0],
            )  # fmt: skip
            await until(lambda: node.refused.total() - heard > wire.BURST)
            tasks["friend"] = asyncio.create_task(tell(own, friend.tls, [REPORT + word.encode()]))
            await until(lambda: list(node.slots.accepted) == [word.slot])
            assert not tasks["flood"].done()
            took = time.monotonic() - began
            assert node.refused.total() - heard <= wire.BURST + wire.RATE * took + 1
            assert not tasks["north-1"].done()
            # The port is not shared, and the journal has one writer.
            with pytest.raises(InputError, match="a peer is running here already"):
                Run(run.place.folder, lambda node: None)
            copy = tmp_path / "copy"
            shutil.copytree(run.place.folder, copy, ignore=shutil.ignore_patterns("journal*"))
            with pytest.raises(InputError, match="can't listen"):
                await Run(copy, pulls_of(case, Coins(case.problem), "north-1")).run()

    asyncio.run(main())


def test_truncated_or_padded_messages_yield_no_extra_words():
    words = [b"", b"one", b"x" * wire.MAX_WORD]
    assert wire.unpack(wire.pack(words)) == words
    assert wire.unpack(wire.pack([b"one", b"two"])[:-1]) == [b"one", b""]
    assert wire.unpack(wire.pack([b"one"]) + b"\0\0") == [b"one", b""]
    assert wire.unpack(wire.pack([b"x" * (wire.MAX_WORD + 1)])) == [b""]
    assert wire.unpack(b"\xff" * 9) == [b""]


def issued_by(tls, key, name):
    """A certificate for `key`, signed with a neighbour's key, followed by that neighbour's certificate."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import NameOID

    issuer = x509.load_pem_x509_certificate(tls[1])
    private = serialization.load_pem_private_key(tls[0], None)
    public = serialization.load_pem_private_key(key, None).public_key()
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(public)
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(certificates.HOST)]), critical=False)
        .sign(private, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM) + tls[1]


def test_a_new_stream_from_a_sender_replaces_its_old_one(tmp_path):
    case = small("means")
    make(case, tmp_path / "m")

    async def main():
        async with running(tmp_path / "m", case, ["north-1"]) as (runs, _):
            run = runs["north-1"]
            await until(lambda: run.gate.server is not None)
            own = files.Neighbour("north-1", run.place.address, run.place.tls[1].decode(), True, True)
            near = files.Place.load(files.place_of(tmp_path / "m", case.problem.layout, "south-1"))
            channel = wire.channel_to(own, near.tls)
            calls = []
            for k in range(1, 6):
                calls.append(channel.stream_unary(f"/{wire.SERVICE}/Report")())
                await calls[-1].write(wire.pack([b"x"]))
                await until(lambda k=k: run.gate.words["south-1"] == k)
            for call in calls[:-1]:
                assert await asyncio.wait_for(call.code(), SECONDS) == grpc.StatusCode.ABORTED
            assert not calls[-1].done()
            assert len(run.gate.live) == 1
            calls[-1].cancel()
            await channel.close()

    asyncio.run(main())


def test_new_streams_and_looks_do_not_bypass_the_rate_limit(tmp_path):
    case = small("means")
    make(case, tmp_path / "m")

    async def main():
        async with running(tmp_path / "m", case, ["north-1"]) as (runs, _):
            run = runs["north-1"]
            await until(lambda: run.gate.server is not None)
            run.gate.rates["south-1"] = wire.Bucket(rate=0.001, burst=2)
            own = files.Neighbour("north-1", run.place.address, run.place.tls[1].decode(), True, True)
            near = files.Place.load(files.place_of(tmp_path / "m", case.problem.layout, "south-1"))
            channel = wire.channel_to(own, near.tls)
            calls = []
            for _ in range(5):
                began = run.gate.called
                calls.append(channel.stream_unary(f"/{wire.SERVICE}/Report")())
                await calls[-1].write(wire.pack([b"x"] * 100))
                await until(lambda began=began: run.gate.called > began and run.gate.words["south-1"])
            with pytest.raises(grpc.RpcError) as refused:
                await channel.unary_unary(f"/{wire.SERVICE}/Look")(b"", timeout=SECONDS)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert run.gate.words["south-1"] == 100
            for call in calls:
                call.cancel()
            await channel.close()

    asyncio.run(main())


def test_creating_a_mesh_again_overwrites_no_key_and_keeps_the_run(tmp_path):
    case, folder = small("means"), tmp_path / "m"
    first = make(case, folder)
    keys = {path: path.read_bytes() for path in folder.rglob("*.key")}
    pems = {path: path.read_bytes() for path in folder.rglob("tls.pem")}
    assert len(keys) == 16
    assert all(path.stat().st_mode & 0o077 == 0 for path in keys)
    away = folder / "nodes" / "south-2"
    away.rename(tmp_path / "south-2")  # delivered to its machine
    again = make(case, folder, addresses={"north-1": "192.0.2.7:7443"})
    assert again.run == first.run
    kept = {path: path.read_bytes() for path in folder.rglob("*.key")}
    assert kept == {path: data for path, data in keys.items() if path.parent != away}
    assert all(path.read_bytes() == pems[path] for path in folder.rglob("tls.pem"))
    place = files.Place.load(folder / "nodes" / "north-2")
    addresses = {n.name: n.address for n in place.neighbours}
    assert addresses["north-1"] == "192.0.2.7:7443"
    moved = files.Place.load(tmp_path / "south-2")
    assert Roster.load(folder / files.ROSTER).current["south-2"].key == moved.key.public
    other = dataclasses.replace(case, options={**case.options, "delta": 0.2})
    assert make(other, folder).run != first.run


def test_check_finds_what_keeps_a_node_from_its_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr("bestarm.deploy.mesh.check.PATIENCE", SECONDS)
    case, folder = small("means"), tmp_path / "m"
    make(case, folder)
    layout = case.problem.layout
    assert check(folder, connect=False) == ([], 8)
    node = files.place_of(folder, layout, "north-1")
    unreachable, _ = check(node)
    assert {t.about for t in unreachable} == set(layout.clients) - {"north-1"}
    assert all("not reachable" in t.what for t in unreachable)
    expired = files.place_of(folder, layout, "north-2")
    good = (expired / "tls.pem").read_bytes()
    (expired / "tls.pem").write_bytes(certify((expired / "tls.key").read_bytes(), "north-2", days=-3))
    found, _ = check(folder, connect=False)
    assert "expired" in next(t.what for t in found if t.node == "north-2" == t.about)
    assert "differs from its own" in next(t.what for t in found if t.node == "north-1")
    (expired / "tls.pem").write_bytes(certify(new_tls_key(), "north-2"))
    found, _ = check(expired, connect=False)
    assert [t.what for t in found] == ["the certificate does not belong to the key next to it"]
    (expired / "tls.pem").write_bytes(good)

    async def ahead(self, data, context):
        facts = {"name": "north-2", "run": self.place.setup.run.hex(), "time": time.time() + 60}
        return json.dumps(facts).encode()

    async def main():
        async with running(folder, case, ["north-2", "north-3"]) as (runs, _):
            await until(lambda: all(run.gate.server is not None for run in runs.values()))
            return {t.about: t.what for t in (await asyncio.to_thread(check, node))[0]}

    fine = asyncio.run(main())
    assert set(fine) == set(layout.clients) - {"north-1", "north-2", "north-3"}
    monkeypatch.setattr(wire.Gate, "_look", ahead)
    assert "ahead" in asyncio.run(main())["north-2"]


@pytest.mark.slow
def test_the_command_line_creates_a_mesh_and_refuses_what_it_cannot_tolerate(tmp_path):
    graph = tmp_path / "graph.csv"
    edges = [f"{u},{v}" for u in range(8) for v in range(8) if u != v]
    graph.write_text("\n".join(edges) + "\n")
    cli = [sys.executable, "-m", "bestarm.cli"]

    def run(*args):
        done = subprocess.run([*cli, *map(str, args)], capture_output=True, text=True, timeout=SECONDS)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout

    groups = ["--groups", "A=0,1,2,3;B=4,5,6,7", "--arms", "A=x,y;B=z"]
    code, text = run("mesh", "init", graph, *groups, "--byzantine", 1, "--out", tmp_path / "m", "--json")
    assert code == 0
    assert json.loads(text)["nodes"] == 8
    assert run("mesh", "init", graph, *groups, "--byzantine", 2, "--out", tmp_path / "n", "--json")[0] == 4
    assert not (tmp_path / "n").exists()
    assert run("mesh", "init", graph, *groups[:2], "--out", tmp_path / "n")[0] == 2
    assert run("mesh", "check", tmp_path / "m", "--offline")[0] == 0
    assert run("mesh", "check", tmp_path / "m" / "nodes" / "node-0", "--json")[0] == 5
    assert run("peer", tmp_path / "m" / "nodes" / "node-0")[0] == 2
    assert run("peer", tmp_path / "m", "--csv", graph)[0] == 2


def test_an_auditor_needs_no_private_key_and_brings_a_roster(tmp_path, fast_disk):
    case, folder = small("means"), tmp_path / "m"
    make(case, folder)
    folds = Folds(folder, case)
    folds.open()
    folds.go()
    folds.close()
    place, roster = folds.places[0].folder, folder / files.ROSTER
    (place / "peer.key").unlink()
    assert verify(place).ok
    assert verify(place, roster).ok
    for gone in ("north-1", "south-1"):
        Roster.load(roster).revoke(gone).save(tmp_path / "other.json")
        assert not verify(place, tmp_path / "other.json").ok
    plain = json.loads((place / files.PEER).read_text())
    for other in ({"name": "north-2"}, {"neighbours": plain["neighbours"][1:]}):
        (place / files.PEER).write_text(json.dumps({**plain, **other}))
        assert "another run or node" in verify(place).failures[0]


def test_a_new_run_keeps_the_keys_and_refuses_the_old_journals(tmp_path):
    case, folder = small("means"), tmp_path / "m"
    first = make(case, folder)
    keys = {path: path.read_bytes() for path in folder.rglob("*.key")}
    place = folder / "nodes" / "north-1"
    Node.open(files.Place.load(place)).journal.close()
    assert make(case, folder, new_run=True).run != first.run
    assert {path: path.read_bytes() for path in folder.rglob("*.key")} == keys
    with pytest.raises(InputError, match="another run"):
        Node.open(files.Place.load(place))


def test_invalid_readable_by_others_and_missing_keys_are_reported(tmp_path):
    case, folder = small("means"), tmp_path / "m"
    make(case, folder)
    key = folder / "nodes" / "north-1" / "tls.key"
    key.chmod(0o644)
    assert "other users can read" in check(folder, connect=False)[0][0].what
    key.chmod(0o600)
    key.write_text("junk")
    assert "not a private key" in check(folder, connect=False)[0][0].what
    with pytest.raises(InputError, match="not a private key"):
        make(case, folder)
    for path in folder.rglob("peer.key"):
        path.unlink()
    with pytest.raises(InputError, match="no node can be checked here"):
        check(folder, connect=False)


def test_every_node_has_a_folder_of_its_own():
    names = ["a", "ü", "node-1", "node+1", "x" * 99]
    assert len({files.folder_name(name, k) for k, name in enumerate(names)}) == len(names)


def test_evidence_is_identified_by_its_content(tmp_path):
    case = small("means")
    make(case, tmp_path / "m")
    place = files.Place.load(tmp_path / "m" / "nodes" / "north-1")
    both = [Envelope.sign(place.key, place.setup.run, place.name, "", 0, text) for text in (b"1", b"2")]
    save_evidence(tmp_path / "proof.json", Evidence(*both))
    assert is_evidence(tmp_path / "proof.json")
    assert not is_evidence(place.folder / files.PEER)
    assert not is_evidence(tmp_path / "nothing")


def test_sigterm_becomes_an_interrupt_so_that_children_end_too():
    before = {number: signal.getsignal(number) for number in STOPS}
    with terminable():
        pass
    assert {number: signal.getsignal(number) for number in STOPS} == before
    try:
        with pytest.raises(KeyboardInterrupt), terminable():
            signal.raise_signal(signal.SIGTERM)
        assert [signal.getsignal(number) for number in STOPS] == 2 * [signal.SIG_IGN], "one is enough"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_nodes_of_a_bare_graph_have_names():
    graph = Graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    terms, named = files.terms_for(graph, {"A": [0, 2], "B": [1, 3]}, {"A": ["x"], "B": ["y"]}, {})
    assert terms.layout.clients == ("node-0", "node-2", "node-1", "node-3")
    assert named.names == ("node-0", "node-1", "node-2", "node-3")
    with pytest.raises(InputError, match="arms"):
        files.terms_for(graph, {"A": [0, 2], "B": [1, 3]}, {"A": ["x"]}, {})
