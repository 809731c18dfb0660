"""The winner's curse where it is not Fed-Bet's or Fed-Fisher's; part of ``python -m benchmarks coverage``.

``sharing`` plays stopped runs of Fed-SEL by its kernel, and ``recorded`` decides recorded data sets; runs of
Robust Fed-SEL and of peers go through their machines. Fed-SEL rounds means to the middle of a bin from its
second round on, so the place of a mean in its bin matters more than luck does: ``SHIFTED`` moves it. Recorded
data do not go on until they decide. The fewer of them do, the luckier were those that did, so there are cases
in which nearly all data sets name an option, two thirds of them, and few.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import bestarm as ba
from benchmarks.question_coverage import card_misses
from bestarm.evidence.card import evidence_card
from bestarm.graphs.generators import complete
from bestarm.methods.fed_sel.kernel import _Rounds, phase1
from bestarm.problem.problem import target
from bestarm.protocol import decisions
from bestarm.protocol.kernel import Arms
from bestarm.simulate.identify import prepare
from bestarm.simulate.network import Network
from bestarm.stats.radii import radius

Row = dict[str, Any]
Floats = NDArray[np.float64]
BLOCK = 1_000
SHIFTED = [(36 + k / 8) / 64 for k in range(8)]  # means of the best arm, at different places of a bin
EASY = [[0.9, 0.3], [0.6, 0.2]]
GROUPS, MORE = ba.Problem.bernoulli(EASY, clients=3), ba.Problem.bernoulli(EASY, clients=4)
HALF_LIE = [ba.Adversary(group, "extreme", 1) for group in ("g1", "g2")]


def close(mean: float, clients: int = 1) -> ba.Problem:
    """Two groups whose best arms are close, so that Fed-SEL needs several rounds."""
    return ba.Problem.bernoulli([[mean, mean - 0.25], [mean - 0.06, mean - 0.3]], clients=clients)


ROUNDED = {f"rounded, best {mean:.4f}": close(mean) for mean in SHIFTED}
SHARING: dict[str, ba.Problem] = {
    "paper, σ = 3": ba.Problem.paper_instance(3),
    "single sites": ba.Problem.bernoulli(EASY),
    "three close arms": ba.Problem.bernoulli([[0.6, 0.5], [0.5]]),
    **ROUNDED,
}
MACHINES: dict[str, tuple[ba.Problem, Row]] = {
    "groups of three": (GROUPS, {"method": "robust-fed-sel", "byzantine": 1}),
    "groups of three, one lies": (
        GROUPS, {"method": "robust-fed-sel", "byzantine": 1, "adversaries": HALF_LIE},
    ),
    **{
        f"rounded, best {mean:.4f}": (close(mean, 3), {"method": "robust-fed-sel", "byzantine": 1})
        for mean in SHIFTED[::2]
    },
    "peers, means": (GROUPS, {"method": "p2p", "network": Network(complete(6))}),
    "peers, intervals": (
        GROUPS, {"method": "p2p", "exchange": "intervals", "network": Network(complete(6))},
    ),
    "peers, intervals, one lies": (
        MORE,
        {
            "method": "p2p", "exchange": "intervals", "byzantine": 1, "network": Network(complete(8)),
            "adversaries": [ba.Adversary("g2", "extreme", 1)],
        },
    ),
}  # fmt: skip


def summed_up(errors: list[float], parts: list[float]) -> dict[str, float]:
    """The mean error of the winner's mean; the same as a share of half the width, and its standard error."""
    found = {"bias": float(np.mean(errors)), "of half": float(np.mean(parts))}
    return {**found, "give or take": float(np.std(parts, ddof=1) / np.sqrt(len(parts)))}


def sharing(name: str, runs: int, seed: int, delta: float) -> Row:
    """Runs of Fed-SEL: wrong answers, and intervals of the named arm that miss (at most δ of the runs)."""
    problem, _, options = prepare(SHARING[name], "fed-sel", {"delta": delta})
    layout, arms = problem.layout, Arms(problem)
    r = radius(options.radius, len(layout.groups), layout.arm_counts, options.delta)
    home, best = target(problem)
    failed = wrong = decided = 0
    errors, parts = list[float](), list[float]()
    for block in range(-(-runs // BLOCK)):
        size, rng = min(BLOCK, runs - block * BLOCK), np.random.default_rng([seed, block])
        found = _Rounds(problem, arms, r, options, phase1(arms, r, options, rng, size, None, {}), size)
        found.run(rng, None, {})
        named = np.flatnonzero(found.outcome == decisions.IDENTIFIED)
        at = named, found.winner[named]
        right = (at[1] == home) & (found.arm[at] == best)
        error, half = found.mean[at] - found.mean_of[at], (found.upper[at] - found.lower[at]) / 2
        outside = (found.mean_of[at] < found.lower[at]) | (found.mean_of[at] > found.upper[at])
        failed += int((~right | outside).sum())
        wrong, decided = wrong + int((~right).sum()), decided + len(named)
        errors, parts = errors + error.tolist(), parts + (error / half).tolist()
    return {
        "name": name, "method": "fed-sel", "runs": runs, "failed": failed, "wrong": wrong, "decided": decided,
        "promised": delta, **summed_up(errors, parts),
    }  # fmt: skip


RECORDED: dict[str, tuple[dict[str, list[float]], int, Row]] = {
    "200 rows, nearly all decide": ({"A": [0.65], "B": [0.45], "C": [0.4]}, 200, {}),
    "200 rows, two thirds decide": ({"A": [0.6], "B": [0.49], "C": [0.4]}, 200, {}),
    "200 rows, few decide": ({"A": [0.6], "B": [0.55], "C": [0.4]}, 200, {}),
    "sites that differ, nearly all decide": (
        {"A": [0.65, 0.3], "B": [0.45, 0.15]}, 200, {"site": "site", "question": "overall"},
    ),
    "sites that differ, few decide": (
        {"A": [0.6, 0.2], "B": [0.54, 0.16]}, 200, {"site": "site", "question": "overall"},
    ),
}  # fmt: skip


def recorded(name: str, runs: int, seed: int, delta: float, alpha: float) -> Row:
    """Recorded data sets, as their answer cards say it."""
    import pyarrow as pa

    means, count, keys = RECORDED[name]
    cells = [(option, f"s{s}", mean) for option, row in means.items() for s, mean in enumerate(row)]
    values = {option: float(np.mean(row)) for option, row in means.items()}
    rng = np.random.default_rng([seed, sorted(RECORDED).index(name)])
    failed = wrong = decided = 0
    errors, parts = list[float](), list[float]()
    for _ in range(runs):
        table = pa.table({
            "option": [option for option, _, _ in cells],
            "site": [site for _, site, _ in cells],
            "trials": [count] * len(cells),
            "ones": rng.binomial(count, [mean for _, _, mean in cells]),
        })  # fmt: skip
        found = ba.evidence(
            table, option="option", successes="ones", trials="trials", delta=delta, alpha=alpha, **keys
        )
        card = evidence_card(found)
        mistaken = card.best is not None and card.best != "A"
        failed += mistaken or card_misses(card, values, {})
        wrong, decided = wrong + mistaken, decided + (card.best is not None)
        for row in card.options:
            if row.best and row.mean is not None and row.interval is not None:
                errors.append(row.mean - values[row.name])
                parts.append(2 * errors[-1] / (row.interval[1] - row.interval[0]))
    return {
        "name": name, "method": "recorded data", "runs": runs, "failed": failed, "wrong": wrong,
        "decided": decided, "promised": delta + alpha, **summed_up(errors, parts),
    }  # fmt: skip
