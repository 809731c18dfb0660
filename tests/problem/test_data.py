"""The real data sets can all be read as scenarios, with their known gaps and traps."""

from __future__ import annotations

import pytest

import bestarm as ba

AGAIN = {"rows": "resample"}  # means are known in a simulation alone
RATINGS = {**AGAIN, "group": "city", "arm": "place", "reward": "reward"}
CLICKS = {**AGAIN, "group": "story", "arm": "package", "successes": "clicks", "trials": "impressions"}
FLIGHTS = {**AGAIN, "group": "airport", "arm": "carrier", "successes": "on_time", "trials": "flights"}
METHANE = {**AGAIN, "group": "region", "arm": "sensor", "reward": "reward", "where": {"release": 6}}
RELAYS = {
    **AGAIN,
    "group": "region",
    "arm": "relay",
    "reward": "rtt_ms",
    "count": "count",
    "bounds": [0, 1000],
}

# file, keys, the gap between the two best means as stated in the data's README
SETS = {
    "flights": ("flights_nyc.csv", FLIGHTS, 0.024),
    "restaurants 8": ("restaurants_mx.csv", {**RATINGS, "min_count": 8}, 0.192),
    "restaurants 5": ("restaurants_mx.csv", {**RATINGS, "min_count": 5}, 0.067),
    "methane 6": ("methane_metec.csv", METHANE, 0.508),
    "headlines": ("headlines_upworthy.csv", {**CLICKS, "where": {"week": 201308}}, 0.0129),
    "heart": ("heart_models.csv", {**AGAIN, "group": "site", "arm": "model", "reward": "correct"}, 0.007),
    "relays": ("relays_seattle.csv", {**RELAYS, "goal": "min"}, 0.0007),
}


@pytest.mark.parametrize(("file", "keys", "gap"), SETS.values(), ids=SETS.keys())
def test_each_set_is_read_with_its_known_gap(data, file, keys, gap):
    problem = ba.Problem.from_csv(str(data / file), **keys)
    means = sorted((m for row in problem.means for m in row), reverse=True)
    digits = len(str(gap).split(".")[1])
    assert means[0] - means[1] == pytest.approx(gap, abs=0.51 * 10**-digits)


def test_the_best_flight_is_known(data):
    assert ba.Problem.from_csv(str(data / "flights_nyc.csv"), **FLIGHTS).best == "JFK/HA"


def test_methane_finds_the_sensor_next_to_the_leak(data):
    problem = ba.Problem.from_csv(str(data / "methane_metec.csv"), **METHANE)
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, early_stop=True, radius="sharp")
    assert record.verdict.arm == problem.best


def test_methane_in_real_minutes_runs_out_of_data(data):
    keys = {**METHANE, "rows": "once"}
    record = ba.identify(ba.Problem.from_csv(str(data / "methane_metec.csv"), **keys), "fed-sel", seed=1)
    assert record.verdict.status == "undecided"
    assert record.verdict.reason == "budget"


@pytest.mark.slow
def test_an_exact_tie_of_local_bests_ends_at_its_budget(data):
    """With at least 5 ratings per arm, San Luis Potosí has a tie: Phase I there never ends by itself."""
    problem = ba.Problem.from_csv(str(data / "restaurants_mx.csv"), **RATINGS, min_count=5)
    record = ba.identify(problem, "fed-sel", delta=0.1, seed=1, budget=4_000_000)
    assert ba.verify(record)
    assert record.verdict.status == "undecided" or record.verdict.arm == problem.best
