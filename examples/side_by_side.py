"""Both methods on one scenario: a table, and one picture. `make demo` runs it on the paper's instance."""

from __future__ import annotations

import sys
from pathlib import Path

import bestarm as ba
from bestarm.report import plots


def main(scenario: str, picture: str) -> None:
    loaded = ba.load(scenario)
    limit = ba.limit(loaded.problem, loaded.options["delta"])
    records = {method: ba.identify(loaded, method, seed=7) for method in ("fed-sel", "fisher")}
    print(f"{'':22}{'the paper (fed-sel)':>22}{'Fed-Fisher':>14}")
    rows = {
        "best arm": lambda r: r.verdict.arm,
        "rounds": lambda r: f"{r.rounds:,}",
        "pulls": lambda r: f"{r.pulls.total:,}",
        "pulls × limit": lambda r: f"{r.pulls.total / limit.total:,.1f}",
        "longest client, pulls": lambda r: f"{r.pulls.max_per_client:,}",
        "bits up": lambda r: f"{r.bits.up:,}",
    }
    for name, value in rows.items():
        print(f"{name:22}{value(records['fed-sel']):>22}{value(records['fisher']):>14}")
    print(f"Both are wrong with probability at most {loaded.options['delta']:g}.")
    print(f"Limit: {limit.total:,.0f} pulls, the least that any method needs on average.")
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    plots.side_by_side(list(records.values()), picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
