"""Forty seeded runs over all methods, attacks and networks end as they did when this file was written.

``python tests/simulate/test_same_numbers.py`` rewrites the digests. Do so only if numbers are meant to
change, and give the reason in the commit.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

import bestarm as ba

FILE = Path(__file__).with_name("same_numbers.json")
EASY = [[0.95, 0.05], [0.8, 0.05]]
RATINGS = {
    "north": {"a": {"kind": "beta", "a": 8, "b": 2}, "b": 0.2},
    "south": {"c": {"kind": "table", "values": [0, 0.5, 1], "weights": [1, 2, 2]}, "d": 0.1},
}


def paper(sigma, **keys):
    return ba.Problem.paper_instance(sigma), keys


def ratings(**keys):
    return ba.Problem.from_rewards(RATINGS), keys


def liars(attack, f=1, size=None, **keys):
    problem = ba.Problem.bernoulli(EASY, clients=size or 2 * f + 1)
    return problem, {
        "byzantine": f,
        "adversaries": [ba.Adversary(group, attack, f) for group in ("g1", "g2")],
        **keys,
    }


def peers(network, attack=None, size=4, **keys):
    problem = ba.Problem.bernoulli([[0.95, 0.02], [0.6, 0.02]], clients=size)
    adversaries = [ba.Adversary("g2", attack, 1)] if attack else []
    return problem, {"network": network, "adversaries": adversaries, **keys}


def everyone(n=8, **keys):
    edges = [(u, v) for u in range(n) for v in range(n)]
    return ba.Network(ba.Graph.from_edges(n, edges), **keys)


SLOW = {"delay": 40.0, "loss": 0.2, "start": 500.0, "crashes": 2}
CASES = {
    "fed-sel": [
        paper(1),
        paper(3, period=2000),
        paper(7, period=5000),
        paper(7, period=5000, radius="sharp", intersect=True),
        paper(3, period=2000, quantiser=False),
        paper(3, period=2000, early_stop=True),
        paper(3, period=1000, period_growth=1.5),
        paper(3, period=2000, epsilon=0.05),
        paper(3, period=2000, budget=200_000),
        paper(7, period=2000, max_rounds=5),
        ratings(period=2000),
        ratings(period=2000, c=4.0, quantiser=False),
    ],
    "fisher": [
        paper(1),
        paper(3),
        paper(15, prefer="rounds"),
        paper(3, prefer="bits"),
        paper(3, epsilon=0.1),
        paper(1, budget=2000),
        paper(1, max_rounds=4),
        ratings(),
        liars("extreme"),
        liars("bury", 2),
        liars("silent"),
        liars("random-bytes"),
        liars("promote", 2, 7, epsilon=0.1),
        liars("adaptive", budget=20_000),
    ],
    "robust-fed-sel": [
        liars("extreme", period=5000),
        liars("bury", period=5000),
        liars("silent-later", period=5000),
        liars("equivocate", period=5000),
        liars("vote", 2, period=5000),
        liars("forge", size=4, rules="paper", period=5000),
        liars("replay", size=4, rules="paper", period=5000),
        liars("widen", period=5000, budget=400_000),
    ],
    "p2p": [
        peers(everyone()),
        peers(everyone(), exchange="means"),
        peers(everyone(**SLOW)),
        peers(everyone(), "promote", byzantine=1),
        peers(everyone(**SLOW), "equivocate", byzantine=1),
        peers(everyone(), "silent", exchange="means", byzantine=1),
    ],
}
RUNS = [(method, number) for method, cases in CASES.items() for number in range(len(cases))]


def digest(method, number):
    problem, keys = CASES[method][number]
    record = ba.identify(problem, method, delta=0.1, seed=1000 + number, summaries=False, **keys)
    verdict = msgspec.to_builtins(record.verdict)
    plain = {
        key: verdict[key] for key in ("status", "arm", "reason", "candidates", "mean", "interval", "gap")
    }
    plain["costs"] = [record.rounds, msgspec.to_builtins(record.pulls), msgspec.to_builtins(record.bits)]
    text = json.dumps(plain, sort_keys=True)
    return f"{verdict['arm'] or verdict['reason']} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def test_there_are_forty_seeded_runs():
    assert len(RUNS) == 40 == len(json.loads(FILE.read_text("utf-8")))


@pytest.mark.parametrize(("method", "number"), RUNS)
def test_a_seeded_run_ends_as_it_did(method, number):
    assert digest(method, number) == json.loads(FILE.read_text("utf-8"))[f"{method} {number}"]


if __name__ == "__main__":
    made = {f"{method} {number}": digest(method, number) for method, number in RUNS}
    FILE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
