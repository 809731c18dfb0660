"""Peers in process: Theorem 3 and beyond its premise, liars, weak networks, delays, crashes, the command."""

from __future__ import annotations

import json

import msgspec
import pytest
from typer.testing import CliRunner

import bestarm as ba
import marking
from bestarm import Adversary, InputError, Network, Problem
from bestarm.cli import app
from bestarm.graphs.generators import circulant, clique_tree, complete, figure3, geometric, preferential
from bestarm.graphs.graph import Graph
from bestarm.graphs.robustness import tolerance, weak_points
from bestarm.simulate.lying_client import ATTACKS
from marking import slow

# σ ≤ 1 with the best group: the gaps within the sets are at most those between them.
HETEROGENEOUS = [[0.95, 0.7], [0.6, 0.4], [0.45, 0.2]]
FAMILIES = {
    "complete": lambda f: complete(9 * f + 3),
    "circulant": lambda f: circulant(9 * f + 6, 3 * f + 1),
    "geometric": lambda f: geometric(24, 0.7, 0),
    "preferential": lambda f: preferential(36, 3 * f + 4, 0),
    "tree of cliques": lambda f: clique_tree(3, 3 * f + 3, 3 * f + 3),
}


def peers(graph, f, seed, means=HETEROGENEOUS, **keys):
    problem = Problem.bernoulli(means, clients=graph.n // len(means))
    of_network = ("delay", "placement", "attack", "loss", "start", "crashes")
    network = {key: keys.pop(key) for key in of_network if key in keys}
    return ba.identify(
        problem, "p2p", network=Network(graph, **network), delta=0.1, seed=seed, byzantine=f, **keys
    )


@pytest.mark.parametrize("placement", ["worst", *slow("random")])
@pytest.mark.parametrize("f", [1, *slow(2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_theorem_3_on_five_families(family, f, placement):
    """On the good event all honest peers name the best arm, in every trial, whatever f-local liars do."""
    graph = FAMILIES[family](f)
    attacks = ["extreme", "equivocate", "forge", "silent"]
    for seed, attack in enumerate(attacks):
        record = peers(graph, f, seed, delay=30, placement=placement, attack=attack)
        liars = [name for adversary in record.adversaries for name in adversary["clients"]]
        assert liars
        assert record.good_event
        assert {verdict.arm for verdict in record.peers.values()} == {"g1/a1"}
        assert len(record.peers) == graph.n - len(liars)


def short_of_one_edge(f, times):
    """A network in which one client hears one in-neighbour too few of the first group."""
    r = times * f + 1
    size = r + 1
    edges = [(u, v) for u in range(size) for v in range(size, 2 * size)]
    edges += [(v, u) for u, v in edges]
    last = 2 * size - 1
    edges = [(u, v) for u, v in edges if v != last or u < r - 1]
    return Graph.from_edges(2 * size, edges), (r - 1, last)


@pytest.mark.parametrize(("exchange", "times"), [("means", 3), ("intervals", 2)])
@pytest.mark.parametrize("f", [1, 2])
def test_with_one_edge_too_few_a_placed_adversary_leaves_a_peer_undecided(f, exchange, times):
    """The run is refused with a remedy. If it is forced, f silent liars keep one peer undecided."""
    graph, edge = short_of_one_edge(f, times)
    problem = Problem.bernoulli([[0.95, 0.7], [0.6, 0.4]], clients=graph.n // 2)
    groups = [range(graph.n // 2), range(graph.n // 2, graph.n)]
    assert tolerance(graph, groups, exchange) == f - 1
    liars = [Adversary("g1", "silent", f)]
    keys = {"delta": 0.1, "seed": 1, "byzantine": f, "exchange": exchange, "adversaries": liars}
    with pytest.raises(InputError, match="use --force") as refused:
        ba.identify(problem, "p2p", network=graph, **keys)
    assert "Add 1 edge (" in str(refused.value)
    record = ba.identify(problem, "p2p", network=graph, force=True, **keys)
    assert "fewer than byzantine" in record.network["broken"]
    assert record.good_event
    unlucky = problem.layout.clients[edge[1]]
    assert record.peers[unlucky].status == "undecided"
    whole = graph.with_edges(weak_points(graph, groups, exchange))
    repaired = ba.identify(problem, "p2p", network=whole, **keys)
    assert {verdict.arm for verdict in repaired.peers.values()} == {"g1/a1"}


@pytest.mark.slow
def test_intervals_are_right_where_the_paper_s_premise_fails():
    """σ = 30: peers of Algorithm 4 answer wrongly or disagree; with the interval exchange they do not."""
    means = [[0.9, 0.3], [0.88, 0.1], [0.4, 0.2]]
    wrong = 0
    for seed in range(6):
        literal = peers(complete(12), 1, seed, means)
        wrong += any(verdict.arm != "g1/a1" for verdict in literal.peers.values())
        assert literal.good_event
        record = peers(complete(12), 1, seed, means, exchange="intervals", delay=20)
        assert record.good_event
        assert {verdict.arm for verdict in record.peers.values()} == {"g1/a1"}
    assert wrong >= 1


@pytest.mark.parametrize("exchange", ["intervals", *slow("means")])
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_no_attack_by_f_local_liars_changes_an_honest_answer(attack, exchange):
    size = 12 if exchange == "means" else 9
    if (attack, exchange) == ("tiny-count", "means"):
        with pytest.raises(InputError, match="its messages contain no count"):
            peers(complete(size), 1, 0, placement="random", attack=attack, exchange=exchange)
        return
    for seed in range(1 if marking.fast else 3):
        record = peers(
            complete(size), 1, seed, delay=20, placement="random", attack=attack, exchange=exchange
        )
        assert record.good_event
        assert {verdict.arm for verdict in record.peers.values()} == {"g1/a1"}
        caught = {fault["client"] for fault in record.proven_faulty}
        assert caught <= {name for adversary in record.adversaries for name in adversary["clients"]}
    assert ba.verify(record, replay=True).failures == ()


@pytest.mark.parametrize("exchange", ["means", *slow("intervals")])
def test_delays_losses_crashes_and_any_start_change_no_answer(exchange):
    for seed in range(4):
        record = peers(
            circulant(15, 8, undirected=True), 1, seed, delay=500, loss=0.3, start=5000, crashes=5,
            exchange=exchange, placement="random",
        )  # fmt: skip
        assert record.good_event
        assert {verdict.arm for verdict in record.peers.values()} == {"g1/a1"}
        assert ba.verify(record, replay=True).failures == ()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_and_a_study_any_number_of_workers():
    problem = Problem.bernoulli(HETEROGENEOUS, clients=4)
    network = Network(complete(12), delay=30, loss=0.1)
    keys = {"network": network, "byzantine": 1, "trials": 20, "seed": 3, "delta": 0.1}
    one, two = (ba.study(problem, "p2p", workers=w, **keys) for w in (1, 2))
    for name in one.columns:
        assert one[name].tolist() == two[name].tolist()
    assert one["correct"].all()
    record = one.record(3)
    assert record.pulls.total == one["pulls_total"][3]


def test_messages_of_the_interval_exchange_stay_few():
    """A width is relayed at most once per halving, elimination and tick, so bits grow logarithmically."""
    bits = []
    for gap in (0.1, 0.01):
        record = peers(complete(9), 1, 3, [[0.9, 0.1], [0.9 - gap, 0.1], [0.8, 0.1]], exchange="intervals")
        assert record.verdict.arm == "g1/a1"
        bits.append((record.bits.up, record.pulls.total))
    assert bits[1][1] > 20 * bits[0][1]  # this many times the pulls
    assert bits[1][0] < 4 * bits[0][0]


def test_a_budget_or_an_isolated_peer_ends_undecided():
    record = peers(
        complete(9), 1, 1, [[0.9, 0.1], [0.89, 0.1], [0.2, 0.1]], exchange="intervals", budget=3000
    )
    assert record.verdict.status == "undecided"
    assert record.pulls.max_per_client <= 3000
    lonely = Graph.from_edges(6, [(0, 1), (1, 0)])
    problem = Problem.bernoulli([[0.9, 0.1], [0.5, 0.1]], clients=3)
    assert record.verdict.reason == "budget"
    record = ba.identify(problem, "p2p", network=lonely, seed=1, force=True)
    assert (record.verdict.status, record.verdict.reason) == ("undecided", "silence")


@pytest.mark.slow
def test_a_thousand_peers():
    problem = Problem.bernoulli([[0.95, 0.05], [0.6, 0.1], [0.5, 0.1], [0.3, 0.1]], clients=250)
    graph = circulant(1000, 10)
    record = ba.identify(problem, "p2p", network=Network(graph, delay=10), byzantine=2, seed=1, delta=0.1)
    assert {verdict.arm for verdict in record.peers.values()} == {"g1/a1"}
    assert len(record.peers) == 1000


def test_every_peer_s_verdict_is_in_the_record_and_forgeries_are_found():
    record = peers(complete(12), 1, 5, placement="random", attack="negative-count")
    assert len(record.peers) == 11
    plain = record.to_dict()
    import msgspec

    for change in ("peer", "verdict", "fault", "no fault", "arm", "network", "interrupted"):
        forged = json.loads(json.dumps(plain))
        if change == "peer":
            next(iter(forged["peers"].values()))["arm"] = "g2/a1"
        elif change == "verdict":
            forged["verdict"]["arm"] = "g2/a1"
        elif change == "fault":
            forged["proven_faulty"][0]["reason"] = "something else"
        elif change == "no fault":
            forged["proven_faulty"] = []
        elif change == "arm":
            forged["verdict"]["arm"] = "g2/a2"
            for verdict in forged["peers"].values():
                verdict["arm"] = "g2/a2"
        elif change == "network":
            forged["network"] = None
        else:
            forged["interrupted"] = True
        assert not ba.verify(msgspec.convert(forged, ba.Record).sealed()).ok, change


SCENARIO = """
method = "p2p"
delta = 0.1
byzantine = 1
seed = 3
exchange = "intervals"

[[group]]
name = "north"
clients = 4
arms = { a = 0.9, b = 0.2 }

[[group]]
name = "south"
clients = 4
arms = { c = 0.6, d = 0.1 }

[network]
generator = "circulant"
n = 8
k = 5
delay = 20
loss = 0.1
placement = "random"
attack = "extreme"
"""


def invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_a_scenario_with_a_network_runs(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    shown = invoke("run", str(path))
    assert shown.exit_code == 0
    assert "honest peers: north/a" in shown.output
    found = json.loads(invoke("run", str(path), "--json").output)
    assert {verdict["arm"] for verdict in found["peers"].values()} == {"north/a"}
    literal = invoke("run", str(path), "--exchange", "means")
    assert "σ ≤ 1" in " ".join(literal.output.split())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("k = 5", "k = 2", "use --force"),
        ('generator = "circulant"', 'generator = "circular"', "circulant"),
        ("n = 8", "n = 9", "one node per client"),
        ("loss = 0.1", "loss = 1.5", "a probability below 1"),
        ("delay = 20", "delays = 20", "delay"),
        ('generator = "circulant"', 'file = "no.csv"', "unknown"),
        ('attack = "extreme"', 'attack = "extrem"', "extreme"),
        ('generator = "circulant"\nn = 8\nk = 5', 'edges = [["north-1", "nobody"]]', "two names of clients"),
        ('generator = "circulant"\nn = 8\nk = 5\n', "", "one of: file, edges, generator"),
        ("[network]", "[[network]]", "is not a table"),
    ],
)
def test_bad_networks_are_refused_before_the_run(tmp_path, before, after, message):
    assert before in SCENARIO
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace(before, after))
    with pytest.raises(InputError, match=message):
        ba.identify(ba.load(path))


def test_without_a_network_peers_are_refused():
    with pytest.raises(InputError, match="needs a network"):
        ba.identify(Problem.bernoulli(HETEROGENEOUS, clients=4), "p2p")


def test_force_runs_a_refused_network_anyway(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("k = 5", "k = 2"))
    with pytest.raises(InputError, match="--force"):
        app(["run", str(path)], standalone_mode=False)
    assert app(["run", str(path), "--force", "--byzantine", "0"], standalone_mode=False) == 0


def figure(tmp_path):
    graph, groups = figure3()
    path = tmp_path / "figure3.csv"
    path.write_text("from,to\n" + "\n".join(f"{graph.names[u]},{graph.names[v]}" for u, v in graph.edges))
    text = ";".join(f"{name}={','.join(sorted(nodes))}" for name, nodes in groups.items())
    return str(path), text


def test_the_network_command_says_what_figure_3_says(tmp_path):
    """Client 5 is the only source for its group and the only link of the others: no liar is tolerated."""
    path, groups = figure(tmp_path)
    picture = tmp_path / "n.svg"
    shown = invoke("network", path, "--groups", groups, "--plot", str(picture))
    assert shown.exit_code == 0
    assert "tolerates 0 liars" in " ".join(shown.output.split())
    assert picture.read_text().lstrip().startswith("<?xml")
    facts = json.loads(invoke("network", path, "--groups", groups, "--json").output)
    assert facts["tolerance"] == {"means": 0, "intervals": 0}
    assert facts["nodes"] == 9
    assert facts["robustness"]["C2"] == 1
    assert app(["network", path, "--groups", groups, "--byzantine", "1"], standalone_mode=False) == 4


def test_the_network_command_names_edges_that_help(tmp_path):
    graph = circulant(10, 3)
    path = tmp_path / "ring.txt"
    path.write_text("\n".join(f"{u} {v}" for u, v in graph.edges))
    facts = json.loads(invoke("network", str(path), "--groups", "A=0,1,2,3,4;B=5,6,7,8,9", "--json").output)
    assert facts["tolerance"]["means"] == 0
    repaired = graph.with_edges([tuple(edge) for edge in facts["add"]])
    assert tolerance(repaired, [range(5), range(5, 10)]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which nodes belong together"),
        (["--groups", "A"], "can't be read"),
        (["--groups", "A=1,99"], "99"),
        (["--groups", "A=1;A=2"], "can't be read"),
        (["--groups", "A=1;B=2", "--exchange", "votes"], "means or intervals"),
    ],
)
def test_the_network_command_s_errors(tmp_path, arguments, message):
    path, _ = figure(tmp_path)
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(app, ["network", path, *arguments], standalone_mode=False, catch_exceptions=False)


def test_more_liars_around_a_client_than_f_are_refused_and_forced_runs_promise_nothing(tmp_path):
    problem = Problem.bernoulli(HETEROGENEOUS, clients=4)
    liars = [Adversary(g, "forge") for g in ("g1", "g2", "g3")]
    keys = {"network": complete(12), "byzantine": 1, "delta": 0.1, "seed": 1, "adversaries": liars}
    with pytest.raises(InputError, match="more than byzantine = 1"):
        ba.identify(problem, "p2p", **keys)
    record = ba.identify(problem, "p2p", force=True, exchange="intervals", **keys)
    assert "more than byzantine = 1" in record.network["broken"]
    assert record.pulls.max_per_client < 10**9
    caught = {fault["client"] for fault in record.proven_faulty}
    assert caught <= {"g1-1", "g2-1", "g3-1"}
    assert ba.verify(record, replay=True).failures == ()
    # Far apart on a ring they are 1-local, though there are two in all.
    far = [Adversary("g1", "silent"), Adversary("g2", "silent", ["g2-3"])]
    ring = ba.identify(
        problem, "p2p", network=circulant(12, 4), byzantine=1, seed=1, delta=0.1, adversaries=far
    )
    assert ring.verdict.arm == "g1/a1"


def test_placed_and_named_liars_don_t_mix():
    problem = Problem.bernoulli(HETEROGENEOUS, clients=4)
    network = Network(complete(12), placement="random")
    with pytest.raises(InputError, match="one of the two"):
        ba.identify(problem, "p2p", network=network, byzantine=1, adversaries=[Adversary("g1", "silent")])


def test_late_starters_do_not_end_the_ticks():
    """With a small tighten factor nearly every message waits for ticks, which must outlast the start."""
    problem = Problem.bernoulli([[0.6], [0.5], [0.45]], clients=4)
    pulls = []
    for tighten in (0.5, 0.005):
        record = ba.identify(
            problem, "p2p", network=Network(circulant(12, 3), start=1e6), byzantine=1, seed=1, delta=0.1,
            exchange="intervals", tighten=tighten,
        )  # fmt: skip
        assert record.verdict.arm == "g1/a1"
        pulls.append(record.pulls.max_per_client)
    assert pulls[1] < 3 * pulls[0]


def test_an_interrupt_before_all_peers_have_started_leaves_a_record():
    from bestarm.simulate.draw import Drawn
    from bestarm.simulate.identify import prepare
    from bestarm.simulate.network_run import NetworkRun

    problem, method, options = prepare(Problem.bernoulli(HETEROGENEOUS, clients=4), "p2p", {"byzantine": 1})
    run = NetworkRun(problem, method, options, 1, Drawn(problem, 1), Network(complete(12), start=5000))
    asked = iter([False, False, False, True])
    run.interrupted = lambda: next(asked)
    with pytest.raises(KeyboardInterrupt):
        run.go()
    run.stop("interrupted")
    record = run.record()
    assert record.interrupted
    assert ba.verify(record).ok


def test_disagreement_of_honest_peers_has_its_own_reason():
    problem = Problem.bernoulli([[0.6], [0.58]], clients=4)
    reasons = set()
    for seed in range(12):
        record = ba.identify(problem, "p2p", network=complete(8), byzantine=1, seed=seed, delta=0.1)
        if record.verdict.status == "undecided":
            reasons.add(record.verdict.reason)
    assert reasons == {"discord"}


def test_check_refuses_what_run_refuses(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("k = 5", "k = 2"))
    assert app(["check", str(path)], standalone_mode=False) == 2
    path.write_text(SCENARIO.split("[network]")[0])
    assert app(["check", str(path)], standalone_mode=False) == 2


def test_the_network_command_takes_the_scenario_s_options(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("k = 5", "k = 3"))  # 3-robust: one liar with intervals, none with means
    assert app(["network", str(path)], standalone_mode=False) == 0
    assert app(["network", str(path), "--exchange", "means"], standalone_mode=False) == 4
    with pytest.raises(InputError, match="its own groups"):
        app(["network", str(path), "--groups", "A=1"], standalone_mode=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = 0.1", "crashes = 2.0"),
        ("loss = 0.1", "crashes = inf"),
        ("loss = 0.1", "crashes = true"),
        ('generator = "circulant"\nn = 8\nk = 5', 'generator = "geometric"\nn = 8\nradius = 0.9\nseed = -1'),
    ],
)
def test_invalid_values_in_a_network_cause_no_traceback(tmp_path, before, after):
    assert before in SCENARIO
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace(before, after))
    with pytest.raises(InputError):
        ba.load(path)


def test_a_public_record_of_peers_is_sound():
    record = peers(complete(12), 1, 5, placement="random", attack="negative-count")
    assert record.proven_faulty
    assert ba.verify(record.public()).failures == ()


@pytest.mark.parametrize("attack", ["extreme", "equivocate", "silent", "negative-count"])
def test_each_peer_sends_a_summary_after_the_verdict_and_no_lie_in_it_changes_anything(attack):
    said = {"placement": "random", "attack": attack, "delay": 10, "crashes": 2}
    record = peers(complete(12), 1, 5, **said)
    kept = peers(complete(12), 1, 5, **said, summaries=False)
    assert (record.verdict.arm, record.pulls, record.bits.up) == (
        kept.verdict.arm,
        kept.pulls,
        kept.bits.up,
    )
    assert (kept.summaries, kept.bits.after) == (None, 0)
    assert record.summaries.keys() >= record.pulls.by_client.keys()
    for name, pulls in record.pulls.by_client.items():  # the honest peers
        assert sum(record.summaries[name].count) == pulls
    size = sum(summary.encode()[1] for summary in record.summaries.values())
    size += 8 * sum(row.bytes for row in record.refused_summaries)
    assert record.bits.after == 12 * 11 * size, "each of them takes every edge"
    assert ba.verify(record, replay=True).ok
    assert ba.verify(kept, replay=True).ok
    assert not ba.verify(msgspec.structs.replace(record, summaries={}).sealed()).ok


def test_clients_and_not_numbers_name_the_nodes_of_a_scenario_s_network(tmp_path, capsys):
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO.replace("k = 5", "k = 3"))
    assert ba.load(path).network.graph.names is None
    assert app(["network", str(path), "--json"], standalone_mode=False) == 0
    facts = json.loads(capsys.readouterr().out)
    clients = ba.load(path).problem.layout.clients
    assert facts["witness"]
    assert set(facts["witness"]) <= set(clients)
    with pytest.raises(InputError, match=f"no node in {{.*({'|'.join(clients)})"):
        ba.identify(ba.load(path), exchange="means")
