"""Fed-Bet among liars: every attack, the price beside pooled Fed-Fisher, and how often the best arm is lost.

Three parts, at δ = 0.1:

1. Every attack × f = 1, 2, 3 liars in each group of 2f + 1 clients, 200 trials each, with the machines, for
   0/1 rewards, ratings and Beta rewards: `wrong` counts wrong answers. Beside the pulls of an honest client
   are those with pooled Fed-Fisher under the same attack (50 trials).
2. Pulls of the honest clients beside pooled Fed-Fisher on the same problems, by the batched kernels, in peace
   and with f extreme liars in each group: 0/1 rewards, ratings and Beta rewards.
3. All arms tied and f extreme liars in each group, the worst attack that we know: how often the arm that they
   bury leaves, in 20,000 trials, and an exact upper bound on its probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import bestarm as ba
from benchmarks.bet import beta, ratings
from bestarm.stats.intervals import clopper_pearson

SEED, DELTA = 240_608, 0.1
ATTACKED, COMPARED, TIED = 200, 1000, 20_000
MEANS = [[0.95, 0.05], [0.8, 0.05]]
WORST = "extreme"
ERROR = 1e-3  # of the exact bound
FISHER: dict[str, Any] = {"method": "fisher"}
BET: dict[str, Any] = {"method": "bet"}

Row = dict[str, Any]


def liars(problem: ba.Problem, attack: str, number: int) -> list[ba.Adversary]:
    """This many liars in each group."""
    return [ba.Adversary(group.name, attack, number) for group in problem.layout.groups]


def copies(problem: ba.Problem, clients: int) -> ba.Problem:
    """The problem with several clients in each group, which draw from the same models."""
    names = [(group.name, group.arms) for group in problem.layout.groups]
    rows = {
        name: dict(zip(arms, models, strict=True))
        for (name, arms), models in zip(names, problem.rewards, strict=True)
    }
    return ba.Problem.from_rewards(rows, clients=clients)


def kinds() -> dict[str, ba.Problem]:
    """Problems that are decided soon, for the machines: 0/1 rewards, ratings, and Beta rewards."""

    def stars(*shares: float) -> ba.Table:
        return ba.Table((0.0, 0.25, 0.5, 0.75, 1.0), shares)

    good, middling, bad = stars(0, 0, 1, 2, 7), stars(1, 1, 3, 4, 1), stars(7, 2, 1, 0, 0)
    return {
        "0/1": ba.Problem.bernoulli(MEANS),
        "ratings": ba.Problem.from_rewards({"g1": {"a": good, "b": bad}, "g2": {"c": middling, "d": bad}}),
        "Beta": beta(MEANS, 0.01),
    }


def attacks(
    trials: int = ATTACKED, faults: Sequence[int] = (1, 2, 3), names: Sequence[str] = ()
) -> list[Row]:
    """Every attack: wrong and undecided runs, and the pulls of an honest client beside Fed-Fisher's."""
    rows = []
    for kind, problem in kinds().items():
        for attack in names or ("", *ba.attacks()):
            row: Row = {"rewards": kind, "attack": attack or "nobody lies"}
            for f in faults:
                case = copies(problem, 2 * f + 1)
                keys: Row = {"seed": SEED, "delta": DELTA, "byzantine": f}
                keys["adversaries"] = liars(case, attack, f) if attack else []
                done = ba.study(case, trials=trials, **keys, **BET)
                decided = done["status"] == "identified"
                row[f"wrong, f = {f}"] = int((decided & (done["correct"] != True)).sum())  # noqa: E712
                row[f"undecided, f = {f}"] = int((~decided).sum())
                row[f"bet, f = {f}"] = float(np.mean(done["pulls_max"]))
                beside = ba.study(case, trials=-(-trials // 4), **keys, **FISHER)
                row[f"fisher, f = {f}"] = float(np.mean(beside["pulls_max"]))
            rows.append(row)
    return rows


def all_attacks(rows: list[Row]) -> Row:
    """The sum over all attacks: how many runs, and how many were wrong or undecided."""
    lied = [row for row in rows if row["attack"] != "nobody lies"]
    found = {
        what: sum(value for row in lied for key, value in row.items() if key.startswith(what))
        for what in ("wrong", "undecided")
    }
    return {"attacked runs": ATTACKED * 3 * len(lied), **found}


def problems() -> dict[str, ba.Problem]:
    """0/1 rewards, ratings, and Beta rewards."""
    return {
        "0/1, {.9, .3}, {.75, .2}": ba.Problem.bernoulli([[0.9, 0.3], [0.75, 0.2]]),
        "0/1, the paper's, σ = 3": ba.Problem.paper_instance(3),
        "ratings": ratings(),
        "Beta, variance .01": beta(ba.Problem.paper_instance(3).means, 0.01),
    }


def beside_fisher(trials: int = COMPARED) -> list[Row]:
    """Pulls and rounds of Fed-Bet and of pooled Fed-Fisher, in peace and attacked."""
    rows = []
    for name, problem in problems().items():
        for size, f in ((3, 1), (5, 2), (7, 2)):
            case = copies(problem, size)
            row: Row = {"rewards": name, "clients": size, "f": f}
            for state, number in (("in peace", 0), ("attacked", f)):
                for method, options in (
                    ("bet", BET),
                    ("bet, pulls", BET | {"prefer": "pulls"}),
                    ("fisher", FISHER),
                ):
                    done = ba.study(
                        case, trials=trials, seed=SEED, delta=DELTA, byzantine=f,
                        adversaries=liars(case, WORST, number) if number else [], **options,
                    )  # fmt: skip
                    row[f"{method}, {state}"] = float(np.mean(done["pulls_max"]))
                    row[f"wrong, {method}, {state}"] = int((done["correct"] != True).sum())  # noqa: E712
                row[f"fewer pulls, {state}"] = row[f"fisher, {state}"] / row[f"bet, {state}"]
            rows.append(row)
    return rows


def tied(trials: int = TIED, attack: str = WORST) -> list[Row]:
    """How often the arm that liars bury leaves, if all arms are tied (it is better by 10⁻⁹)."""
    rating, better = (ba.Table((0.0, 0.25, 0.5, 0.75, 1.0), (1, 2, 4, 2, 1 + x)) for x in (0.0, 1e-8))
    cases = {
        "0/1 at .5, two arms": ba.Problem.bernoulli([[0.5 + 1e-9], [0.5]]),
        "0/1 at .1, two arms": ba.Problem.bernoulli([[0.1 + 1e-9], [0.1]]),
        "0/1 at .5, two groups of two": ba.Problem.bernoulli([[0.5 + 1e-9, 0.5], [0.5, 0.5]]),
        "ratings, two arms": ba.Problem.from_rewards({"g1": {"a": better}, "g2": {"b": rating}}),
    }
    rows = []
    for name, problem in cases.items():
        for size, f in ((3, 1), (5, 2)):
            case = copies(problem, size)
            done = ba.study(
                case, trials=trials, seed=SEED, delta=DELTA, byzantine=f, max_rounds=26, prefer="pulls",
                adversaries=liars(case, attack, f), **BET,
            )  # fmt: skip
            lost = int((done["good_event"] == False).sum())  # noqa: E712
            bound = float(clopper_pearson(lost, trials, ERROR)[1])
            row = {"tied": name, "clients": size, "f": f, "lost": lost, "trials": trials}
            rows.append(row | {"at most": bound, "within δ": bound <= DELTA})
    return rows


def measure() -> list[Row]:
    attacked = attacks()
    return [*attacked, all_attacks(attacked), *beside_fisher(), *tied()]
