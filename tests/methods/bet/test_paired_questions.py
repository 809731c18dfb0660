"""Questions about pairs: options are compared subject by subject, so dependence inside a pair is harmless."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections import defaultdict

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paired_game import drops

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.client import Client
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.messages import Leg, Plan, Report, Wire, decode, decode_down, encode
from bestarm.methods.bet.sites.messages import Part as SitePart
from bestarm.problem.layout import Group, Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Pull, Pulled, Start, Supply
from bestarm.protocol.machine import IllegalEvent
from bestarm.simulate.draw import Drawn
from marking import examples, slow_but
from rates import rate_exceeds

TIED = [(0.6, 0.4), (0.3, 0.5)]  # the sites prefer different options, and their average ties


def paired(tables, paired=True):
    """The problem whose recordings are these, by site and option: lists over the same subjects."""
    groups, rewards = [], []
    for j, table in enumerate(tables):
        models = tuple(ba.Recording(tuple(map(float, values))) for values in table.values())
        groups.append(Group(f"s{j}", tuple(table), (f"c{j}",), all(m.binary for m in models)))
        rewards.append(models)
    return ba.Problem(Layout(tuple(groups), finite=True, paired=paired), tuple(rewards))


def scores(rng, means, rows, coins=True, share=0.8):
    """Scores of one site: each option agrees with a common difficulty of the subject, mostly."""
    hard = rng.random(rows)
    table = {}
    for k, mean in enumerate(means):
        x = np.where(rng.random(rows) < share, hard, rng.random(rows)) < mean
        table["abcdefgh"[k]] = x if coins else 0.6 * x + 0.4 * rng.random(rows)
    return table


def stored(plain):
    """The record with this content, as a file would hold it."""
    return msgspec.json.decode(msgspec.json.encode(plain), type=ba.Record)


# Validity


@pytest.mark.parametrize("correlation", slow_but([-1], [1, 0, -1]))
def test_a_tied_option_is_dropped_with_probability_at_most_delta_whatever_the_correlation(correlation):
    """20,000 tied data sets. Null: each option is dropped with probability at most δ = 0.05.

    False-alarm rate 1e-6 (exact binomial test); a rate of 0.06 is seen with probability above 0.9.
    """
    found = drops(np.random.default_rng(1), 20_000, TIED, correlation, True, 800, delta=0.05)
    assert not any(rate_exceeds(int(out.sum()), len(out), 0.05) for out in found.T)
    assert correlation > 0 or found.any()  # the bets are not idle


def test_multiplying_the_factors_of_dependent_rewards_would_break_delta():
    """The same game on the same data without pairs: negative correlation doubles the spread of a contrast."""
    found = drops(np.random.default_rng(1), 20_000, TIED, -1, False, 800, delta=0.05)
    rates = found.mean(axis=0)
    assert (rates > 0.055).all()
    assert rate_exceeds(int(found.any(axis=1).sum()), len(found), 0.1)  # one of both, which a union allows


def test_pairs_decide_with_fewer_rows_where_scores_of_a_subject_agree():
    """Nine pairs of ten share their difficulty, so the variance of a difference is .15 instead of .5."""
    rng = np.random.default_rng(2)
    rows = defaultdict(list)
    for seed in range(6):
        tables = [scores(rng, (0.5, 0.6), 2000, share=0.95) for _ in range(2)]
        for is_paired in (True, False):
            record = ba.identify(paired(tables, is_paired).asking("overall"), seed=seed)
            assert record.verdict.arm == "b"
            rows[is_paired].append(record.pulls.total)
    assert np.mean(rows[True]) < 0.6 * np.mean(rows[False])


# Machines, records and replay


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 10**6), st.booleans(), st.sampled_from(["overall", "each", "control"]), st.integers(1, 3)
)
def test_runs_on_pairs_can_be_verified_and_repeated(seed, coins, kind, blocks):
    rng = np.random.default_rng(seed)
    options = int(rng.integers(2, 5))
    tables = [
        scores(rng, rng.choice([0.2, 0.5, 0.7], options), int(rng.integers(30, 200)), coins)
        for _ in range(int(rng.integers(1, 4)))
    ]
    keys = {"control": "a"} if kind == "control" else {}
    margin = {"margin": float(rng.choice([0.0, 0.1]))} if kind == "control" else {}
    problem = paired(tables).asking(kind, **keys)
    record = ba.identify(problem, seed=seed, delta=0.1, open_blocks=blocks, **margin)
    assert ba.verify(record, replay=True).failures == ()
    assert ba.verify(stored(record.to_dict())).failures == ()
    for answer in record.verdict.answers:
        if answer.interval is not None:
            assert answer.interval[0] <= answer.value <= answer.interval[1]


def by_hand(problem, record, weights):
    """The wealths of a run, by a product over the rows of the data, stake by stake."""
    rows = [np.array([model.values for model in models]) for models in problem.rewards]
    server = record.verdict.certificate["server"]
    ends = [row["pulls"] for row in server["rounds"]]
    seen = {}  # (b, a) -> the rows in which they met, by site
    logs, found = defaultdict(float), {}
    for k, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        wealth = [row for row in server["wealth"] if row["block"] == k]
        champion = wealth[0]["champion"] if wealth else 0
        for a in wealth[0]["option"] if wealth else ():
            if a == champion:
                continue
            factor, b, n = 0.0, champion, end - start
            v, gap, error = [], [], []
            for x in rows:
                n0 = start
                p = [(x[o, :n0].sum() + 0.5) / (n0 + 1) for o in (b, a)]
                q = [((x[o, :n0] ** 2).sum() + 0.5) / (n0 + 1) for o in (b, a)]
                met = [i for i in range(n0) if i in seen.get((b, a), ())]
                d = x[b, met] - x[a, met]
                prior = sum(q) - p[0] ** 2 - p[1] ** 2 + (p[0] - p[1]) ** 2
                v.append(((d**2).sum() + 4 * prior) / (len(met) + 4))
                gap.append(p[0] - p[1])
                error.append(v[-1] / n0)
            share = [w / n for w in weights]
            stakes = max(9, math.ceil(math.log2(start * len(rows))) + 1)
            grid = [0.75 / max(share) * 2 ** (-g / 2) for g in range(stakes)]
            spread = sum(w * s * own for w, s, own in zip(weights, share, v, strict=True))
            lead = sum(w * g for w, g in zip(weights, gap, strict=True))
            noise = sum(w**2 * e for w, e in zip(weights, error, strict=True))
            fit = [math.exp(-((stake * spread - lead) ** 2) / (2 * noise)) for stake in grid]
            for stake, own in zip(grid, fit, strict=True):
                product = math.prod(
                    1 + stake * s * (x[b, i] - x[a, i])
                    for x, s in zip(rows, share, strict=True)
                    for i in range(start, end)
                )
                factor += (0.02 / stakes + 0.98 * own / sum(fit)) * product
            logs[a] += math.log(factor)
        found[k] = dict(logs)
        inside = wealth[0]["option"] if wealth else range(len(rows[0]))
        for o in inside:
            for pair in ((champion, o), (o, champion)):
                seen.setdefault(pair, set()).update(range(start, end))
    return found


def test_wealths_are_products_over_the_rows_of_the_data():
    rng = np.random.default_rng(4)
    problem = paired([scores(rng, (0.5, 0.6, 0.55), 300), scores(rng, (0.4, 0.45, 0.5), 300)])
    record = ba.identify(problem.asking("overall"), seed=1, delta=1e-9)
    expected = by_hand(problem, record, (0.5, 0.5))
    rows = record.verdict.certificate["server"]["wealth"]
    assert len(rows) > 5
    assert len({row["champion"] for row in rows}) > 1
    for row in rows:
        for option, log_wealth in zip(row["option"], row["log_wealth"], strict=True):
            assert log_wealth == pytest.approx(expected[row["block"]].get(option, 0.0), abs=1e-9)


@pytest.mark.parametrize("kind", ["overall", "control"])
@pytest.mark.parametrize("coins", [True, False])
def test_the_order_of_a_site_s_options_changes_nothing(kind, coins):
    rng = np.random.default_rng(9)
    tables = [scores(rng, (0.5, 0.6, 0.55), 300, coins) for _ in range(3)]
    other = [tables[0], *(dict(reversed(table.items())) for table in tables[1:])]
    keys = {"control": "b"} if kind == "control" else {}
    first, second = (ba.identify(paired(t).asking(kind, **keys), seed=1, n1=8) for t in (tables, other))
    assert first.verdict.answers == second.verdict.answers
    # The first pulls may be compared with another option, which only tunes stakes; a control is always it.
    if kind == "control":
        rows = [record.verdict.certificate["server"]["wealth"] for record in (first, second)]
        assert rows[0] == rows[1]


def test_the_wealth_of_ratings_is_less_than_the_product_over_rows():
    rng = np.random.default_rng(5)
    problem = paired([scores(rng, (0.5, 0.6), 400, coins=False)])
    record = ba.identify(problem.asking("each"), seed=1, delta=1e-9)
    row = record.verdict.certificate["server"]["wealth"][-1]
    wealth = dict(zip(row["option"], row["log_wealth"], strict=True))
    exact = by_hand(problem, record, (1.0,))[row["block"]]
    assert wealth[0] <= exact[0] + 1e-6
    assert wealth[0] > 0.75 * exact[0] > 3


def test_every_option_that_is_in_is_pulled_once_for_each_subject():
    rng = np.random.default_rng(6)
    problem = paired([scores(rng, (0.3, 0.5, 0.55, 0.5), 500)])
    record = ba.identify(problem.asking("overall"), seed=1, delta=0.1)
    batches = record.verdict.certificate["local"]["c0"]["batches"]
    assert all(set(batch["each"]) == {1} for batch in batches)
    assert all(batch["against"] in batch["arms"] for batch in batches)
    assert len(batches[-1]["arms"]) < 4  # somebody left


def test_a_subject_is_used_up_for_the_options_that_did_not_take_part():
    problem = paired([{"a": [0, 0, 1], "b": [1, 1, 1], "c": [0, 1, 0]}])
    source = Drawn(problem, 1)
    assert source.draw(0, Pull((0, 1), 2, against=1), 2) == Pulled(
        (0.0, 2.0), 2, pairs=((2.0, 2.0, 1.0, 1.0), (1.0, 0.5, 0.5, 0.5))
    )
    assert source.draw(0, Pull((0, 1, 2), 5, against=0), 5).sums == (1.0, 1.0, 0.0)
    assert source.draw(0, Pull((2,), 1, against=2), 1) is None


def test_a_run_resumes_from_its_journal(tmp_path):
    rng = np.random.default_rng(7)
    for coins in (True, False):
        problem = paired([scores(rng, (0.5, 0.55), 200, coins)]).asking("overall")
        path = tmp_path / f"{coins}.db"
        first = ba.identify(problem, seed=1, journal=path)
        assert ba.identify(problem, seed=1, journal=path).to_dict() == first.to_dict()


def test_an_audit_finds_differences_that_do_not_fit_the_rewards():
    rng = np.random.default_rng(8)
    record = ba.identify(paired([scores(rng, (0.5, 0.55), 200)]).asking("overall"), seed=1)
    plain = record.to_dict()
    batch = plain["verdict"]["certificate"]["local"]["c0"]["batches"][2]
    other = 1 - batch["against"]
    batch["pairs"][other][1] += 0.5  # one more subject at which they differ, either way
    found = ba.verify(stored(plain)).failures
    assert any(failure.startswith("client c0 ") for failure in found)
    batch["pairs"][other][0] += 0.5
    found = ba.verify(stored(plain)).failures
    assert "client c0 has rewards that do not match the pulls of the run" in found


def test_a_client_refuses_pairs_that_nobody_asked_for_or_that_are_impossible():
    problem = paired([{"a": [0] * 50, "b": [1] * 50}]).asking("overall")
    for pairs in ((), ((12.0, 6.0, 0.5, 0.5),) * 2, ((12.0, 6.0, 0.5, 0.5), (0.0, 1.0, 0.0, 0.0))):
        client = Client(problem.layout, "c0", Bet())
        client.handle(Supply((50, 50)))
        (pull,) = client.handle(Start())
        assert pull.against == 0
        with pytest.raises(IllegalEvent):
            client.handle(Pulled((0.0, 24.0), 24, pairs=pairs))
    plain = paired([{"a": [0] * 50, "b": [1] * 50}], paired=False).asking("overall")
    client = Client(plain.layout, "c0", Bet())
    client.handle(Start())
    with pytest.raises(IllegalEvent):
        client.handle(Pulled((0.0, 24.0), 24, pairs=((12.0, 6.0, 0.5, 0.5),) * 2))


# Messages


def wire(coins=True):
    problem = paired([scores(np.random.default_rng(1), (0.5, 0.5, 0.5), 60, coins)]).asking("overall")
    return Wire(Course(problem.layout, Bet()))


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=20),
    st.integers(0, 2),
)
def test_a_part_of_coins_has_the_wins_of_the_reference_and_its_own_code(rows, reference):
    own, pulls = wire(), np.full(3, len(rows))
    x = np.array(rows).T.astype(int)
    sums = tuple(Report(len(rows), 14, (int(row.sum()),)) for row in x)
    wins = tuple(
        Report(len(rows), 14, (int((x[reference] > row).sum()),)) for k, row in enumerate(x) if k != reference
    )
    part = SitePart(sums, 5, wins)
    data, bits = encode(part, own)
    assert decode(data, own, pulls, 16, True, reference) == (part, bits)


def test_wins_that_the_sums_rule_out_are_proof_of_a_fault():
    own, pulls = wire(), np.full(3, 10)
    sums = tuple(Report(10, 14, (ones,)) for ones in (6, 5, 2))
    for wins in ((0, 4), (6, 4), (5, 3), (5, 7)):
        part = SitePart(sums, 5, tuple(Report(10, 14, (w,)) for w in wins))
        with pytest.raises(Malformed):
            decode(encode(part, own)[0], own, pulls, 16, True, 0)


def test_a_plan_with_two_pulls_for_a_subject_is_malformed():
    own = wire()
    plan = Plan((Leg((True, True, True), 0, 2),), step=3)
    with pytest.raises(Malformed):
        decode_down(plan.encode(own)[0], own)
    one = dataclasses.replace(plan, legs=(Leg((True, True, True), 0, 1),))
    assert decode_down(one.encode(own)[0], own) == one


# Real data


@pytest.fixture(scope="module")
def heart(data):
    with (data / "heart_models.csv").open() as file:
        return list(csv.DictReader(file))


def learners(heart, column, rng):
    """Learners, averaged over the hospital that they were trained at; a patient is a row."""
    sums = defaultdict(lambda: defaultdict(list))
    for row in heart:
        sums[row["model"]][row["patient"]].append(float(row[column]))
    order = rng.permutation(sorted(sums["svm"]))
    return paired([{model: [np.mean(by[p]) for p in order] for model, by in sums.items()}])


@pytest.mark.slow
def test_heart_models_are_undecided_and_the_weak_learners_fall(heart):
    """Played once, in five orders: the best learners are too close for 277 patients."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        record = ba.identify(learners(heart, "reward", rng).asking("overall"), seed=1)
        assert record.verdict.status == "undecided"
        left = record.verdict.candidates
        assert {"logreg", "forest"} <= set(left)
        assert not {"gboost", "gnb"} & set(left)
        assert ba.verify(record, replay=True).failures == ()
