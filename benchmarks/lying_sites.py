"""Sites that lie about options they share (`question = "overall"`, `byzantine = f`): every attack.

Two parts, at δ = 0.1:

1. Every attack that the messages can express × f = 1, 2, 3 lying sites of 4f + 3, 200 trials each, with the
   machines: `wrong` counts wrong answers. Sites differ; option B leads by 0.5 at each, which is more than the
   lead f/(M − 2f) that any liars can hide.
2. The honest sites are tied on average, in opposite orders, and f extreme liars bury option A: how often
   it leaves within 12 blocks, in 20,000 trials, and an exact upper bound on its probability.

The table of docs/questions.md comes from these numbers: ``python -m benchmarks lying_sites``, then
``cp out/lying_sites.json docs/data`` and ``python docs/compare.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import bestarm as ba
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Block
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.protocol.registry import method_for
from bestarm.simulate.lying_client import ATTACKS
from bestarm.stats.intervals import clopper_pearson
from bestarm.stats.sums import Sums

SEED, DELTA = 240_917, 0.1
TRIALS, TIED, BLOCKS = 200, 20_000, 12
FAULTS = (1, 2, 3)
ERROR = 1e-3  # of the exact bound

Row = dict[str, Any]


def problem_of(faults: int) -> ba.Problem:
    """4f + 3 sites that differ; option B leads by 0.5 at each of them."""
    rows = {f"s{j}": {"A": 0.2 + 0.01 * j, "B": 0.7 + 0.01 * j} for j in range(4 * faults + 3)}
    return ba.Problem.from_rewards(rows).asking("overall")


def attacked(attack: str, faults: int, trials: int) -> Row:
    """What came of an attack by the first f sites; `attack` may be empty: nobody lies."""
    problem = problem_of(faults)
    liars = [ba.Adversary(f"s{j}", attack) for j in range(faults)] if attack else []
    done = ba.study(
        problem, "bet", trials=trials, seed=SEED, delta=DELTA, byzantine=faults, adversaries=liars,
    )  # fmt: skip
    decided = done["status"] == "identified"
    return {
        f"wrong, f = {faults}": int((decided & (done["correct"] != True)).sum()),  # noqa: E712
        f"undecided, f = {faults}": int((~decided).sum()),
        f"pulls of a site, f = {faults}": float(np.mean(done["pulls_max"])),
    }


def attacks(trials: int = TRIALS, faults: Sequence[int] = FAULTS, names: Sequence[str] = ()) -> list[Row]:
    """Every attack: wrong answers, undecided runs, and the pulls of the busiest honest site."""
    rows = []
    for attack in names or ("", *ba.attacks()):
        row: Row = {"attack": attack or "nobody lies", "trials": trials}
        method = method_for("bet", problem_of(1).layout)
        obstacle = ATTACKS[attack].obstacle(method, Bet(byzantine=1)) if attack else ""
        if obstacle:
            rows.append(row | {"trials": 0, "cannot be expressed": obstacle})
            continue
        for f in faults:
            row |= attacked(attack, f, trials)
        rows.append(row)
    return rows


def tied(trials: int = TIED, faults: Sequence[int] = FAULTS) -> list[Row]:
    """How often the buried option leaves, if the honest sites are tied on average."""
    rows = []
    for f in faults:
        lost = losses(f, trials)
        bound = float(clopper_pearson(lost, trials, ERROR)[1])
        rows.append(
            {"tied, f": f, "sites": 8 + f, "lost": lost, "trials": trials, "at most": bound}
            | {"within δ": bound <= DELTA}
        )
    return rows


def losses(faults: int, trials: int) -> int:
    """How often option A leaves: honest sites prefer A and B in turns, liars say that B always pays."""
    means = np.array([[0.7, 0.4], [0.4, 0.7]] * 4 + [[0.5, 0.5]] * faults)
    rows = {f"s{j}": dict(zip("AB", row, strict=True)) for j, row in enumerate(means.tolist())}
    problem = ba.Problem.from_rewards(rows).asking("overall")
    course = Course(problem.layout, Bet(delta=DELTA, byzantine=faults))
    ledger = Ledger(course, np.ones(len(means), dtype=bool), trials)
    rng, (race,) = np.random.default_rng(SEED + faults), ledger.races
    pulls, step = np.broadcast_to(course.first(), (trials, *means.shape)) * 1, course.n1
    stands = ledger.stands()[:0]
    for _ in range(BLOCKS):
        ones = rng.binomial(pulls, means).astype(float)
        ones[:, len(means) - faults :] = pulls[:, len(means) - faults :] * np.array([0.0, 1.0])
        n = pulls.astype(float)
        seen = Sums(n, ones, ones, (n == 0).astype(float), (n > 0).astype(float))
        ledger.close(Block(pulls, seen, np.zeros(pulls.shape), True), stands, step)
        step, stands = course.blocks.step(ledger.n), ledger.stands()
        stands[0].inside &= ~race.over[:, None]
        pulls = course.pulls(stands, step, course.steps(step))
    return int((~race.inside[:, 0]).sum())


def measure() -> list[Row]:
    return attacks() + tied()
