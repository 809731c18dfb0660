"""Run all benchmarks, or those named: ``python -m benchmarks [NAME …]``. Numbers go to out/NAME.json."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

NAMES = ["single_run", "skip_ahead", "scale", "workers", "preferences", "ladder", "million"]


def main() -> None:
    out = Path("out")
    out.mkdir(exist_ok=True)
    console = Console(width=140)
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            sys.exit(f"there is no benchmark {name!r}; known: {', '.join(NAMES)}")
        module = importlib.import_module(f"benchmarks.{name}")
        rows = module.measure()
        (out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
        table = Table(title=f"{name}: {module.__doc__.splitlines()[0]}", title_justify="left")
        for column in rows[0]:
            table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
        for row in rows:
            table.add_row(
                *[
                    f"{v:,.4g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v
                    for v in row.values()
                ]
            )
        console.print(table)


if __name__ == "__main__":
    main()
