"""Blocks that are announced while rewards of earlier ones are still to come, for live experiments."""

from __future__ import annotations

import numpy as np
import pytest
from test_questions import Game, regions

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.decisions import values
from bestarm.protocol.events import Ahead
from bestarm.protocol.machine import ForesightedClient
from bestarm.protocol.registry import method_for
from bestarm.protocol.trace import Certificate

EVEN = (1, 1, 1)


def hurry(game, client="US-1", paces=EVEN):
    game._server(game.server.handle(Ahead(client, paces)))
    for name in game.clients:
        game.hear(name)


def test_a_block_is_announced_before_any_reward_is_in_but_not_too_many():
    game = Game(regions(), delta=0.1, open_blocks=3)
    for announced in (2, 3, 3):
        hurry(game)
        assert len(game.server.open) == announced
    client = game.clients["US-1"]
    assert isinstance(client, ForesightedClient)
    upcoming = client.upcoming
    game.play("US-1")  # the first block, then those that were announced, as they were
    assert len(upcoming) == 2
    assert len(client.sent) == 3
    assert [row["times"] for row in client.batches[1:]] == [pull.times for pull in upcoming]


def test_who_is_not_needed_any_more_gets_no_block():
    game = Game(regions("each"), delta=0.1, open_blocks=8)
    game.go()
    assert len(game.server.events) > 0
    before = len(game.server.events)
    hurry(game)
    assert len(game.server.events) == before
    alone = Game(regions(), delta=0.1, open_blocks=1)
    hurry(alone)
    assert len(alone.server.open) == 1


def test_steps_follow_the_pace_and_every_site_has_at_least_one():
    game = Game(regions(), delta=0.1, open_blocks=4, n1=100, allocation="pace")
    hurry(game, paces=(1000, 100, 0))
    us, eu, asia = game.server.open[1].pulls.max(axis=1).tolist()
    assert (us > 8 * eu, asia) == (True, 1)
    weights = Game(regions(), delta=0.1, open_blocks=4)
    hurry(weights, paces=(1000, 100, 0))
    assert len(set(weights.server.open[1].pulls.max(axis=1).tolist())) == 1


def test_the_champion_is_named_from_all_blocks_before_it_and_none_after():
    """Blocks that were announced blindly still bet on who led in the blocks before them."""
    game = Game(regions(), delta=1e-9, open_blocks=6)
    for _ in range(5):
        hurry(game)
    assert {int(block.stands[0].champion[0]) for block in list(game.server.open)[1:]} == {0}
    sums = []
    for name in game.clients:
        game.play(name)
    fold = game.server._fold

    def folded(k):
        sums.append(game.server.ledger.sums)
        fold(k)

    game.server._fold = folded
    for name in game.clients:
        game.deliver(name)
    assert len(sums) >= 6
    race = game.server.ledger.races[0]
    for row in game.server.wealths[:5]:
        value, error = values(sums[row["block"]], race.weights, race.clients)
        assert row["champion"] == int(np.argmax((value - error)[0]))
    assert {row["champion"] for row in game.server.wealths} != {0}


@pytest.mark.parametrize("allocation", ["weights", "pace"])
def test_a_record_of_blocks_that_were_announced_early_verifies_and_an_altered_one_does_not(allocation):
    rng = np.random.default_rng(1)
    more = {} if allocation == "pace" else {"allocation": "weights"}
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=1, **more)
    waiting = []
    while experiment.verdict is None:
        for site, times in (("us", 40), ("eu", 10)):
            waiting += experiment.ask_many(site, times)
        told = [waiting.pop(int(rng.integers(len(waiting)))) for _ in range(min(25, len(waiting)))]
        experiment.tell_many(
            (own.token, float(rng.random() < 0.3 + 0.3 * (own.option == "B"))) for own in told
        )
    record = experiment.record()
    events = record.verdict.certificate["server"]["events"]
    assert any(row[0] == "ahead" for row in events)
    assert ba.verify(record).ok
    events.remove(next(row for row in events if row[0] == "ahead"))
    assert not ba.verify(record.sealed()).ok


def test_elsewhere_planning_by_pace_is_planning_by_weights():
    problem = regions(weights={"US": 5, "EU": 1, "ASIA": 2})
    both = [ba.identify(problem, seed=3, allocation=allocation) for allocation in ("pace", "weights")]
    assert both[0].pulls == both[1].pulls
    assert both[0].verdict.arm == both[1].verdict.arm


def test_with_several_open_blocks_each_site_closes_its_own_at_its_own_pace():
    game = Game(regions("each"), delta=1e-9, open_blocks=4)
    for _ in range(5):
        game.turn("US-1")
    server = game.server
    assert [track.closed for track in server.tracks] == [5, 0, 0]
    assert server.rounds == 5
    assert server.missing_clients() == list(game.clients)
    assert [server.together(name) for name in game.clients] == [[name] for name in game.clients]
    assert (game.clients["US-1"].pulls > 100, game.clients["EU-1"].pulls) == (True, 0)


@pytest.mark.parametrize("order", [("US-1", "EU-1", "ASIA-1"), ("ASIA-1", "US-1", "EU-1")])
def test_the_pace_of_other_sites_changes_nothing_for_a_site_of_each(order):
    """One site after the other gives the same wealths and answers as all in step."""
    step = Game(regions("each"), delta=0.1, open_blocks=1)
    verdict = step.go()
    alone = Game(regions("each"), delta=0.1, open_blocks=2)
    for name in order:
        while alone.server.answer_at(name) is None:
            alone.turn(name)
    assert alone.server.verdict is not None
    assert alone.server.verdict.summary == verdict.summary
    for own, other in zip(alone.server.ledger.races, step.server.ledger.races, strict=True):
        assert np.array_equal(own.log_wealth, other.log_wealth)


def test_a_site_that_ends_early_leaves_the_others_of_each_alone():
    groups = {"US": {"A": 0.5, "B": 0.5}, "EU": {"A": 0.1, "B": 0.9}}
    game = Game(regions("each", groups=groups), delta=0.1, open_blocks=2, budget=200)
    for _ in range(50):
        game.turn("US-1")
    assert game.server.verdict is None
    while game.server.verdict is None:
        for name in game.clients:
            game.turn(name)
    answers = {answer.site: answer.answer for answer in game.server.verdict.answers}
    assert answers == {"US": "open", "EU": "best"}


SHOPS = {"US": {"A": 0.3, "B": 0.5}, "EU": {"C": 0.7, "D": 0.4}}


def test_anywhere_with_several_open_blocks_names_the_best_arm_and_its_record_verifies():
    problem = ba.Problem.from_rewards(SHOPS)
    record = ba.identify(problem, seed=2, open_blocks=4)
    assert (record.verdict.arm, record.verdict.answers) == ("EU/C", ())
    assert record.verdict.interval[0] < record.verdict.mean < record.verdict.interval[1]
    assert ba.verify(record).ok
    record.verdict.certificate["server"]["exits"][0]["option"] += 1
    assert not ba.verify(record.sealed()).ok


def test_anywhere_with_several_open_blocks_names_the_options_that_are_left():
    record = ba.identify(ba.Problem.from_rewards(SHOPS), seed=2, open_blocks=4, max_rounds=2)
    assert record.verdict.reason == "rounds"
    assert set(record.verdict.candidates) <= {"US/A", "US/B", "EU/C", "EU/D"}
    assert "EU/C" in record.verdict.candidates


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"epsilon": 0.1, "open_blocks": 2}, "belongs to one champion"),
        ({"byzantine": 1, "open_blocks": 2}, "byzantine"),
        ({"silence": "fill", "open_blocks": 2}, "silence"),
        ({"margin": 0.1, "open_blocks": 2}, "margin"),
        ({"allocation": "pace"}, "open_blocks = 1"),
    ],
)
def test_what_several_open_blocks_do_not_allow_anywhere_is_refused(keys, what):
    with pytest.raises(ba.InputError, match=what):
        ba.identify(ba.Problem.from_rewards(SHOPS), **keys)


def test_the_report_of_anywhere_with_several_open_blocks_says_which_arm_lost_to_which(tmp_path):
    problem = ba.Problem.from_rewards(SHOPS)
    record = ba.identify(problem, seed=2, open_blocks=4)
    layout, options = problem.layout, Bet(open_blocks=4)
    trace = method_for("bet", layout, options).trace(
        Certificate(
            options,
            layout.arm_counts,
            tuple(group.clients for group in layout.groups),
            record.verdict.certificate["server"],
            record.verdict.certificate["local"],
        )
    )
    left = {layout.arm(exit.group, exit.arm): layout.arm(*exit.rival) for exit in trace.exits()}
    assert left == {"US/A": "EU/C", "US/B": "EU/C", "EU/D": "EU/C"}
    assert {(line.group, line.arm) for line in trace.lines()} <= {(0, 0), (0, 1), (1, 0)}
    assert trace.dropped("EU-1") == {1}
    assert {bet.champion for bet in trace.wealths().bets} <= {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert "EU/C" in record.report(tmp_path / "report.html", quick=True).read_text()
