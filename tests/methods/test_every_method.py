"""One suite that every registered method passes, and the method of examples/uniform_method.py with them.

What a method is asked to do follows from its ``Method``: whether it has a server, tolerates liars, and
supports groups of several clients. No method is named here. A new method is tested by being registered.
"""

from __future__ import annotations

import dataclasses
import html
import re

import msgspec
import pytest
from examples.uniform_method import METHOD as UNIFORM

import bestarm as ba
from bestarm.deploy.federation import files as federation_files
from bestarm.errors import InputError
from bestarm.graphs.generators import complete
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.simulate import run_journal
from bestarm.simulate.lying_client import ATTACKS
from bestarm.util.journal import Journal
from federations import Coins, Folds, comparable, in_process
from marking import slow_but

EASY = {"west": {"a": 0.95, "b": 0.05}, "east": {"c": 0.6, "d": 0.1}, "mid": {"e": 0.4}}
BEST = "west/a"
SHAPES = {  # clients per group, and liars among them
    "single clients": (1, 0),
    "groups of honest clients": (3, 0),
    "groups with a liar": (4, 1),
}
CREW = {"west": {"a": 0.95, "b": 0.05, "c": 0.6}}  # for methods whose clients must have the same options
SHARED = {site: {"a": 0.95 - k / 10, "b": 0.15, "c": 0.3} for k, site in enumerate(("west", "east", "mid"))}
QUESTIONS = {  # of sites that share their options: the keys, and the right answer
    "overall": ({"weights": {"west": 2, "east": 1, "mid": 1}}, "a"),
    "each": ({}, "west: a, east: a, mid: a"),
    "control": ({"control": "b"}, "a: better, c: better"),
}
TRIALS = 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem that a method supports, and its options."""

    method: ba.Method
    problem: ba.Problem
    options: dict[str, int]
    network: ba.Network | None = None
    best: str = BEST

    @property
    def keys(self):
        """Arguments of ``identify`` and ``study``."""
        network = {"network": self.network} if self.network else {}
        return {"method": self.method.name, "delta": 0.1, **self.options, **network}

    @property
    def scenario(self):
        options = {"delta": 0.1, **self.options}
        return ba.Scenario(self.problem, self.method.name, None, options, network=self.network)

    def run(self, **more):
        return ba.identify(self.problem, **{"seed": 5, **self.keys, **more})


def cases():
    rivals = [method.name for method in METHODS.values() if method.rival]
    for method in (*METHODS.values(), UNIFORM):
        marks = [pytest.mark.slow] if method.name in rivals[1:] else []  # they share their machines
        for shape, (clients, liars) in SHAPES.items():
            options = {"byzantine": liars} if liars else {}
            problems = [ba.Problem.from_rewards(rows, clients=clients) for rows in (EASY, CREW)]
            if (problem := supported(method, problems, options)) is None:
                continue
            network = ba.Network(complete(len(problem.layout.clients))) if method.peers else None
            yield pytest.param(
                Case(method, problem, options, network), id=f"{method.name}, {shape}", marks=marks
            )
        for kind, (keys, best) in QUESTIONS.items():
            if kind in method.questions:
                own = {} if kind == "overall" else keys  # equal weights, for methods that have no others
                problems = [
                    ba.Problem.from_rewards(SHARED, clients=[1, 2, 1]).asking(kind, **keys),
                    ba.Problem.from_rewards(SHARED).asking(kind, **own),
                ]
                problem = supported(method, problems, {})
                yield pytest.param(
                    Case(method, problem, {}, best=best), id=f"{method.name}, {kind}", marks=marks
                )


def supported(method, problems, options):
    """The first of these problems that the method does not refuse; None if it refuses all."""
    for problem in problems:
        try:
            method.refuse(problem.layout, make(method.options, options))
        except InputError:
            continue
        return problem
    return None


CASES = list(cases())
every_case = pytest.mark.parametrize("case", CASES)


def with_server(wanted):
    return pytest.mark.parametrize("case", [p for p in CASES if p.values[0].method.peers is not wanted])


@pytest.fixture(autouse=True, scope="module")
def _uniform_is_registered():
    ba.register_method(UNIFORM)
    yield
    del METHODS[UNIFORM.name]


@pytest.fixture(scope="module")
def records():
    """Each case's record; the case is run once."""
    found = {}

    def record(case):
        key = (case.method.name, case.problem.layout, *case.options.items())
        if key not in found:
            found[key] = case.run()
        return found[key]

    return record


def test_every_method_serves_some_case():
    assert {p.values[0].method.name for p in CASES} == {*METHODS, UNIFORM.name}


@every_case
def test_a_seeded_run_names_the_best_arm_and_is_reproducible(case, records):
    record = records(case)
    assert record.verdict.summary == case.best
    assert record.good_event is not False
    assert case.run() == record


@every_case
def test_a_record_loads_unchanged_and_has_a_short_text(case, records, tmp_path):
    record = records(case)
    assert ba.Record.load(record.save(tmp_path / "record.json")).to_dict() == record.to_dict()
    assert case.best in str(record)
    assert "\n" not in str(record)
    assert len(str(record)) < 200


@every_case
def test_a_record_verifies_and_one_with_another_winner_does_not(case, records):
    record = records(case)
    assert ba.verify(record).failures == ()
    assert ba.verify(record, replay=True).failures == ()
    verdict = msgspec.structs.replace(record.verdict, arm="east/c", answers=record.verdict.answers[:-1])
    assert not ba.verify(msgspec.structs.replace(record, verdict=verdict).sealed())
    assert ba.verify(record.public()).failures == ()


@every_case
def test_each_trial_of_a_study_agrees_with_the_machines(case):
    trials = ba.study(case.problem, trials=TRIALS, seed=3, workers=1, **case.keys)
    for i in range(TRIALS):
        record = trials.record(i)
        assert ba.verify(record).ok
        said = {
            "status": record.verdict.status,
            "arm": record.verdict.summary,
            "correct": record.verdict.summary == case.best,
            "good_event": record.good_event,
            "rounds": record.rounds,
            "time": record.time,
            "pulls_total": record.pulls.total,
            "pulls_phase1": record.pulls.phase1,
            "pulls_phase2": record.pulls.phase2,
            "pulls_max": record.pulls.max_per_client,
            "bits_up": record.bits.up,
            "bits_down": record.bits.down,
            "reason": record.verdict.reason,
        }
        assert {name: trials[name][i] for name in said} == said
    (row,) = trials.summary()
    assert row["trials"] == TRIALS


@every_case
def test_a_run_that_was_killed_resumes_from_its_journal_to_the_same_record(case, records, tmp_path):
    record = case.run(journal=tmp_path / "whole.db")
    assert record == records(case)
    with Journal.open(tmp_path / "whole.db", write=False) as journal:
        header, events = journal.header, [(event.kind, event.body) for event in journal.events()]
    for n in {0, 1, len(events) // 2, len(events) - 1}:
        path = tmp_path / f"{n}.db"
        with Journal.create(path, run_journal.KIND, header) as journal:
            journal.append_many(events[:n])
        assert case.run(seed=None, journal=path) == record


@with_server(True)
def test_a_federation_produces_the_record_of_the_simulator(case, tmp_path):
    federation_files.init(case.scenario, tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(case.problem))
    try:
        record = folds.go()
    finally:
        folds.close()
    assert comparable(record) == comparable(in_process(case.scenario, Coins(case.problem)))
    assert record.time is None
    assert ba.verify(record).failures == ()


@with_server(False)
def test_the_nodes_of_a_mesh_reach_the_same_verdict(case, tmp_path):
    pytest.importorskip("grpc")
    from bestarm.deploy.mesh import files
    from bestarm.deploy.mesh.node import Node

    files.init(*files.terms_of(case.scenario, {}), tmp_path / "m", port=0)
    names, coins = case.problem.layout.clients, Coins(case.problem)
    nodes = [
        Node.open(files.Place.load(files.place_of(tmp_path / "m", case.problem.layout, n))) for n in names
    ]
    heard = dict.fromkeys(((u, v) for u in range(len(names)) for v in range(len(names))), 0)
    for _ in range(500):
        for v, node in enumerate(nodes):
            for u, other in enumerate(nodes):
                if u != v:
                    node.take([(names[u], data) for _, data in other.outgoing[heard[u, v] :]])
                    heard[u, v] = len(other.outgoing)
            if node.pull is not None:
                pull, times = node.pull, min(node.pull.times, 500)
                node.ask(pull, times)
                arms = dict(zip(pull.arms, pull.each, strict=True))
                made = {a: node.made[node.group.arms[a]] for a in arms}
                need = {a: times * share - len(node.kept[a]) for a, share in arms.items()}
                node.rewards({a: coins.rewards(v, a, made[a], need[a]) for a in arms})
            elif node.machine.pending:
                node.tick()
        if all(node.done for node in nodes):
            break
    for node in nodes:
        node.journal.close()
    assert [node.verdict and node.verdict.arm for node in nodes] == [BEST] * len(nodes)


@every_case
def test_a_report_names_the_method_and_the_answer(case, records, tmp_path):
    text = records(case).report(tmp_path / "report.html", quick=True).read_text("utf-8")
    assert html.escape(case.method.summary) in text
    named = [answer.option for answer in records(case).verdict.answers] or [BEST]
    assert all(name in text for name in named)


@every_case
def test_a_record_and_a_study_can_be_drawn(case, records):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = records(case).plot()
    assert axes.get_xlabel()
    keys = {**case.keys, "vary": {"delta": [0.1, 0.2]}}
    del keys["delta"]
    axes = ba.study(case.problem, trials=2, seed=3, workers=1, **keys).plot()
    assert axes.get_xlabel() == "δ"
    assert len(axes.lines[0].get_xdata()) == 2
    pyplot.close("all")


@every_case
def test_a_plan_forecasts_what_runs_cost(case):
    keys = {"methods": [case.method.name], "trials": 4, "seed": 2, "quick": True, "workers": 1}
    found = ba.plan(case.scenario, **keys)
    assert not found.left_out
    for row in found.methods:
        assert row.method == case.method.name
        assert row.cost.decided == 1.0
        assert row.cost.pulls.low > 0


@pytest.mark.parametrize("attack", slow_but(["silent", "extreme", "random-bytes"], ba.attacks()))
@pytest.mark.parametrize("case", [p for p in CASES if p.values[0].options.get("byzantine")])
def test_no_attack_by_tolerated_liars_makes_a_wrong_arm_win(case, attack):
    groups = list(EASY)[:1] if case.method.peers else EASY  # a peer hears all of a complete network
    liars = [ba.Adversary(group, attack, case.options["byzantine"]) for group in groups]
    options = make(case.method.options, case.options)
    method = case.method.variant("anywhere", True, options)
    obstacle = ATTACKS[attack].obstacle(method, options)
    if obstacle:
        with pytest.raises(InputError, match=re.escape(obstacle)):
            case.run(adversaries=liars)
        return
    record = case.run(adversaries=liars)
    assert record.verdict.arm in (BEST, None)
    assert ba.verify(record).failures == ()


@every_case
def test_liars_and_epsilon_are_refused_where_a_method_does_not_declare_them(case):
    if not case.method.liars:
        with pytest.raises(InputError):
            case.run(byzantine=1)
    if not case.method.epsilon:
        with pytest.raises(InputError):
            case.run(epsilon=0.1)


@pytest.mark.parametrize("method", [pytest.param(m, id=m.name) for m in (*METHODS.values(), UNIFORM)])
def test_every_option_has_a_help_text_and_refuses_invalid_values(method):
    problem = ba.Problem.from_rewards(EASY)
    for field in dataclasses.fields(method.options):
        assert field.metadata["help"]
        with pytest.raises(InputError, match=field.name):
            ba.identify(problem, method.name, **{field.name: object()})
    with pytest.raises(InputError, match="unknown"):
        ba.identify(problem, method.name, no_such_option=1)
