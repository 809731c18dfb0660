"""What trials cost, and Fed-Bet with a cap: shared by the benchmarks that compare methods.

A trial of Fed-Bet that loses the best arm may run into a tie below it and would never end. So it ends
undecided when an arm has made about a million pulls. Such trials are counted, and left out of the means,
since their cost is that of the cap.
"""

from __future__ import annotations

import math
from typing import Any

import bestarm as ba
from bestarm.methods.bet.options import PREFERENCES

MOST_PULLS = 10**6  # of an arm


def capped(n1: int, q: float) -> dict[str, Any]:
    """Options of Fed-Bet with these blocks, for up to MOST_PULLS pulls of an arm."""
    return {"method": "bet", "n1": n1, "q": q, "max_rounds": 2 + math.ceil(math.log(MOST_PULLS / n1, q))}


def preferring(prefer: str) -> dict[str, Any]:
    """Likewise, with the blocks of a preference."""
    return capped(*PREFERENCES[prefer])


def mean_costs(done: ba.Trials) -> dict[str, Any]:
    """Means of the trials that name an arm, and how many name a wrong one or none.

    ± is 1.96 standard errors of the mean number of pulls.
    """
    named = done["status"] == "identified"
    pulls = done["pulls_total"][named]
    return {
        "pulls": float(pulls.mean()),
        "±": float(1.96 * pulls.std(ddof=1) / math.sqrt(len(pulls))),
        "rounds": float(done["rounds"][named].mean()),
        "bits up": float(done["bits_up"][named].mean()),
        "time": float(done["time"][named].mean()),
        "wrong": sum(right is False for right in done["correct"][named]),
        "undecided": int((~named).sum()),
        "trials": len(named),
    }
