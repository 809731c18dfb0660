"""Compares two methods on one scenario: a table and a picture. `make demo` uses the paper's instance."""

from __future__ import annotations

import sys
from pathlib import Path

import bestarm as ba
from bestarm.report import plots
from bestarm.report.wealth_plot import wealth
from bestarm.simulate.identify import prepare
from bestarm.study.limits import limit_of_runs


def limit_of(loaded: ba.Scenario, record: ba.Record) -> ba.Limit | None:
    """The limit, if it applies to this run."""
    problem, method, options = prepare(loaded, record.method, {})
    undecided = int(record.verdict.status != "identified")
    return limit_of_runs(problem, method, options, undecided=undecided)[0]


def main(scenario: str, picture: str) -> None:
    loaded = ba.load(scenario)
    records = {method: ba.identify(loaded, method, seed=7) for method in ("fed-sel", "bet")}
    limits = [limit_of(loaded, record) for record in records.values()]
    limit = limits[0] if all(limits) else None
    print(f"{'':22}{'the paper (fed-sel)':>22}{'Fed-Bet':>14}")
    rows = {
        "best arm": lambda r: r.verdict.arm,
        "rounds": lambda r: f"{r.rounds:,}",
        "pulls": lambda r: f"{r.pulls.total:,}",
        **({"pulls × limit": lambda r: f"{r.pulls.total / limit.total:,.1f}"} if limit else {}),
        "longest client, pulls": lambda r: f"{r.pulls.max_per_client:,}",
        "bits up": lambda r: f"{r.bits.up:,}",
    }
    for name, value in rows.items():
        print(f"{name:22}{value(records['fed-sel']):>22}{value(records['bet']):>14}")
    print(f"Both are wrong with probability at most {loaded.options['delta']:g}.")
    if limit:
        print(f"Limit: {limit.total:,.0f} pulls, the fewest on average of {limit.holds_for}.")
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    _, (left, right) = plots.pyplot().subplots(1, 2, figsize=(14, 4.5), layout="constrained")
    plots.intervals(records["fed-sel"], left)
    plots.save(wealth(records["bet"], right), picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
