"""Reading recorded rewards: CSV beside pandas.read_csv, and Parquet beside DuckDB's own group by.

``TABLE_ROWS=100000000 python -m benchmarks tables`` reads 10^8 rows of Parquet; the default is 10^6. Each
read is done three times, in turn with its baseline, and the fastest of each counts. CSV is measured in
processor time of all threads together, and in time that passes, which means little where processors are busy
with other work. Parquet is read in a process of its own, whose peak memory is measured. Rewards are cents
(10,001 values), real numbers (as many values as rows; above 10^6 they are rounded to a grid, and DuckDB's own
query rounds them, too) or, in CSV files, 0/1. ``bestarm evidence`` is measured from the start of the command
to its end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from bestarm.problem.tables import Columns, read_rows, text_file

CSV_ROWS = 10**6
COLUMNS = Columns(option="variant", site="region", reward="revenue")
READ = """
import json, resource, sys, time
from bestarm.problem.tables import Columns, read_rows
begun = time.perf_counter()
rows = read_rows(sys.argv[1], Columns(option="variant", site="region", reward="revenue"))
seconds = time.perf_counter() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak MB": peak, "rewards": rows.total, "entries": len(rows.value)}))
"""


EVIDENCE = """
import json, resource, sys, time
from bestarm.cli.app import main
begun = time.perf_counter()
sys.argv = ["bestarm", "evidence", sys.argv[1], "--site", "region", "--option", "variant"]
sys.argv += ["--reward", "revenue", "--bounds", "0", "100", "--json"]
sys.stdout = open("/dev/null", "w")
try:
    main()
except SystemExit:
    pass
seconds = time.perf_counter() - begun
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak MB": peak}), file=sys.__stdout__)
"""


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return [*_csv(Path(folder)), *_parquet(Path(folder), int(os.environ.get("TABLE_ROWS", 10**6)))]


def _made(path: Path, rows: int, reward: str) -> None:
    """A table of visits, written by DuckDB."""
    kind = "csv, header" if path.suffix == ".csv" else "parquet"
    duckdb.sql(
        f"""copy (select i as id, 'r' || hash(i) % 3 as region, 'v' || hash(i + 1) % 5 as variant,
        {reward} as revenue from range({rows}) t(i)) to '{path}' (format {kind})"""
    )


REWARDS = {
    "cents": "(hash(i + 2) % 10001) / 100", "real numbers": "random() * 100", "0/1": "hash(i + 2) % 2",
}  # fmt: skip


def _csv(folder: Path) -> list[dict[str, Any]]:
    found = []
    for name, reward in REWARDS.items():
        path = folder / f"{name.replace('/', ' or ')}.csv"
        _made(path, CSV_ROWS, reward)

        def plainly(path: Path = path) -> object:
            large, text_file.LARGE = text_file.LARGE, 2**60
            try:
                return read_rows(path, COLUMNS)
            finally:
                text_file.LARGE = large

        works = (
            lambda path=path: pd.read_csv(path),
            lambda path=path: pd.read_csv(path).groupby(["region", "variant", "revenue"]).size(),
            lambda path=path: read_rows(path, COLUMNS),
            lambda path=path: read_rows(path, COLUMNS, ordered=True),
            plainly,
        )
        for words, clock in (("processor", time.process_time), ("time that passes", time.perf_counter)):
            pandas, grouped, ours, ordered, plain = _fastest(clock, *works)
            found.append(
                {
                    "CSV rows": CSV_ROWS, "rewards": name, "clock": words,
                    "pandas.read_csv, seconds": pandas, "in order, × pandas": ordered / pandas,
                    "counted and sorted, × pandas": ours / pandas,
                    "counted and sorted, × pandas with group by": ours / grouped,
                    "without extras, × pandas": plain / pandas,
                }
            )  # fmt: skip
    return found


def _parquet(folder: Path, rows: int) -> list[dict[str, Any]]:
    found = []
    for name, reward in list(REWARDS.items())[:2]:
        path = folder / f"{name}.parquet"
        _made(path, rows, reward)
        cells = "revenue" if name == "cents" else "floor(revenue * 4096) / 4096"
        query = f"select region, variant, {cells}, count(*) from '{path}' group by all"
        (group_by,) = _fastest(time.perf_counter, lambda query=query: duckdb.sql(query).to_arrow_table())
        reads = [_process(READ, path) for _ in range(3)]
        best, whole = min(reads, key=lambda read: read["seconds"]), _process(EVIDENCE, path)
        found.append(
            {
                "Parquet rows": rows, "rewards": name, "MB": path.stat().st_size / 2**20,
                "DuckDB's group by, seconds": group_by, "read_rows, × group by": best["seconds"] / group_by,
                "peak MB": best["peak MB"], "entries": int(best["entries"]),
                "bestarm evidence, seconds": whole["seconds"], "its × group by": whole["seconds"] / group_by,
                "its peak MB": whole["peak MB"],
            }
        )  # fmt: skip
        path.unlink()
    return found


def _process(code: str, path: Path) -> dict[str, float]:
    """What a process of its own prints about its work on a file."""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _fastest(clock: Callable[[], float], *works: Callable[[], object]) -> list[float]:
    """The seconds of each work by a clock: the fastest of three, in turn."""
    seconds = [float("inf")] * len(works)
    for _ in range(3):
        for k, work in enumerate(works):
            begun = clock()
            work()
            seconds[k] = min(seconds[k], clock() - begun)
    return seconds
