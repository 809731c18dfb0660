"""Fed-Bet beside Fed-Fisher: pulls, rounds, bits, time and errors, and whether the targets are met.

Means of 4,000 trials on a seed that nothing was tuned on, by the batched kernels; δ = 0.1 unless a row says
otherwise. ``undecided`` trials have lost the best arm and run into a tie below it (see costs.py); they are
not in the means. ``wrong`` trials name a wrong arm.

The last cases need the recorded rewards of docs/real-data.md in ../shared/data. They have an ε, for which
the machines run trial by trial, so there are few trials; they have no cap, since a run with ε always ends.
"""

from __future__ import annotations

import operator
import time
from pathlib import Path
from typing import Any

import bestarm as ba
from benchmarks.costs import capped, mean_costs, preferring
from benchmarks.ladder import many_clients
from bestarm.methods.bet.options import PREFERENCES

SEED, TRIALS, FEW = 190_819, 4000, 40
DELTA, SIGMAS = 0.1, (1, 3, 5, 7, 15)
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
FISHER = {"method": "fisher", "max_rounds": 30}

Row = dict[str, Any]
Targets = tuple[tuple[str, str, float], ...]  # figure, "≤" or "≥", bound


def paper_targets(prefer: str, sigma: int) -> Targets:
    """What a preference must reach on the paper's instance."""
    return {
        "balanced": (("× limit", "≤", 3.85), ("rounds", "≤", 11.5), ("bits up", "≤", 145)),
        "pulls": (("× limit", "≤", 3.15 if sigma == 1 else 2.9),),
        "rounds": (("× limit", "≤", 4.75), ("rounds", "≤", 7.0)),
    }.get(prefer, ())


def costs(problem: ba.Problem, options: Row, trials: int = TRIALS) -> Row:
    """Mean costs, and the time that the simulation took."""
    begun = time.perf_counter()
    done = ba.study(problem, trials=trials, seed=SEED, **({"delta": DELTA} | options))
    return mean_costs(done) | {"seconds": time.perf_counter() - begun}


def judged(row: Row, targets: Targets) -> Row:
    """The row with each target after its figure."""
    found: Row = {}
    for key, value in row.items():
        found[key] = value
        for figure, sign, bound in targets:
            if figure == key:
                met = {"≤": operator.le, "≥": operator.ge}[sign](value, bound)
                found[f"{key} {sign} {bound}"] = "met" if met else "MISSED"
    return found


def against_limit(case: str, setting: str, problem: ba.Problem, options: Row, targets: Targets = ()) -> Row:
    """Costs with the pulls over the limit."""
    found = costs(problem, options)
    limit = ba.limit(problem, options.get("delta", DELTA)).total
    head = {"case": case, "setting": setting, "× limit": found["pulls"] / limit}
    return judged(head | found, targets)


def against_fisher(
    case: str, problem: ba.Problem, fewer: float | None, trials: int = TRIALS, epsilon: float = 0.0
) -> list[Row]:
    """Fed-Bet, with how many times fewer pulls it needs than Fed-Fisher, and Fed-Fisher."""
    settings = {"pulls": preferring("pulls"), "balanced": preferring("balanced"), "Fed-Fisher": FISHER}
    if epsilon:
        settings = {
            name: options | {"max_rounds": None, "epsilon": epsilon} for name, options in settings.items()
        }
    found = {name: costs(problem, options, trials) for name, options in settings.items()}
    rows = []
    for name, row in found.items():
        head: Row = {"case": case, "setting": name}
        if name != "Fed-Fisher":
            head["fewer pulls"] = found["Fed-Fisher"]["pulls"] / row["pulls"]
        targets: Targets = (("fewer pulls", "≥", fewer),) if fewer and name == "pulls" else ()
        rows.append(judged(head | row, targets))
    return rows


def named(rows: list[list[Any]]) -> ba.Problem:
    """A problem with these rewards; clients and arms are numbered."""
    return ba.Problem.from_rewards(
        {f"g{i}": {f"a{j}": reward for j, reward in enumerate(row)} for i, row in enumerate(rows)}
    )


def beta(means: Any, variance: float) -> ba.Problem:
    """Beta rewards with these means, all with the same variance."""

    def reward(mean: float) -> ba.Beta:
        size = mean * (1 - mean) / variance - 1
        return ba.Beta(mean * size, (1 - mean) * size)

    return named([[reward(mean) for mean in row] for row in means])


def ratings() -> ba.Problem:
    """Nine arms with rewards 0, ¼, ½, ¾ and 1; the two best means are 0.033 apart."""
    shares = [
        [(5, 5, 10, 30, 50), (6, 7, 14, 33, 40), (8, 10, 20, 32, 30)],
        [(4, 6, 14, 36, 40), (10, 12, 20, 30, 28), (20, 20, 20, 20, 20)],
        [(7, 9, 17, 34, 33), (15, 15, 20, 25, 25), (30, 20, 20, 20, 10)],
    ]
    return named([[ba.Table((0.0, 0.25, 0.5, 0.75, 1.0), share) for share in row] for row in shares])


def not_coins() -> dict[str, tuple[ba.Problem, float]]:
    """Problems with rewards that are not 0/1, and how many times fewer pulls `pulls` must need."""
    close = [[0.56, 0.54, 0.53], [0.55, 0.52, 0.50], [0.51, 0.50, 0.48]]
    return {
        "ratings": (ratings(), 2.9),
        "Beta, variance .01, σ = 3": (beta(ba.Problem.paper_instance(3).means, 0.01), 6.5),
        "Beta, sd .03": (beta(close, 0.03**2), 60),
    }


def recorded() -> list[Row]:
    """The cases with recorded rewards, if these are there."""
    cases: dict[str, tuple[str, dict[str, Any], float]] = {
        "heart, ε = 0.01": (
            "heart_models.csv",
            {"group": "site", "arm": "model", "reward": "reward"},
            0.01,
        ),
        "relays, ε = 5 ms": (
            "relays_seattle.csv",
            {
                "group": "region", "arm": "relay", "reward": "rtt_ms", "count": "count",
                "bounds": [0, 1000], "goal": "min",
            },
            5.0,
        ),
    }  # fmt: skip
    rows: list[Row] = []
    for case, (file, columns, epsilon) in cases.items():
        if (DATA / file).exists():
            problem = ba.Problem.from_csv(str(DATA / file), **columns, rows="resample")
            rows += against_fisher(case, problem, None, FEW, epsilon)
        else:
            rows.append({"case": case, "skipped": f"there is no {DATA / file}"})
    return rows


def measure() -> list[Row]:
    rows = []
    for sigma in SIGMAS:
        case, problem = f"paper, σ = {sigma}", ba.Problem.paper_instance(sigma)
        for prefer in PREFERENCES:
            targets = paper_targets(prefer, sigma)
            rows.append(against_limit(case, prefer, problem, preferring(prefer), targets))
        rows.append(against_limit(case, "Fed-Fisher", problem, FISHER))
    for delta, most in ((1e-3, 1.85), (1e-6, 1.55)):
        for sigma in SIGMAS:
            case, problem = f"paper, σ = {sigma}, δ = {delta:g}", ba.Problem.paper_instance(sigma)
            least: Targets = (("× limit", "≤", most),)
            options = preferring("pulls") | {"delta": delta}
            rows.append(against_limit(case, "pulls", problem, options, least))
            rows.append(against_limit(case, "Fed-Fisher", problem, FISHER | {"delta": delta}))
    case, problem = "100 clients × 10 arms", many_clients()
    rows.append(against_limit(case, "n1 = 16, q = 1.25", problem, capped(16, 1.25), (("× limit", "≤", 8.4),)))
    rows.append(against_limit(case, "balanced", problem, preferring("balanced")))
    rows.append(against_limit(case, "Fed-Fisher", problem, FISHER))
    for case, (problem, fewer) in not_coins().items():
        rows += against_fisher(case, problem, fewer)
    return rows + recorded()
