"""What Fed-Bet's machines must make impossible: each point of the list in section 4 of its theory is tried.

The promise (the best arm leaves with probability at most δ) needs bets that use earlier blocks only, and
blocks that are played in full, counted once and in order, with wealths that are never reset.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import random

import numpy as np
import pytest

from bestarm.deploy.federation import files
from bestarm.methods.bet.client import Client
from bestarm.methods.bet.downlink import Down, Last, Named, Renamed
from bestarm.methods.bet.levels import Report
from bestarm.methods.bet.uplink import Part, Tag, encode
from bestarm.protocol.events import Drop, PatienceOver, Pulled, Quiet, Received, Stop
from bestarm.protocol.machine import IllegalEvent
from bestarm.protocol.rounds import SERVER
from federations import Coins, Folds, scenario
from methods.bet.game import Game, Streams
from methods.bet.hostile import adversary, scrambled

MEANS = [[0.7, 0.5, 0.3], [0.65, 0.4], [0.6]]
OPTIONS = {"delta": 0.05, "n1": 8, "q": 1.5}


def play(means=MEANS, seed=1, **options):
    return Game(Streams(means, seed), **(OPTIONS | options))


def bytes_of(bets):
    return None if bets is None else b"".join(np.asarray(part).tobytes() for part in vars(bets).values())


def bets_of(game):
    return {name: bytes_of(client.bets) for name, client in game.clients.items()}


def wealths_of(game):
    return {name: client.log_wealth.tolist() for name, client in game.clients.items()}


def owner_of(game):
    """The client of the open block's champion."""
    return game.names[game.server.champion.group]


def with_other_rewards(game):
    """The same game, with rewards that all change from now on."""
    other = copy.deepcopy(game)
    for row, made in zip(other.streams.rows, other.made.values(), strict=True):
        for rewards, n in zip(row, made, strict=True):
            rewards[n:] = 1 - rewards[n:]
    return other


# 1. Bets of block k that use anything but rewards of blocks < k.


@pytest.mark.parametrize("k", [1, 2, 4])
def test_bets_of_a_block_do_not_depend_on_its_rewards(k):
    game = play()
    game.to_block(k)
    other, before = with_other_rewards(game), bets_of(game)
    for each in (game, other):
        each.go(until=lambda g: not any(g.pulls.values()))  # all pulls of the block are made
        assert each.server.block == k
        assert bets_of(each) == before
    for each in (game, other):
        each.to_block(k + 1)
    now = bets_of(game), bets_of(other)
    assert all(a != b for a, b in zip(*(found.values() for found in now), strict=True) if a and b)
    assert wealths_of(game) != wealths_of(other)


def renaming(seeds=range(20)):
    """Games with hostile champions right after a second naming of a block, for which some have pulled."""
    for seed in seeds:
        rng = random.Random(seed)
        game = play([[0.5, 0.5], [0.5, 0.5], [0.5]], seed, delta=0.99, n1=2, max_rounds=10)
        while not game.over and not game.server.naming:
            moves = list(game.moves())
            move, name = moves[rng.randrange(len(moves))]
            move(name)
        if game.server.naming and any(client.fresh.count.any() for client in game.clients.values()):
            yield game


def test_a_second_naming_and_its_bets_do_not_depend_on_pulls_already_made():
    """A client that has pulled for the block fixes its bets anew from earlier blocks; its pulls count."""
    game = play()
    game.to_block(2)
    name = next(n for n in game.names if n != owner_of(game))
    found = []
    for flip in (False, True):
        each = with_other_rewards(game) if flip else copy.deepcopy(game)
        client = each.clients[name]
        each.pull(name, 2)
        fresh = client.fresh
        named = Named(*each.server.closed.name, None, 3)
        each.tell(name, Received(SERVER, Renamed(named).encode(client.wire)[0]))
        assert client.naming == 1
        assert client.fresh is fresh
        found.append((bytes_of(client.bets), fresh.total.tolist()))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_the_server_names_again_from_standings_of_the_closed_block_only():
    with adversary():
        games = list(renaming())
        assert len(games) >= 3
        for game in games:
            server = game.server
            assert not server.parts
            assert not server.standings
            assert server.report is None
            sent = [s.arm for s in server.candidates.values()]
            assert server.champion.arm in (*sent, server.closed.arm)


# 2. Skipping, cutting, joining late or abandoning a block, then going on.


def test_a_block_is_cut_by_nobody():
    """Fewer pulls lead to a request for the rest, never to a part of the block."""
    game = play()
    game.to_block(2)
    before = wealths_of(game)
    for name in game.names:
        while game.pulls[name]:
            actions = game.pull(name, 1)
        assert len(game.ups[name]) == 1
        assert len(actions) == 1
        client = game.clients[name]
        need = np.where(client.inside, client.step, 0)
        if owner_of(game) == name:
            need[game.server.champion.arm] *= client.ratio
        assert client.fresh.count.tolist() == need.tolist()
    assert wealths_of(game) == before
    with pytest.raises(IllegalEvent):
        game.tell(game.names[0], Pulled((1.0, 1.0, 1.0), 1))


def test_a_client_that_stops_in_mid_block_ends_the_run_and_the_block_does_not_count():
    for k in (1, 3):
        game = play(delta=0.001, budget=10**6)
        game.to_block(k)
        before = wealths_of(game)
        game.pull("c0", 1)
        game.pulls["c0"] = None
        game.tell("c0", Stop("operator"))
        verdict = game.go()
        assert (verdict.status, verdict.reason) == ("undecided", "budget")
        assert wealths_of(game) == before
        assert {*verdict.candidates} == {"g0/a0", "g0/a1", "g0/a2", "g1/a0", "g1/a1", "g2/a0"}


def test_an_operator_s_stop_in_mid_block_counts_nothing_of_it():
    game = play(delta=0.001)
    game.to_block(2)
    before = wealths_of(game)
    game.pull("c1")
    game.up("c1")
    game.tell(SERVER, Stop("deadline"))
    assert game.server.verdict.status == "undecided"
    while any(game.downs.values()):
        game.down(next(name for name in game.names if game.downs[name]))
    assert wealths_of(game) == before


@pytest.mark.parametrize("absent", ["c0", "c1", "c2"])
def test_no_block_is_closed_without_the_part_of_every_client(absent):
    game = play()
    game.to_block(2)
    sent = len(game.server.said)
    game.go(silent={absent})
    assert game.server.missing_clients() == [absent]
    assert (game.server.block, len(game.server.said), game.server.state) == (2, sent, "waiting")


def test_a_client_in_mid_block_ignores_the_end_of_the_block():
    """No such message can be honest; counting it would cut the block."""
    game = play()
    game.to_block(2)
    server, name = game.server, next(n for n in game.names if n != owner_of(game))
    report = Report.of(server.ratio * server.step, server.n, 1, 1, 0.0, True)
    champion = Named(server.champion.group, server.champion.arm, None, 1)
    for message in (Down(report, champion), Last(True, report)):
        client, pull = game.clients[name], game.pulls[name]
        before = copy.deepcopy(client.local()), client.block, client.log_wealth.tolist()
        assert game.tell(name, Received(SERVER, message.encode(client.wire)[0])) == []
        assert (client.local(), client.block, client.log_wealth.tolist()) == before
        assert game.pulls[name] == pull


# 3. Counting blocks out of order or twice, or a second version of a report.


def test_the_same_part_twice_counts_once_and_a_different_one_proves_a_fault():
    game = play()
    game.to_block(2)
    owner = owner_of(game)
    game.pull(owner)
    part = game.ups[owner][0]
    game.up(owner)
    report, missing = game.server.report, game.server.missing
    assert game.tell(SERVER, Received(owner, part)) == []
    assert (game.server.report, game.server.missing, game.server.faulty) == (report, missing, [])
    client = game.clients[owner]
    context = game.server.context(game.names.index(owner))
    said = client.sent[-1]
    other = Report(report.count, report.bits, ((report.levels[0] + 1) % (report.count + 1),))
    again, _ = encode(Part(None, said.standing, other), context)
    assert again != part
    game.tell(SERVER, Received(owner, again))
    assert [row["client"] for row in game.server.faulty] == [owner]
    assert game.server.verdict.status == "undecided"
    assert game.server.report == report


def test_the_order_of_messages_and_pulls_changes_nothing():
    """Clients work at their own pace: wealths, exits and the verdict stay the same."""
    plain = play()
    plain.go()
    assert plain.server.verdict.arm == "g0/a0"
    for seed in range(12):
        game = play()
        game.shuffle(random.Random(seed))
        assert game.server.verdict == plain.server.verdict
        for name in game.names:
            ours, theirs = game.clients[name].local(), plain.clients[name].local()
            assert ours["wealth"] == theirs["wealth"]
            assert ours["exits"] == theirs["exits"]
        assert not game.server.faulty


def test_renamings_in_any_order_convict_nobody_and_lose_no_count():
    """Parts that cross a second naming are discarded, but both ends agree on how many arms are in."""
    with adversary():
        renamed = 0
        for seed in range(40):
            rng = random.Random(seed)
            means = [[0.5] * rng.randint(1, 3) for _ in range(rng.randint(2, 4))]
            game = play(means, seed, delta=0.99, n1=1, max_rounds=8)
            while not game.over:
                moves = list(game.moves())
                move, name = moves[rng.randrange(len(moves))]
                move(name)
                renamed += game.server.naming > 0
                for j, n in enumerate(game.names):
                    if not (game.over or game.server.ends or game.ups[n] or game.downs[n]):
                        assert game.clients[n].known == game.server.left[j]
            assert not game.server.faulty
            assert game.server.verdict.reason in (None, "rounds")
        assert renamed > 100


@pytest.mark.parametrize("seed", range(3))
def test_over_a_network_that_repeats_and_reorders_messages_every_block_counts_once(seed, tmp_path):
    case = scenario("bet", delta=0.1, n1=8)
    files.init(case, tmp_path / "f", port=0)
    coins, wealths = Coins(case.problem), []
    for rng in (None, random.Random(seed)):
        for path in (tmp_path / "f").rglob("journal.db*"):
            path.unlink()
        folds = Folds(tmp_path / "f", coins, rng)
        record = folds.go()
        assert record.verdict.arm == "west/a"
        assert not record.proven_faulty
        wealths.append({name: site.machine.local()["wealth"] for name, site in folds.sites.items()})
        folds.check_pulls()
        folds.close()
    assert wealths[0] == wealths[1]


# 4. Making a block void because a part did not come.


@pytest.mark.parametrize("when", ["before its pulls", "in the middle", "before it has sent its part"])
def test_a_champion_s_client_that_dies_in_mid_block_resumes_by_replay(when):
    plain = play()
    plain.go()
    game = play()
    for k in range(1, 20):
        game.go(until=lambda g, k=k: g.server.block == k and not any(g.downs.values()))
        if game.over:
            break
        owner = owner_of(game)
        if when == "in the middle":
            game.pull(owner, max(1, game.pulls[owner].times // 2))
        elif when == "before it has sent its part":
            game.pull(owner)
        died = game.clients[owner]
        game.clients[owner] = Client(game.layout, owner, game.options)
        for event in game.log[owner]:
            game.clients[owner].handle(event)
        assert game.clients[owner].local() == died.local()
        assert bytes_of(game.clients[owner].bets) == bytes_of(died.bets)
    assert k > 3
    assert game.server.verdict == plain.server.verdict
    assert wealths_of(game) == wealths_of(plain)


@pytest.mark.parametrize("event", [PatienceOver, Quiet])
def test_if_the_champion_s_client_stays_silent_the_run_ends_undecided(event):
    game = play(delta=0.001)
    game.to_block(3)
    owner, before = owner_of(game), wealths_of(game)
    game.go(silent={owner})
    assert game.server.state == "waiting"
    game.tell(SERVER, PatienceOver(game.server.round) if event is PatienceOver else Quiet(spent=False))
    verdict = game.server.verdict
    assert (verdict.status, verdict.reason) == ("undecided", "silence")
    assert len(verdict.candidates) == 6
    assert wealths_of(game) == before


# 5. Resetting a wealth.


def by_hand(bets, arm, champion, rival):
    """ln Σ weight · Π(1 + stake(x − m)) · Π(1 − c·stake(x − m)), reward by reward."""
    m, c, terms = float(bets.centre[arm]), float(bets.ratio[arm]), []
    for stake, weight in zip(bets.stakes[arm].tolist(), bets.weights[arm].tolist(), strict=True):
        up = math.fsum(math.log(1 + stake * (x - m)) for x in champion)
        down = math.fsum(math.log(1 - c * stake * (x - m)) for x in rival)
        terms.append(math.log(weight) + up + down)
    top = max(terms)
    return top + math.log(math.fsum(math.exp(term - top) for term in terms))


@pytest.mark.parametrize("seed", range(4))
def test_a_wealth_is_the_running_product_of_its_factors_also_under_new_champions(seed):
    with adversary(scrambled):
        check_running_products(play([[0.5, 0.5, 0.4], [0.5, 0.4], [0.5]], seed, delta=0.001, max_rounds=9))


def check_running_products(game):
    """Compare the wealths after each block with sums of logarithms that are added up here."""
    totals = {name: np.zeros(client.arms) for name, client in game.clients.items()}
    champions, below = set(), False
    for k in range(1, 8):
        game.to_block(k)
        champions.add(game.server.champion.name)
        start, champion = copy.deepcopy(game.made), game.server.champion
        rivals = {name: np.flatnonzero(client._rivals).tolist() for name, client in game.clients.items()}
        bets = {name: client.bets for name, client in game.clients.items()}
        while game.server.block == k and not game.server.ends:
            game.step()
        while any(game.downs.values()):
            game.down(next(name for name in game.names if game.downs[name]))

        def fresh(j, arm, start=start):
            name = game.names[j]
            return game.streams.rows[j][arm][start[name][arm] : game.made[name][arm]].tolist()

        for j, name in enumerate(game.names):
            for i, arm in enumerate(rivals[name]):
                totals[name][arm] += by_hand(bets[name], i, fresh(*champion.name), fresh(j, arm))
            np.testing.assert_allclose(game.clients[name].log_wealth, totals[name], rtol=1e-9, atol=1e-9)
            below = below or bool((totals[name] < 0).any())
    assert len(champions) > 1
    assert below  # wealths below 1 stay below 1


# 6. A verdict while a client that has arms in is silent; an operator's drop.


@pytest.mark.parametrize("absent", ["c0", "c1", "c2"])
def test_there_is_no_verdict_while_a_client_with_arms_is_silent(absent):
    for k in (0, 1, 3):
        game = play()
        game.go(until=lambda g, k=k: g.server.block == k)
        game.go(silent={absent})
        assert game.server.verdict is None
        assert game.server.missing_clients() == [absent]


def test_without_a_client_that_was_champion_all_others_begin_again():
    game = play(delta=0.3)
    game.to_block(1)
    first = owner_of(game)
    game.go(until=lambda g: any(not c.inside.all() for n, c in g.clients.items() if n != first))
    others = [name for name in game.names if name != first]
    assert not game.over
    assert any(game.clients[name].exits for name in others)
    game.tell(SERVER, Drop(first))
    game.go(silent={first}, until=lambda g: not any(g.downs[name] for name in others))
    start = copy.deepcopy(game.made)
    for name in others:
        client = game.clients[name]
        assert (client.epoch, client.block, client.n) == (1, 0, 0)
        assert client.inside.all()
        assert client.known == client.arms
        assert client.log_wealth.tolist() == [0.0] * client.arms
        assert not client.sums.count.any()
    assert game.server.epoch == 1
    dropped = game.names.index(first)
    assert game.server.left.tolist() == [
        0 if j == dropped else client.arms for j, client in enumerate(game.clients.values())
    ]
    game.go(silent={first}, until=lambda g: all(g.clients[name].block == 1 for name in others))
    for j, name in enumerate(game.names):
        if name != first:
            client = game.clients[name]
            assert client.sums.count.tolist() == [game.options.n1] * client.arms
            rows = zip(game.streams.rows[j], start[name], strict=True)
            assert client.sums.total.tolist() == [float(r[n : n + game.options.n1].sum()) for r, n in rows]
    verdict = game.go(silent={first})
    assert verdict.status == "identified"
    assert not verdict.arm.startswith(f"g{dropped}")
    assert game.server.warnings


def test_without_a_client_that_was_never_champion_the_others_go_on():
    game = play([[0.7, 0.5], [0.65, 0.4], [0.1, 0.1]], delta=1e-9)
    game.to_block(3)
    assert 2 not in game.server.was_champion
    before = wealths_of(game)
    game.tell(SERVER, Drop("c2"))
    assert (game.server.epoch, game.server.block, game.server.left.tolist()) == (0, 3, [2, 2, 0])
    assert wealths_of(game) == before
    verdict = game.go(silent={"c2"})
    assert verdict.arm == "g0/a0"
    assert all(client.epoch == 0 for client in game.clients.values())


@pytest.mark.parametrize("hostile", [False, True])
def test_a_drop_at_any_moment_convicts_nobody_and_the_run_ends_without_the_client(hostile):
    restarted = 0
    with adversary() if hostile else contextlib.nullcontext():
        for seed in range(25):
            rng = random.Random(seed)
            game = play(seed=seed, delta=0.3, n1=2, max_rounds=14)
            for name in rng.sample(game.names, 2):
                game.shuffle(rng, steps=rng.randrange(60))
                if not game.over:
                    game.tell(SERVER, Drop(name))
            gone = game.server.gone
            game.shuffle(rng, silent=gone)
            assert game.over, game.server.missing_clients()
            assert not game.server.faulty
            restarted += game.server.epoch > 0
            left = {game.names.index(name) for name in gone}
            verdict = game.server.verdict
            told = (verdict.arm,) if verdict.arm else verdict.candidates
            if gone and told:
                assert not any(arm.startswith(f"g{j}/") for arm in told for j in left)
            for j, client in enumerate(game.clients.values()):
                if client.name not in gone:
                    inside = {game.layout.arm(j, int(a)) for a in np.flatnonzero(client.inside)}
                    assert inside <= {*told}
    assert restarted > 5


def test_messages_from_before_the_restart_count_for_nothing():
    game = play()
    game.to_block(2)
    first = owner_of(game)
    late = next(name for name in game.names if name != first)
    game.pull(late)
    part = game.ups[late].pop()
    game.tell(SERVER, Drop(first))
    assert game.server.epoch == 1
    waiting = game.server.waiting.tolist()
    assert game.tell(SERVER, Received(late, part)) == []
    assert game.server.waiting.tolist() == waiting
    assert not game.server.standings
    assert not game.server.faulty
    assert game.go(silent={first}).status == "identified"


# 7. Reports without run, block, arm and client.


def test_a_report_for_an_earlier_naming_is_not_counted():
    with adversary():
        counted = 0
        for game in renaming(range(20)):
            server = game.server
            old = Tag(server.epoch, server.naming - 1)
            j = server.champion.group
            context = server.context(j)
            report = Report.of(context.report, server.n, 0, 0, 0.0, True)
            for tag in (old, Tag(server.epoch, server.naming + 1)):
                stale, _ = encode(Part(None, None, report), dataclasses.replace(context, tag=tag))
                each = copy.deepcopy(game)
                each.tell(SERVER, Received(game.names[j], stale))
                assert each.server.report is None
                assert bool(each.server.faulty) == (tag is not old)
                assert each.server.block == server.block
            counted += 1
        assert counted


def test_a_report_by_another_client_than_the_champion_s_proves_a_fault_and_is_not_counted():
    game = play()
    game.to_block(2)
    other = next(j for j, name in enumerate(game.names) if name != owner_of(game))
    context = game.server.context(game.server.champion.group)
    report = Report.of(context.report, context.n, 1, 1, 0.0, True)
    data, _ = encode(Part(None, None, report), context)
    game.tell(SERVER, Received(game.names[other], data))
    assert game.server.report is None
    assert [row["client"] for row in game.server.faulty] == [game.names[other]]
    assert game.server.verdict.status == "undecided"


def test_messages_of_strangers_and_of_dropped_clients_are_ignored():
    game = play()
    game.to_block(2)
    owner = owner_of(game)
    game.pull(owner)
    data = game.ups[owner].pop()
    assert game.tell(SERVER, Received("stranger", data)) == []
    assert game.server.report is None
    game.tell(SERVER, Drop(owner))
    assert game.tell(SERVER, Received(owner, data)) == []
    assert game.server.report is None
    assert game.server.ignored == 2


def test_a_client_takes_messages_of_the_server_only():
    game = play()
    game.to_block(1)
    client, name = game.clients["c0"], owner_of(game)
    report = Report.of(client.ratio * client.step, client.n, 1, 1, 0.0, True)
    forged = Down(report, Named(*client.champion.name, None, 1)).encode(client.wire)[0]
    before = copy.deepcopy(client.local())
    assert game.tell("c0", Received(name if name != "c0" else "c1", forged)) == []
    assert client.local() == before
    assert client.block == 1
