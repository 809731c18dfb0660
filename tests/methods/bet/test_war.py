"""Among liars the tested wealth never exceeds what the proofs compare it with, whatever comes when.

These are statements without probability: they hold for every run, whatever honest clients' rewards are.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from war import REWARDS, War

from bestarm import Problem
from bestarm.methods.bet import robust, sites
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.robust import decisions as robust_decisions
from bestarm.methods.bet.sites.decisions import TRIMMED_STAKES, TrimmedRace
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Sides
from marking import examples

BETA = {"kind": "beta", "a": 1, "b": 1}  # rewards that are not 0/1: what they are, only the war knows


def some_liars(rng, members, f):
    """At most f of these."""
    return rng.sample(members, rng.randint(0, f))


def war_of_groups(rng, rewards):
    f = rng.choice([1, 1, 2])
    counts, clients = [2, rng.choice([1, 2])], [2 * f + 1 + rng.choice([0, 0, 1]) for _ in range(2)]
    model = 0.5 if rewards == "coins" else BETA
    rows = {f"g{j}": {f"a{k}": model for k in range(n)} for j, n in enumerate(counts)}
    problem = Problem.from_rewards(rows, clients=clients)
    ends = [0, clients[0], sum(clients)]
    liars = {i for a, b in itertools.pairwise(ends) for i in some_liars(rng, range(a, b), f)}
    options = Bet(
        delta=rng.choice([0.3, 0.01, 1e-6]), byzantine=f, n1=rng.choice([1, 3, 24]),
        q=rng.choice([1.05, 1.5, 3.0]), max_rounds=8,
    )  # fmt: skip
    return War(
        problem, rewards, rng, liars, robust.Server, robust.Client, options,
        due=lambda client: client.block.pulls(client.group),
    )  # fmt: skip


def most_of_groups(war, arm):
    """ln Σ M_{A,B} of Theorem 4 over all choices of honest clients, from their true rewards."""
    server, f = war.server, war.options.byzantine
    pool, home = server.pool, int(server.pool.group[arm])
    logs = {}  # (whether they gave the champion, group) -> client -> true logarithms
    stakes = server.ledger.lost.shape[-1]
    for k in range(1, len(server.history)):  # closed blocks with bets
        bets, block = server.bets[k], server.played[k]
        if arm not in bets.rivals:
            continue
        at = int(np.flatnonzero(bets.rivals == arm)[0])
        champion = int(pool.group[bets.champion])
        for gave, j, whose, stake in (
            (False, home, arm, -bets.rival_stakes[at]),
            (True, champion, bets.champion, bets.stakes[at]),
        ):
            own, place = logs.setdefault((gave, j), {}), whose - pool.own[j].start
            for i in war.honest:
                if war.group[i] == j:
                    x = war.of(i, k, place, int(block.pulls(j)[place]))
                    new = np.log1p(stake[:, None] * (x - bets.centre[at])).sum(axis=1)
                    own.setdefault(i, np.zeros(stakes))[: len(new)] += new
    choices = [itertools.combinations(own.values(), int(pool.kept[j])) for (_, j), own in logs.items()]
    sums = np.array([np.sum(list(map(sum, chosen)), axis=0) for chosen in itertools.product(*choices)])
    ways = math.prod(math.comb(pool.members[j].stop - pool.members[j].start - f, f) for _, j in logs)
    return float(betting.log_mean_exp(robust_decisions.log_wealth(sums), 1.0)) - math.log(ways)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(sorted(REWARDS)), st.integers(0, 2**32))
def test_the_wealth_among_liars_is_at_most_that_of_the_choices_of_honest_clients(rewards, seed):
    """Theorem 4: lies, late parts, patience and drops; rewards of any kind, rounded by the messages."""
    war, seen = war_of_groups(random.Random(seed), rewards), None
    for _ in range(1000):
        if war.step(drop=0.0005) and len(war.server.history) > 1:
            told = war.server.ledger.log_wealth()
            changed, seen = told.tolist() != seen, told.tolist()
            for arm in np.flatnonzero(war.server.ledger.met.any(axis=1)) if changed else ():
                assert told[arm] <= most_of_groups(war, arm) + 1e-7
        assert not war.server.out[war.honest].any()
        if war.server.state == "done":
            break


def war_of_sites(rng, rewards):
    f = rng.choice([1, 1, 2])
    number, options = 2 * f + 1 + rng.choice([0, 1, 4]), rng.choice([2, 2, 3])
    model = 0.5 if rewards == "coins" else BETA
    rows = {f"s{j}": {f"o{k}": model for k in range(options)} for j in range(number)}
    clients = [rng.choice([1, 1, 2]) for _ in range(number)]
    problem = Problem.from_rewards(rows, clients=clients)
    weights = {name: rng.choice([1.0, 1.0, 3.0]) for name in rows}
    problem = problem.asking("overall", weights=weights)
    lying = some_liars(rng, range(number), f)
    home = [j for j, n in enumerate(clients) for _ in range(n)]
    options = Bet(
        delta=rng.choice([0.5, 0.3, 1e-6]), byzantine=f, n1=rng.choice([None, 1, 5]),
        q=rng.choice([1.2, 1.5, 3.0]), max_rounds=8, open_blocks=rng.choice([1, 1, 3]),
        allocation=rng.choice(["weights", "equal", "neyman"]),
    )  # fmt: skip
    return War(
        problem, rewards, rng, {i for i, j in enumerate(home) if j in lying}, sites.Server, sites.Client,
        options, due=lambda client: client.pulls_due,
    )  # fmt: skip


def most_of_sites(war, option):
    """The logarithm of the wealth of the true rewards of the honest sites, to the power of the proof."""
    server, f = war.server, war.options.byzantine
    (race,) = server.ledger.races
    left = [row["block"] for row in server.exits if row["option"] == option]
    total = np.zeros(TRIMMED_STAKES)
    parts = [0] * len(war.names)
    for k, (block, stands, _, _, before) in enumerate(server.closed):
        part, champion = parts.copy(), int(stands[0].champion[0]) if stands else option
        parts = [n + bool(block.pulls[0, i].any()) for i, n in enumerate(parts)]
        if champion == option or (left and k > left[0]):
            continue
        clients = race.clients
        up, down = (0, clients, champion), (0, clients, option)
        bets = contrasts.contrast_bets(
            before.sums.at(up), before.sums.at(down), Sides.of(block.pulls[up], block.pulls[down]),
            Sides(race.weights[up[1:]], race.weights[down[1:]]), TRIMMED_STAKES,
        )  # fmt: skip
        for c, i in enumerate(clients.tolist()):
            if i in war.honest:
                for place, share, centre in (
                    (up, bets.share.up, bets.centres.up),
                    (down, -bets.share.down, bets.centres.down),
                ):
                    x = war.of(i, part[i], place[2], int(block.pulls[0, i, place[2]]))
                    total += np.log1p(bets.stakes[:, None] * share[c] * (x - centre[c])).sum(axis=1)
    present = {war.group[i] for i in race.clients.tolist()}
    lying = {war.group[i] for i in war.liars} & present
    power = 1.0 - (f - len(lying)) / (len(present) - len(lying))
    return float(betting.log_mean_exp(power * total, TrimmedRace.prior))


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(sorted(REWARDS)), st.integers(0, 2**32))
def test_the_wealth_among_lying_sites_is_at_most_that_of_the_honest_ones(rewards, seed):
    """Several open blocks, weights, late and missing parts, and sites that the operator drops."""
    war, seen = war_of_sites(random.Random(seed), rewards), None
    honest = {war.names[i] for i in war.honest}
    for _ in range(1000):
        if war.step(drop=0.0005) and len(war.server.closed) > 1:
            told = war.server.ledger.races[0].log_wealth[0]
            changed, seen = told.tolist() != seen, told.tolist()
            for option in np.flatnonzero(told) if changed else ():
                assert told[option] <= most_of_sites(war, option) + 1e-7
        assert not honest & {fault["client"] for fault in war.server.faulty}
        if war.server.state == "done":
            break


@pytest.mark.parametrize("war_of", [war_of_groups, war_of_sites])
def test_wars_get_somewhere(war_of):
    """Or the tests above would say little: blocks are closed if nobody loses patience, and arms leave."""
    blocks, exits = 0, 0
    for seed in range(20):
        war = war_of(random.Random(seed), "coins")
        for _ in range(1500):
            war.step(patience=0.0)
            if war.server.state == "done":
                break
        blocks, exits = blocks + len(war.server.history), exits + len(war.server.exits)
    assert blocks > 80
    assert exits > 2
