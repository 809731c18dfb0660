"""Runs all benchmarks, or the named ones: ``python -m benchmarks [NAME …]``. Results go to out/NAME.json."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

NAMES = [
    "single_run", "skip_ahead", "one_test", "robustness", "scale", "workers", "preferences", "ladder",
    "bet", "million", "attacks", "figures", "federation", "many_clients", "floods", "folders", "restart",
    "mesh", "arena", "compare", "robust_bet", "lying_sites", "privacy", "tables", "evidence", "questions",
    "many_groups", "evidence_validity", "coverage", "experiment", "experiment_validity",
]  # fmt: skip


def main() -> None:
    names = sys.argv[1:] or NAMES
    for name in names:
        if name not in NAMES:
            sys.exit(f"there is no benchmark {name!r}; known: {', '.join(NAMES)}")
    out = Path("out")
    out.mkdir(exist_ok=True)
    found = {}
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        found[name] = importlib.import_module(f"benchmarks.{name}").measure()
        (out / f"{name}.json").write_text(json.dumps(found[name], indent=1) + "\n")
    table = Table(title="Benchmarks (all numbers are in out/*.json)", title_justify="left")
    table.add_column("benchmark")
    table.add_column("figures", overflow="fold")
    for name, rows in found.items():
        for row in rows:
            table.add_row(name, ", ".join(f"{key} {_text(value)}" for key, value in row.items()))
        table.add_section()
    Console(width=150).print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    main()
