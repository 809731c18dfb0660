"""Peers: Algorithm 4 line by line, the three rules of the interval exchange, and why each is needed."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm import InputError, Problem
from bestarm.graphs.graph import Graph
from bestarm.graphs.robustness import is_local, tolerance
from bestarm.methods.p2p.messages import Claim, Conclusion, decode_claim
from bestarm.methods.p2p.options import PeerToPeer
from bestarm.methods.p2p.peer import Peer
from bestarm.protocol.events import Decided, PatienceOver, Pull, Pulled, Received, Send, Start, Stop


class Board:
    """Peers whose every step the test controls: which peer samples, and which message arrives when.

    Rewards are scripted: after t pulls an arm of mean μ has paid ⌊μt + ½⌋, so the good event holds.
    """

    def __init__(self, means, edges, f=1, kinds=None, liars=(), **keys):
        groups = {
            f"g{j + 1}": {f"a{k + 1}": m for k, m in enumerate(row)} for j, (row, _) in enumerate(means)
        }
        names = {f"g{j + 1}": list(clients) for j, (_, clients) in enumerate(means)}
        self.problem = Problem.from_rewards(groups, clients=names)
        self.layout = self.problem.layout
        options = PeerToPeer(delta=0.1, byzantine=f, exchange="intervals", **keys)
        hears = {v: [u for u, w in edges if w == v] for v in self.layout.clients}
        self.peers = {
            name: (kinds or {}).get(name, Peer)(self.layout, name, options, hears[name])
            for name in self.layout.clients
            if name not in liars
        }
        self.mail = {edge: deque() for edge in edges}
        self.pulls = dict.fromkeys(self.peers)
        for name, peer in self.peers.items():
            self._do(name, peer.handle(Start()))

    def _do(self, name, actions):
        for action in actions:
            if isinstance(action, Pull):
                self.pulls[name] = action if action.arms else None
            elif isinstance(action, Send):
                for edge, queue in self.mail.items():
                    if edge[0] == name:
                        queue.append(action.payload)

    def sample(self, name, until=lambda peer: False, most=60):
        """Let a peer pull until it is idle or the limit is reached; return whether it is idle."""
        peer = self.peers[name]
        for _ in range(most):
            pull = self.pulls[name]
            if pull is None or until(peer):
                break
            self.pulls[name] = None
            row = self.problem.means[peer.group]
            before = peer.phase1.epoch if peer.state == "exploring" else peer.count
            sums = [
                float(int(row[a] * (before + pull.times) + 0.5) - int(row[a] * before + 0.5))
                for a in pull.arms
            ]
            self._do(name, peer.handle(Pulled(tuple(sums), pull.times)))
        return self.pulls[name] is None

    def deliver(self, u, v):
        """Deliver all messages waiting on an edge, and those that the sender still holds back."""
        queue = self.mail[u, v]
        if u in self.peers:
            self._do(u, self.peers[u].handle(PatienceOver(0)))
        while queue:
            self._do(v, self.peers[v].handle(Received(u, queue.popleft())))

    def lie(self, u, v, message):
        data, _ = message.encode(self.layout.arm_counts, "intervals")
        self._do(v, self.peers[v].handle(Received(u, data)))

    def fair(self, rounds=80):
        """From here on all messages arrive, all peers pull, and ticks occur, in the order of names."""
        for k in range(rounds):
            for u, v in self.mail:
                if v in self.peers:
                    self.deliver(u, v)
            for name in self.peers:
                self.sample(name, most=1)
                self._do(name, self.peers[name].handle(PatienceOver(k)))

    def answers(self):
        return {name: peer.verdict.arm if peer.verdict else None for name, peer in self.peers.items()}


class StopsWhenItDecides(Peer):
    """Without rule 2: a peer with a verdict, its own or an adopted one, makes no more pulls."""

    def _may_rest(self, alone):
        return super()._may_rest(alone) or self.verdict is not None

    def _hear_verdict(self, i, message):
        actions = super()._hear_verdict(i, message)
        if self.verdict is not None and self.state == "sampling":
            self._enter("resting")
            actions.append(Pull((), 0))
        return actions


class AdoptsNothing(Peer):
    """Without rule 3: a peer uses only its own view to decide which group remains."""

    def _hear_verdict(self, i, message):
        return []

    def _review(self):
        actions = super()._review()
        if self.verdict is None and self.standing.sum() == 1:
            best = int(np.argmax(self.standing))
            actions += self._conclude(best, int(self.arms[best]))
        return actions


def _check_premise(groups, edges, liars):
    """Strongly 3-robust, with at most one liar around each client: f = 1 is tolerated."""
    names = [name for group in groups for name in group]
    place = {name: k for k, name in enumerate(names)}
    graph = Graph.from_edges(len(names), [(place[u], place[v]) for u, v in edges], names=names)
    assert tolerance(graph, groups, "intervals") >= 1
    assert is_local(graph, liars, 1)


def two_regions(kind):
    """x_a and x_e decide early from y_2's and a liar's claims; y_1 adopts their verdict at once."""
    ones, twos = ["xa", "xd", "xe", "xl"], ["y1", "y2", "yl"]
    hears = {
        "xa": twos, "xe": twos, "xd": twos, "y1": ["xa", "xe", "xl"], "y2": ["xa", "xd", "xl"],
        "xl": twos, "yl": ones[:3],
    }  # fmt: skip
    edges = [(u, v) for v, us in hears.items() for u in us]
    _check_premise([ones, twos], edges, ["xl", "yl"])
    board = Board(
        [([0.6], ones), ([0.45], twos)], edges, kinds=dict.fromkeys([*ones, *twos], kind), liars=("xl", "yl")
    )
    for name in board.peers:  # every peer ends Phase I
        board.sample(name, until=lambda peer: peer.state != "exploring")
    board.sample("y2", until=lambda peer: peer.upper[1] <= 0.5)
    for name in ("xa", "xe"):
        board.sample(name, until=lambda peer: peer.lower[0] >= 0.52)
        board.deliver("y2", name)
        board.lie("yl", name, Claim(1, 0, lower=0.4, upper=0.45))
        assert board.peers[name].verdict.arm == "g1/a1"
        board.deliver(name, "y1")
    assert board.peers["y1"].verdict.arm == "g1/a1"  # adopted, though its own interval is wide
    board.fair()
    return board


def test_without_rule_2_a_client_between_two_regions_waits_forever():
    board = two_regions(StopsWhenItDecides)
    assert board.peers["y1"].upper[1] > 0.75  # it stopped too early for xd
    answers = board.answers()
    assert answers["xd"] is None
    assert answers["y2"] is None
    assert board.peers["xd"].count > 10**6  # it pulls but learns nothing


def test_with_rule_2_the_same_run_ends_everywhere():
    board = two_regions(Peer)
    assert set(board.answers().values()) == {"g1/a1"}
    assert all(pull is None for pull in board.pulls.values())


def three_groups(kind):
    """All stop sampling; z, between them, has bounds that do not separate the first group from the second."""
    ones, twos, threes = ["xa", "xb", "xc", "xl"], ["ya", "yb", "yc", "yl"], ["z", "z2", "z3", "z4"]
    hears = {
        **{x: ["ya", "yb", "yl", *threes[1:]] for x in ones},
        **{y: ["xa", "xb", "xl", *threes[1:]] for y in twos},
        **{z: [*ones[:3], *twos[:3]] for z in threes[1:]},
        "z": ["xb", "yb", "xl"],
    }
    edges = [(u, v) for v, us in hears.items() for u in us]
    _check_premise([ones, twos, threes], edges, ["xl", "yl"])
    means = [([0.6], ones), ([0.45], twos), ([0.1], threes)]
    board = Board(means, edges, kinds=dict.fromkeys([*ones, *twos, *threes], kind), liars=("xl", "yl"))
    for name in threes:
        board.sample(name, until=lambda peer: peer.upper[2] <= 0.3)
    board.sample("ya", until=lambda peer: peer.upper[1] <= 0.47)
    board.sample("xa", until=lambda peer: peer.lower[0] >= 0.58)
    for name in ("yb", "yc"):
        board.sample(name, until=lambda peer: peer.upper[1] <= 0.55)
        board.deliver("xa", name)
        board.lie("xl", name, Claim(0, 0, lower=0.58, upper=0.62))  # two claims: beaten
    for name in ("xb", "xc"):
        board.sample(name, until=lambda peer: peer.lower[0] >= 0.50)
        for source in ("z2", "z3", "ya"):
            board.deliver(source, name)
        board.lie("yl", name, Claim(1, 0, lower=0.4, upper=0.46))
        assert board.pulls[name] is None  # the only group left in its view
    board.fair()
    return board


def test_without_rule_3_all_stop_sampling_and_one_never_decides():
    board = three_groups(AdoptsNothing)
    assert all(pull is None for pull in board.pulls.values())
    z = board.peers["z"]
    assert z.verdict is None
    assert z.lower[0] < z.upper[1]
    assert not z.pending


def test_with_rule_3_the_same_run_ends_everywhere():
    board = three_groups(Peer)
    assert set(board.answers().values()) == {"g1/a1"}


def machine(exchange="means", f=1, neighbours=6, means=((0.9, 0.1), (0.6, 0.2), (0.5, 0.1)), **keys):
    problem = Problem.bernoulli([list(row) for row in means], clients=4)
    names = [f"n{k}" for k in range(neighbours)]
    peer = Peer(problem.layout, "g1-1", PeerToPeer(delta=0.1, byzantine=f, exchange=exchange, **keys), names)
    peer.handle(Start())
    return peer


def hear(peer, sender, *, group, arm=0, **values):
    exchange = peer.options.exchange
    data, _ = Claim(group, arm, **values).encode(peer.layout.arm_counts, exchange)
    return peer.handle(Received(sender, data))


def test_the_first_2f_plus_1_reports_make_vote_and_trimmed_mean():
    """Lines 2 to 4 of Algorithm 4."""
    peer = machine()
    assert hear(peer, "n0", group=1, mean=0.6) == []
    assert hear(peer, "n1", group=1, arm=1, mean=0.99) == []
    (sent,) = hear(peer, "n2", group=1, mean=0.62)
    claim = decode_claim(sent.payload, peer.layout.arm_counts, "means")
    assert (claim.group, claim.arm) == (1, 0)
    assert claim.mean in (0.6, 0.62)  # f_il = 0: either of the two remains
    assert hear(peer, "n3", group=1, mean=0.1) == []  # too late to count
    assert peer.means[1] == claim.mean


def test_the_median_of_three_is_what_trimming_one_on_each_side_leaves():
    peer = machine()
    for sender, mean in (("n0", 0.0), ("n1", 0.61), ("n2", 1.0)):
        hear(peer, sender, group=1, mean=mean)
    assert peer.means[1] == 0.61


def test_a_tied_vote_is_undecided():
    peer = machine(f=0)
    hear(peer, "n0", group=1, mean=0.5)
    assert peer.arms[1] == 0
    peer = machine(f=2, means=((0.9, 0.1), (0.6, 0.2, 0.1), (0.5, 0.1)))
    for k, arm in enumerate((0, 0, 1, 1, 2)):
        hear(peer, f"n{k}", group=1, arm=arm, mean=0.5)
    assert peer.verdict.reason == "tie"


def test_a_peer_ignores_claims_about_its_own_arm_set():
    peer = machine()
    for k in range(3):
        assert hear(peer, f"n{k}", group=0, arm=1, mean=1.0) == []
    assert peer.arms[0] == -1


def test_the_answer_is_the_largest_mean_of_all_arm_sets():
    """Line 5."""
    peer = machine()
    for group, mean in ((1, 0.6), (2, 0.95)):
        for k in range(3):
            hear(peer, f"n{k}", group=group, mean=mean)
    assert peer.verdict is None
    actions = []
    while peer.verdict is None:
        times = peer.asked.times
        sums = tuple(0.9 * times if a == 0 else 0.1 * times for a in peer.asked.arms)
        actions = peer.handle(Pulled(sums, times))
    assert peer.verdict.arm == "g3/a1"
    assert any(isinstance(a, Decided) for a in actions)
    assert any(isinstance(a, Send) for a in actions)


@pytest.mark.parametrize(
    ("exchange", "first", "second"),
    [
        ("means", {"mean": 0.5}, {"mean": 0.6}),
        ("means", {"mean": 0.5}, {"mean": 0.5, "arm": 1}),
        ("intervals", {"lower": 0.4, "upper": 0.6}, {"lower": 0.4, "upper": 0.6, "arm": 1}),
        ("intervals", {"lower": 0.4, "upper": 0.6}, {"lower": 0.3, "upper": 0.6}),
        ("intervals", {"lower": 0.4, "upper": 0.6}, {"lower": 0.4, "upper": 0.7}),
    ],
)
def test_equivocation_is_proof_of_fault(exchange, first, second):
    peer = machine(exchange)
    hear(peer, "n0", group=1, **first)
    assert hear(peer, "n0", group=1, **first) == []  # a repetition proves nothing
    assert not peer.faulty
    hear(peer, "n0", group=1, **second)
    assert [fault["client"] for fault in peer.faulty] == ["n0"]
    hear(peer, "n0", group=2, **first)
    assert peer.ignored == 1


def test_an_older_interval_that_comes_late_convicts_its_honest_sender():
    """Drivers must therefore keep the order: in order, the same claims prove nothing."""
    claims = [{"lower": 0.2, "upper": 0.8}, {"lower": 0.3, "upper": 0.6}]
    for order, caught in ((claims, []), (claims[::-1], ["n0"])):
        peer = machine("intervals")
        for claim in order:
            hear(peer, "n0", group=1, **claim)
        assert [fault["client"] for fault in peer.faulty] == caught


SAID = {j: [(0.1 * k, 0.9 - 0.1 * k) for k in range(4)] for j in range(3)}  # by arm-set, in order


@given(st.permutations([j for j, told in SAID.items() for _ in told] + [-1]))
def test_the_order_of_claims_about_different_arm_sets_does_not_matter(order):
    """Each arm-set's claims in order, a verdict (−1) anywhere between them: no proof, and the same view."""
    peer, told = machine("intervals", f=0), {j: iter(rows) for j, rows in SAID.items()}
    for j in order:
        if j < 0:
            peer.handle(Received("n0", Conclusion(1, 0).encode(peer.layout.arm_counts, "intervals")[0]))
        else:
            lower, upper = next(told[j])
            hear(peer, "n0", group=j, lower=lower, upper=upper)
    assert peer.faulty == []
    assert [(peer.lower[j], peer.upper[j]) for j in (1, 2)] == [SAID[j][-1] for j in (1, 2)]
    assert peer.verdict.arm == "g2/a1"


def test_intervals_take_f_plus_1_votes_and_the_second_best_bounds():
    """Rule 1 with f = 1."""
    peer = machine("intervals")
    hear(peer, "n0", group=1, lower=0.5, upper=0.6)
    assert peer.arms[1] == -1
    hear(peer, "n1", group=1, arm=1, lower=0.9, upper=0.95)
    assert peer.arms[1] == -1
    hear(peer, "n2", group=1, lower=0.45, upper=0.58)
    assert (peer.arms[1], peer.lower[1], peer.upper[1]) == (0, 0.45, 0.6)
    hear(peer, "n3", group=1, lower=0.55, upper=0.7)
    assert (peer.lower[1], peer.upper[1]) == (0.5, 0.6)


def test_a_proven_liar_s_bounds_are_discarded():
    peer = machine("intervals", f=1)
    hear(peer, "n0", group=1, lower=0.5, upper=0.6)
    peer.handle(Received("n0", b""))
    hear(peer, "n1", group=1, lower=0.5, upper=0.6)
    assert peer.arms[1] == -1


def test_a_small_change_is_sent_with_the_next_tick_and_a_large_one_at_once():
    peer = machine("intervals", f=0, tighten=0.5)
    assert len(hear(peer, "n0", group=1, lower=0.2, upper=0.8)) == 1
    assert hear(peer, "n1", group=1, lower=0.25, upper=0.7) == []
    assert peer.pending
    (sent,) = peer.handle(PatienceOver(1))
    assert decode_claim(sent.payload, peer.layout.arm_counts, "intervals").lower == 0.25
    assert not peer.pending
    assert peer.handle(PatienceOver(2)) == []
    assert len(hear(peer, "n2", group=1, lower=0.5, upper=0.6)) == 1


def test_all_pending_claims_are_sent_when_a_group_is_eliminated():
    peer = machine("intervals", f=0, tighten=0.01)
    hear(peer, "n0", group=1, lower=0.2, upper=0.8)
    hear(peer, "n0", group=1, lower=0.3, upper=0.7)
    assert peer.pending
    actions = hear(peer, "n0", group=2, lower=0.75, upper=0.9)
    groups = [decode_claim(a.payload, peer.layout.arm_counts, "intervals").group for a in actions]
    assert sorted(groups) == [1, 2]
    assert peer.standing.tolist() == [True, False, True]


def test_a_verdict_is_adopted_on_f_plus_1_equal_ones_and_sent_on_once():
    """Rule 3 with f = 1."""
    peer = machine("intervals")

    def say(sender, group, arm=0):
        data, _ = Conclusion(group, arm).encode(peer.layout.arm_counts, "intervals")
        return peer.handle(Received(sender, data))

    assert say("n0", 1) == []
    assert say("n1", 2) == []
    actions = say("n2", 1)
    assert [type(a) for a in actions] == [Send, Decided]
    assert peer.verdict.arm == "g2/a1"
    assert peer.state == "exploring"  # rule 2: it continues
    assert say("n3", 1) == []
    say("n0", 2)
    assert peer.faulty[0]["reason"] == "a second verdict"


def test_a_contradiction_ends_sampling_and_sending():
    """With bounds that honest intervals can't give, a peer is undecided, stops pulling and sends nothing."""
    peer = machine("intervals", f=0, means=((0.9,), (0.6, 0.2), (0.5, 0.1)))
    while peer.state == "exploring":
        peer.handle(Pulled((0.9 * peer.asked.times,), peer.asked.times))
    assert peer.state == "sampling"
    hear(peer, "n0", group=1, lower=0.2, upper=0.4)
    actions = hear(peer, "n1", group=1, lower=0.5, upper=0.7)
    assert peer.verdict.reason == "contradiction"
    assert Pull((), 0) in actions
    assert peer.state == "resting"
    assert peer.handle(PatienceOver(1)) == []
    assert not peer.pending


def test_a_point_is_not_an_interval_and_a_peer_in_phase_1_announces_nothing():
    peer = machine("intervals", f=0, means=((0.9, 0.1), (0.6, 0.2)))
    hear(peer, "n0", group=1, lower=0.5, upper=0.5)
    assert peer.verdict.status == "undecided"
    peer = machine("intervals", f=0, means=((0.9, 0.1), (0.6, 0.2)))
    hear(peer, "n0", group=1, lower=0.5, upper=0.5001)
    assert peer.verdict is None


@given(st.binary(max_size=24), st.sampled_from(["means", "intervals"]))
def test_no_bytes_raise_out_of_a_peer(data, exchange):
    peer = machine(exchange)
    peer.handle(Received("n0", data))
    peer.handle(Received("stranger", data))
    assert peer.ignored == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 1.5])
def test_impossible_means_are_proof_of_a_fault(value):
    peer = machine()
    hear(peer, "n0", group=1, mean=value)
    assert peer.faulty[0]["client"] == "n0"


def test_a_stopped_peer_is_undecided_with_its_remaining_candidates():
    peer = machine("intervals", f=0)
    hear(peer, "n0", group=1, lower=0.2, upper=0.3)
    hear(peer, "n0", group=2, lower=0.4, upper=0.9)
    peer.handle(Stop("interrupted"))
    assert peer.verdict.status == "undecided"
    assert peer.verdict.candidates == ("g1/a1", "g1/a2", "g3/a1")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epsilon": 0.1}, "fisher"),
        ({"max_rounds": 3}, "no rounds"),
        ({"c": 2.0}, "above 2"),
        ({"c": 3.0}, "more than 4"),
    ],
)
def test_unsupported_options_of_peers_are_refused(keys, message):
    import bestarm as ba
    from bestarm.graphs.generators import complete

    problem = Problem.bernoulli([[0.9, 0.1], [0.5, 0.1]], clients=4)
    with pytest.raises(InputError, match=message):
        ba.identify(problem, "p2p", network=complete(8), byzantine=1, **keys)
