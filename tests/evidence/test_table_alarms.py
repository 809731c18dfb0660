"""Alarms about a table: at most 1 % false ones on independent rows, and injected faults are found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

import bestarm as ba
from bestarm.stats.alarms import FALSE_ALARMS, Check, alarms, check, dependence, drift
from rates import rate_exceeds

NAMES = {(0, a): f"o{a}" for a in range(4)}
COINS = ((0, 0), (0, 1))


def test_independent_rows_raise_an_alarm_in_at_most_one_table_of_a_hundred():
    """20,000 tables of four cells with different laws and lengths; null: the rate is at most .01."""
    rng, tables = np.random.default_rng(41), 20_000
    draws = {
        (0, 0): (rng.random((tables, 60)) < 0.5).astype(float),
        (0, 1): (rng.random((tables, 101)) < 0.03).astype(float),
        (0, 2): rng.choice([0.0, 0.25, 1.0], size=(tables, 37), p=[0.5, 0.2, 0.3]),
        (0, 3): rng.beta(0.3, 0.6, size=(tables, 50)),
    }
    sums = {
        (kind, place): (found.sum(axis=1), (found**2).sum(axis=1))
        for kind, test in (("drift", drift), ("dependence", dependence))
        for place, x in draws.items()
        for found in [test(x)]
    }
    wrong = 0
    for k in range(tables):
        made = []
        for kind in ("drift", "dependence"):
            cells = [
                Check(kind, NAMES[p], *(float(part[k]) for part in sums[kind, p]), float(p in COINS))
                for p in draws
            ]
            made += [*cells, Check.joined(kind, cells)]
        wrong += bool(alarms(made))
    assert not rate_exceeds(wrong, tables, FALSE_ALARMS)
    assert wrong > 0  # the tests can raise an alarm at all


def sticky(rng, n, p=0.5, stay=0.6):
    """0/1 rows that repeat the row before with this probability."""
    x = (rng.random(n) < p).astype(float)
    for k in np.flatnonzero(rng.random(n) < stay):
        x[k] = x[k - 1] if k else x[k]
    return x


def season(rng, n):
    return (rng.random(n) < 0.5 + 0.4 * np.sin(np.arange(n) / n * 6 * np.pi)).astype(float)


FAULTS = {
    "a step in one option": lambda rng, n, a: rng.random(n) < 0.5 + 0.25 * (a == 2) * (np.arange(n) > n / 2),
    "a slow ramp in all options": lambda rng, n, a: rng.random(n) < np.linspace(0.35, 0.65, n),
    "a drift that starts late": lambda rng, n, a: rng.random(n) < 0.4 + 0.4 * (np.arange(n) > 0.7 * n),
    "rows that repeat the row before": lambda rng, n, a: sticky(rng, n),
    "groups of twenty rows with a common level": lambda rng, n, a: (
        rng.random(n) < np.repeat(rng.choice([0.2, 0.8], n // 20 + 1), 20)[:n]
    ),
    "rows that are listed twice": lambda rng, n, a: np.repeat(rng.random(n // 2 + 1) < 0.5, 2)[:n],
    "a season": lambda rng, n, a: season(rng, n),
    "a table sorted by reward": lambda rng, n, a: np.sort(rng.random(n) < 0.5),
    "ratings that fall": lambda rng, n, a: rng.choice(5, n) / 4 * np.linspace(1.0, 0.7, n),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_injected_faults_raise_an_alarm(fault):
    """Five tables of three options with 800 rows each: all of them must be found."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        queues = {(0, a): np.asarray(FAULTS[fault](rng, 800, a), dtype=float) for a in range(3)}
        assert alarms(check(queues, NAMES, 1.0))


def test_zeros_and_ones_in_any_unit_have_the_exact_p_value_of_the_sign_test():
    rng = np.random.default_rng(43)
    for unit in (1.0, 250.0):
        for x in (rng.random((50, 300)) < 0.5) * unit:
            for kind, test in (("drift", drift), ("dependence", dependence)):
                made, d = Check.of(kind, "a", test(x / unit)), test(x / unit)
                more, less = int((d > 0).sum()), int((d < 0).sum())
                sides = "two-sided" if kind == "drift" else "greater"
                assert made.pvalue == pytest.approx(binomtest(more, more + less, 0.5, sides).pvalue)
    mixed = np.array([1.0, -0.5, 0.25])
    assert Check.of("drift", "a", mixed).size == 0.0
    joined = Check.joined("drift", [Check.of("drift", "a", mixed), Check.of("drift", "b", np.ones(9))])
    assert joined.size == 0.0


def test_few_rows_and_constant_rows_raise_no_alarm_and_no_warning():
    queues = {
        (0, 0): np.zeros(0),
        (0, 1): np.ones(1),
        (0, 2): np.ones(500),
        (0, 3): np.array([0.0, 1.0, 1.0]),
    }
    made = check(queues, NAMES, 1.0)
    assert [each.pvalue for each in made if each.cell == "o2"] == [1.0, 1.0]
    assert not alarms(made)


def test_the_unit_of_the_rewards_does_not_matter():
    rng = np.random.default_rng(42)
    x = sticky(rng, 500)
    one, other = (check({(0, 0): x * unit}, NAMES, unit) for unit in (1.0, 250.0))
    assert [c.pvalue for c in one] == pytest.approx([c.pvalue for c in other])


def test_methane_minutes_withdraw_the_promise(data):
    found = ba.evidence(
        data / "methane_metec.csv", site="region", option="sensor", reward="reward", time="time_utc"
    )
    assert found.promise == "withdrawn"
    assert "dependence" in {alarm.kind for alarm in found.alarms}


def test_methane_releases_withdraw_the_promise(data):
    columns = {"site": "region", "option": "sensor", "reward": "reward"}
    tables = {k: ba.evidence(data / "methane_metec.csv", **columns, where={"release": k}) for k in range(10)}
    assert [k for k, found in tables.items() if found.promise == "withdrawn"] == [2, 4, 5, 6, 7, 8, 9]
    assert [k for k in (0, 1, 3) if tables[k].status == "identified"] == [3]
