"""Strong robustness against Definition 2 by enumeration; tolerance, files, generators, liars, the picture."""

from __future__ import annotations

import ast
import math
import sys
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bestarm as ba
from bestarm import Graph, InputError, is_strongly_robust, strong_robustness, tolerance, weak_points
from bestarm.graphs import generators, robustness
from marking import examples


def in_neighbours(graph: Graph) -> list[set[int]]:
    heard: list[set[int]] = [set() for _ in range(graph.n)]
    for u, v in graph.edges.tolist():
        heard[v].add(u)
    return heard


def subsets(nodes):
    nodes = sorted(nodes)
    return [set(some) for size in range(1, len(nodes) + 1) for some in combinations(nodes, size)]


def best_inside(heard, some) -> int:
    """The largest number of in-neighbours outside `some` that any node of `some` has."""
    return max(len(heard[i] - some) for i in some)


def brute_force(graph: Graph, group) -> float:
    """Definition 2 as written: every non-empty set B disjoint from the group."""
    heard = in_neighbours(graph)
    return min((best_inside(heard, b) for b in subsets(set(range(graph.n)) - set(group))), default=math.inf)


@st.composite
def digraphs(draw, most=6):
    n = draw(st.integers(1, most))
    dense = draw(st.booleans())
    bits = draw(st.integers(0, 2 ** (n * n) - 1))
    if dense:
        bits |= draw(st.integers(0, 2 ** (n * n) - 1))
    cells = [(u, v) for u in range(n) for v in range(n)]
    return Graph.from_edges(n, [cell for i, cell in enumerate(cells) if bits >> i & 1])


@st.composite
def with_group(draw):
    graph = draw(digraphs())
    return graph, draw(st.sets(st.integers(0, graph.n - 1), min_size=1))


@st.composite
def with_groups(draw):
    graph = draw(digraphs())
    count = draw(st.integers(1, 3))
    return graph, [draw(st.sets(st.integers(0, graph.n - 1), min_size=1)) for _ in range(count)]


@pytest.mark.slow
@settings(max_examples=examples(4000))
@given(with_group())
def test_strong_robustness_is_definition_2(case):
    graph, group = case
    r = strong_robustness(graph, group)[0]
    assert r == brute_force(graph, group)
    for other in range(8):
        assert is_strongly_robust(graph, group, other) == (other <= r)


@settings(max_examples=examples(2000))
@given(with_group())
def test_the_witness_violates_r_plus_1_and_contains_every_set_that_does(case):
    graph, group = case
    assume(len(group) < graph.n)
    r, witness = strong_robustness(graph, group)
    heard = in_neighbours(graph)
    assert witness
    assert not witness & group
    assert best_inside(heard, set(witness)) <= r
    for some in subsets(set(range(graph.n)) - group):
        if best_inside(heard, some) <= r:
            assert some <= witness


def peeled(graph: Graph, group) -> float:
    """The greedy pass of the theory, one node at a time."""
    heard, inside, r = in_neighbours(graph), set(group), math.inf
    while len(inside) < graph.n:
        count, node = max((len(heard[v] & inside), v) for v in range(graph.n) if v not in inside)
        r = min(r, count)
        inside.add(node)
    return r


@pytest.mark.parametrize("seed", range(20))
def test_large_and_small_waves_agree_with_the_greedy_pass(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(50, 400))
    graph = Graph.from_edges(n, rng.integers(n, size=(n * int(rng.integers(2, 20)), 2)))
    group = rng.choice(n, int(rng.integers(1, n)), replace=False)
    r, witness = strong_robustness(graph, group)
    assert r == peeled(graph, group.tolist())
    assert best_inside(in_neighbours(graph), set(witness)) == r


@pytest.mark.parametrize("k", [1, 3])
def test_a_ring_has_small_waves_and_its_k(k):
    ring = generators.circulant(200, k)
    assert strong_robustness(ring, range(k)) == (k, frozenset(range(k, 200)))
    assert strong_robustness(ring, range(0, 200, 5))[0] == peeled(ring, range(0, 200, 5))


def test_a_group_that_is_everyone_is_infinitely_robust():
    assert strong_robustness(generators.complete(3), range(3)) == (math.inf, frozenset())
    assert is_strongly_robust(Graph.from_edges(3, []), range(3), 100)


def test_self_loops_and_double_edges_do_not_count():
    once = Graph.from_edges(3, [(0, 1), (1, 2)])
    again = Graph.from_edges(3, [(0, 1), (0, 1), (1, 1), (1, 2), (2, 2), (2, 2)])
    assert again.edges.tolist() == once.edges.tolist() == [[0, 1], [1, 2]]
    assert strong_robustness(again, {0})[0] == 1


def test_a_graph_is_immutable():
    graph = generators.circulant(5, 1)
    with pytest.raises(ValueError, match="read-only"):
        graph.targets[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        graph.positions[0] = 3
    with pytest.raises(AttributeError):
        graph.names = ("a",) * 5


def test_in_neighbours_and_degrees():
    graph = Graph.from_edges(4, [(3, 0), (1, 0), (0, 2)])
    assert graph.in_degrees.tolist() == [2, 0, 1, 0]
    assert [graph.in_neighbours(v).tolist() for v in range(4)] == [[1, 3], [], [0], []]
    assert graph.heard_by(np.array([0, 2, 3])).tolist() == [2, 0]


@settings(max_examples=examples(500))
@given(with_groups(), st.sampled_from([("means", 3), ("intervals", 2)]))
def test_tolerance_is_the_weakest_groups(case, kind):
    graph, groups = case
    exchange, share = kind
    f = tolerance(graph, groups, exchange)
    assert type(f) is int
    if all(len(group) == graph.n for group in groups):
        assert f == graph.n - 1
    else:
        assert all(brute_force(graph, group) >= share * f + 1 for group in groups)
        assert not all(brute_force(graph, group) >= share * (f + 1) + 1 for group in groups)
        assert f >= -1


def test_tolerance_of_known_networks():
    assert tolerance(Graph.from_edges(4, [(0, 1)]), [{0}]) == -1
    assert tolerance(generators.complete(13), [range(7), range(7, 13)]) == 1
    assert tolerance(generators.complete(14), {"a": range(7), "b": range(7, 14)}) == 2
    assert tolerance(generators.complete(14), {"a": range(7), "b": range(7, 14)}, exchange="intervals") == 3
    assert tolerance(generators.complete(9), [range(9), range(4)]) == 1
    assert tolerance(Graph.from_edges(5, []), [range(5)]) == 4


@settings(max_examples=examples(400))
@given(with_groups(), st.sampled_from(["means", "intervals"]))
def test_weak_points_raise_the_tolerance_by_one_and_all_are_needed(case, exchange):
    graph, groups = case
    before = tolerance(graph, groups, exchange)
    needed = robustness.SHARES[exchange] * (before + 1) + 1
    bounded = [group for group in groups if len(group) < graph.n]
    if not bounded or min(map(len, bounded)) < needed:
        with pytest.raises(InputError, match="no edge"):
            weak_points(graph, groups, exchange)
        return
    edges = weak_points(graph, groups, exchange)
    assert not {tuple(edge) for edge in graph.edges.tolist()} & set(edges)
    assert tolerance(graph.with_edges(edges), groups, exchange) == before + 1
    for edge in edges:
        rest = [other for other in edges if other != edge]
        assert tolerance(graph.with_edges(rest), groups, exchange) <= before


def test_weak_points_of_larger_networks_with_names():
    tree = generators.clique_tree(3, size=7, links=3)
    named = Graph.from_edges(21, tree.edges, names=[f"robot {i}" for i in range(21)])
    groups = {f"c{c}": {f"robot {i}" for i in range(7 * c, 7 * c + 7)} for c in range(3)}
    assert tolerance(named, groups) == 0
    edges = weak_points(named, groups)
    assert tolerance(named.with_edges(edges), groups) == 1
    assert 3 <= len(edges) <= 6  # one more for a client of each clique, in each direction, or fewer


def test_weak_points_say_when_a_group_is_too_small():
    graph, groups = generators.figure3()
    with pytest.raises(InputError) as caught:
        weak_points(graph, groups)
    assert str(caught.value) == (
        'group "C2": no edges can help: 1 clients are too few to tolerate f = 1. '
        "Expected at least 3f + 1 = 4. Add 3 to the group."
    )
    with pytest.raises(InputError, match="every group contains all clients"):
        weak_points(generators.complete(3), [range(3)])


def test_figure_3_is_as_its_caption_says():
    graph, groups = generators.figure3()
    assert graph.n == 9
    assert [len(groups[name]) for name in ("C1", "C2", "C3")] == [4, 1, 4]
    assert sorted(graph.in_degrees.tolist()) == [3, 3, 3, 3, 4, 4, 4, 4, 4]
    # C1 and C3 interact only via client 5: without it there is no path between them.
    left = nx.DiGraph(graph.edges.tolist())
    assert nx.has_path(left, 0, 8)
    left.remove_node(4)
    assert not nx.has_path(left, 0, 8)
    # Client 5 is the only source about A2, and one honest path is not enough for any f > 0.
    for name in groups:
        r, witness = strong_robustness(graph, groups[name])
        assert r == 1
        assert "5" not in witness
    assert strong_robustness(graph, groups["C3"])[1] == groups["C1"]
    assert strong_robustness(graph, groups["C2"])[1] == groups["C1"] | groups["C3"]
    assert tolerance(graph, groups) == tolerance(graph, groups, "intervals") == 0
    assert robustness.worst_cut(graph, groups, 1) == {"5"}


@pytest.mark.parametrize("n", [2, 5, 9])
def test_complete_graphs_are_as_robust_as_the_group_is_large(n):
    for size in range(1, n):
        assert strong_robustness(generators.complete(n), range(size)) == (size, frozenset(range(size, n)))


def test_circulant_nodes_hear_their_predecessors_or_both_sides():
    assert set(generators.circulant(7, 2).in_neighbours(1).tolist()) == {0, 6}
    assert set(generators.circulant(7, 2, undirected=True).in_neighbours(1).tolist()) == {0, 6, 2, 3}
    assert strong_robustness(generators.circulant(30, 4, undirected=True), range(4))[0] == 4


def test_robots_hear_those_within_the_radius():
    graph = generators.geometric(80, 0.2, seed=3)
    x, y = graph.positions.T
    near = np.hypot(x[:, None] - x, y[:, None] - y) <= 0.2
    np.fill_diagonal(near, False)
    assert graph.edges.tolist() == np.argwhere(near).tolist()
    assert 0 < near.sum() < 80 * 79
    assert generators.geometric(80, 0.2, seed=3).edges.tolist() == graph.edges.tolist()
    assert generators.geometric(80, 0.2, seed=4).edges.tolist() != graph.edges.tolist()


@pytest.mark.parametrize("m", [1, 3])
def test_preferential_networks_are_m_robust_from_their_seed(m):
    graph = generators.preferential(100, m, seed=5)
    assert len(graph.targets) == 2 * (m * (m + 1) // 2 + (100 - m - 1) * m)
    assert strong_robustness(graph, range(m + 1))[0] == m
    assert graph.in_degrees.max() > 4 * m  # hubs
    assert generators.preferential(100, m, seed=5).edges.tolist() == graph.edges.tolist()


@pytest.mark.parametrize(("cliques", "size", "links"), [(2, 4, 1), (5, 4, 3), (7, 5, 5), (3, 3, 0)])
def test_trees_of_cliques_are_as_robust_as_their_links(cliques, size, links):
    graph = generators.clique_tree(cliques, size, links)
    for c in range(cliques):
        assert strong_robustness(graph, range(c * size, (c + 1) * size))[0] == links
    undirected = nx.DiGraph(graph.edges.tolist()).to_undirected()
    inner, outer = cliques * size * (size - 1) // 2, (cliques - 1) * size * links
    assert undirected.number_of_edges() == inner + outer


@settings(max_examples=300)
@given(with_groups(), st.integers(0, 3), st.integers(0, 100))
def test_placed_liars_are_local_and_none_can_be_added(case, f, seed):
    graph, groups = case
    liars = robustness.place_liars(graph, groups, f, seed)
    heard = in_neighbours(graph)

    def local(some) -> bool:
        return all(len(heard[i] & some) <= f for i in range(graph.n) if i not in some)

    assert robustness.is_local(graph, liars, f)
    assert local(liars)
    assert all(group - liars for group in groups)
    if f == 0:
        assert not liars
        return
    for node in set(range(graph.n)) - liars:
        more = liars | {node}
        assert not local(more) or any(group <= more for group in groups)


@settings(max_examples=300)
@given(digraphs(), st.data())
def test_is_local_is_its_definition(graph, data):
    liars = data.draw(st.sets(st.integers(0, graph.n - 1)))
    f = data.draw(st.integers(0, 4))
    heard = in_neighbours(graph)
    honest = set(range(graph.n)) - liars
    assert robustness.is_local(graph, liars, f) == all(len(heard[i] & liars) <= f for i in honest)


def test_liars_are_drawn_by_the_seed():
    graph, groups = generators.geometric(60, 0.3, seed=1), [range(30), range(30, 60)]
    first, again, other = (robustness.place_liars(graph, groups, 2, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) >= 2


@settings(max_examples=300)
@given(with_groups(), st.integers(0, 3))
def test_the_worst_cut_is_local_and_on_the_border_of_a_weakest_witness(case, f):
    graph, groups = case
    liars = robustness.worst_cut(graph, groups, f)
    assert robustness.is_local(graph, liars, f)
    found = [strong_robustness(graph, group) for group in groups]
    witness = min(found, key=lambda pair: pair[0])[1]
    heard = in_neighbours(graph)
    border = {u for v in witness for u in heard[v]} - witness
    assert liars <= border
    if f >= graph.n:
        assert liars == border


def test_the_worst_cut_silences_a_weak_group_and_spares_a_strong_network():
    """Two cliques with two links: at f = 1 each of the far clique hears as many liars as honest ones."""
    graph, groups = generators.clique_tree(2, size=6, links=2), [range(6), range(6, 12)]
    liars = robustness.worst_cut(graph, groups, 1)
    assert liars
    assert liars <= set(range(6))
    cut = [len(set(graph.in_neighbours(v).tolist()) & liars) for v in range(6, 12)]
    assert max(cut) == 1
    assert robustness.worst_cut(generators.complete(4), [range(4)], 1) == frozenset()


BAD_CALLS = {
    "no nodes": (lambda: Graph.from_edges(0, []), "n = 0 can't be used"),
    "half a node": (lambda: Graph.from_edges(2.5, []), "n = 2.5 can't be used"),
    "an edge to nowhere": (lambda: Graph.from_edges(3, [(0, 1), (1, 3)]), r"no edge \(1, 3\)"),
    "a triple": (lambda: Graph.from_edges(3, [(0, 1, 2)]), "are not edges"),
    "pairs of mixed length": (lambda: Graph.from_edges(3, [(0, 1), (1,)]), "are not edges"),
    "no pairs": (lambda: Graph.from_edges(3, 7), "are not edges"),
    "edges of fractions": (lambda: Graph.from_edges(3, [(0.0, 1.0)]), "are not edges"),
    "too few names": (lambda: Graph.from_edges(2, [], names=["a"]), "2 names"),
    "a name twice": (lambda: Graph.from_edges(2, [], names=["a", "a"]), '"a" is used twice'),
    "too few positions": (lambda: Graph.from_edges(2, [], positions=[(0, 0)]), "2 pairs"),
    "positions of words": (lambda: Graph.from_edges(1, [], positions=[("a", "b")]), "1 pairs"),
    "an empty group": (lambda: strong_robustness(generators.complete(3), []), "the set is empty"),
    "an unknown node": (lambda: strong_robustness(generators.complete(3), {3}), "no node 3"),
    "a negative node": (lambda: strong_robustness(generators.complete(3), {-1}), "no node -1"),
    "a node that is a name": (lambda: strong_robustness(generators.complete(3), {"a"}), "not a set of nodes"),
    "a group that is a number": (lambda: strong_robustness(generators.complete(3), 1), "not a set of nodes"),
    "a mask": (
        lambda: strong_robustness(generators.complete(2), np.array([True, False])),
        "not a set of nodes",
    ),
    "a number among names": (lambda: strong_robustness(generators.figure3()[0], {1}), "no node 1"),
    "an unknown name": (lambda: strong_robustness(generators.figure3()[0], {"10"}), "no node '10'"),
    "a text as a group": (lambda: strong_robustness(generators.figure3()[0], "12"), "not a set of nodes"),
    "a negative r": (lambda: is_strongly_robust(generators.complete(3), {0}, -1), "r = -1"),
    "no groups": (lambda: tolerance(generators.complete(3), []), "there are no groups"),
    "an empty second group": (
        lambda: tolerance(generators.complete(3), [{0}, ()]),
        'group "g2": the set is empty',
    ),
    "an unknown exchange": (lambda: tolerance(generators.complete(3), [{0}], "mean"), 'Did you mean "means"'),
    "an unknown liar": (
        lambda: robustness.is_local(generators.complete(3), {5}, 1),
        "liars: there is no node 5",
    ),
    "a negative f": (lambda: robustness.place_liars(generators.complete(3), [{0}], -1), "f = -1"),
    "a long circulant step": (lambda: generators.circulant(5, 5), "k = 5"),
    "a negative radius": (lambda: generators.geometric(5, -0.1), "radius = -0.1"),
    "more friends than nodes": (lambda: generators.preferential(3, 3), "n = 3"),
    "more links than members": (lambda: generators.clique_tree(2, 3, 4), "links = 4"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_named(case):
    call, message = BAD_CALLS[case]
    with pytest.raises(InputError, match=message):
        call()


GOOD_FILES = {
    "edges.csv": ("from,to\n0,1\n1,2\n", None, [[0, 1], [1, 2]]),
    "blanks.txt": ("# a ring\n0 1\n1\t2\n\n2 0  # back\n", None, [[0, 1], [1, 2], [2, 0]]),
    "names.csv": ("\ufeffann,bob\nbob,\"c, d\"\n", ("ann", "bob", "c, d"), [[0, 1], [1, 2]]),
    "alone.txt": ("0 1\n2\n", None, [[0, 1]]),
    "from_one.csv": ("1,2\n2,3\n", ("1", "2", "3"), [[0, 1], [1, 2]]),
    "any_order.csv": ("2,0\n0,1\n", None, [[0, 1], [2, 0]]),
    "matrix.csv": ("0,1,0\n0,0,1\n0,0,0\n", None, [[0, 1], [1, 2]]),
    "named.csv": ("a,b,c\n0,1,0\n0,1,1\n1,0,0\n", ("a", "b", "c"), [[0, 1], [1, 2], [2, 0]]),
    "numbered.csv": ("2,0,1\n0,1,0\n0,0,1\n0,0,0\n", None, [[0, 1], [2, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD_FILES)
def test_text_files_are_read(name, tmp_path):
    text, names, edges = GOOD_FILES[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    graph = Graph.read(tmp_path / name)
    assert (graph.n, graph.names, graph.edges.tolist()) == (3, names, edges)


BAD_FILES = {
    "empty.csv": (b"# nothing\n", "holds no edges"),
    "only_header.csv": (b"from,to\n", "holds no edges"),
    "three.csv": (b"0,1\n1,2\n0,1,2\n", "line 3: '0,1,2' is not an edge"),
    "gap.csv": (b"0,1\n1,\n", "line 2: '1,' is not an edge"),
    "oblong.csv": (b"0,1,0\n0,0,1\n", "2 rows and 3 columns"),
    "ragged.csv": (b"0,1,0\n0,0,1\n0,0\n", "line 3: '0,0' is not a row"),
    "weights.csv": (b"a,b,c\n0,1,0\n0,0,2\n0,0,0\n", "line 3: '0,0,2' is not a row"),
    "twice.csv": (b"a,a,c\n0,1,0\n0,0,1\n0,0,0\n", "line 1: a name is missing or used twice"),
    "binary.csv": (b"\xff\xfe\x00\x01", "this is not a text file"),
    "broken.graphml": (b"<graphml><graph", "not GraphML"),
    "other.graphml": (b"<html></html>", "not GraphML"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_their_line(name, tmp_path):
    data, message = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        Graph.read(path)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_is_named(tmp_path):
    for name in ("none.csv", "none.graphml"):
        with pytest.raises(InputError, match=f"{name}: the file can't be read: No such file"):
            Graph.read(tmp_path / name)


def test_graphml_keeps_names_directions_and_positions(tmp_path):
    directed = nx.DiGraph([("ann", "bob"), ("bob", "cat"), ("cat", "cat")])
    for i, node in enumerate(directed.nodes):
        directed.nodes[node].update(x=float(i), y=-1.0)
    nx.write_graphml(directed, tmp_path / "g.graphml")
    graph = Graph.read(tmp_path / "g.graphml")
    assert graph.names == ("ann", "bob", "cat")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.positions.tolist() == [[0, -1], [1, -1], [2, -1]]
    nx.write_graphml(nx.path_graph(3), tmp_path / "path.graphml")
    path = Graph.read(tmp_path / "path.graphml")
    assert path.names is None
    assert path.positions is None
    assert path.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


def test_networkx_graphs_of_all_kinds():
    multi = Graph.from_networkx(nx.MultiDiGraph([(1, 0), (1, 0), (0, 2)]))
    assert multi.edges.tolist() == [[0, 2], [1, 0]]
    assert multi.names is None
    plain = nx.Graph([("b", "a")])
    nx.set_node_attributes(plain, {"a": (0, 1), "b": (2, 3)}, "pos")
    named = Graph.from_networkx(plain)
    assert (named.names, named.edges.tolist()) == (("b", "a"), [[0, 1], [1, 0]])
    assert named.positions.tolist() == [[2, 3], [0, 1]]
    with pytest.raises(InputError, match="n = 0"):
        Graph.from_networkx(nx.Graph())
    with pytest.raises(InputError, match="two nodes are both called"):
        Graph.from_networkx(nx.Graph([(1, "1")]))


@pytest.mark.parametrize("size", [12, 80])
@pytest.mark.parametrize("undirected", [True, False])
def test_the_picture_marks_groups_and_witness(size, undirected, tmp_path):
    plots = pytest.importorskip("bestarm.report.plots")
    network_plot = pytest.importorskip("bestarm.report.network_plot")
    ring = generators.circulant(size, 2, undirected=undirected)
    bare = Graph.from_edges(size, ring.edges)  # no positions: laid out by networkx
    groups = {"north": range(4), "$outh": range(6, 10)}
    for graph in (ring, bare):
        ax = network_plot.network(graph, groups, strong_robustness(graph, groups["north"])[1])
        labels = [text.get_text().strip() for text in ax.get_legend().get_texts()]
        assert labels == ["in no group", "north", r"\$outh", "witness"]
        assert len(ax.texts) == (size if size <= network_plot.MOST_LABELS else 0)
        arrows = [c for c in ax.collections if type(c).__name__ == "Quiver"]
        assert len(arrows) == (0 if undirected else 1)
        plots.save(ax, str(tmp_path / "network.png"))
        assert (tmp_path / "network.png").stat().st_size > 5_000


def test_the_picture_works_without_networkx(monkeypatch):
    network_plot = pytest.importorskip("bestarm.report.network_plot")
    monkeypatch.setitem(sys.modules, "networkx", None)
    network_plot.network(Graph.from_edges(3, []), [{0}])  # no edges at all
    ax = network_plot.network(generators.complete(4), [range(4)])
    points = np.array([text.xy for text in ax.texts])
    assert np.hypot(*points.T) == pytest.approx(np.ones(4))


def test_graphml_without_networkx_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(InputError, match=r"bestarm\[network\]"):
        Graph.read(tmp_path / "g.graphml")


def test_importing_the_module_needs_neither_networkx_nor_scipy(root):
    top = set()
    for path in (root / "src/bestarm/graphs").glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        top |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        top |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert "numpy" in top
    assert not any(name.split(".")[0] in ("networkx", "scipy") for name in top)
    assert ba.Graph is Graph
