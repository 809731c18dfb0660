"""Makes hospitals.csv: how many patients four hospitals treated in three ways, and how many recovered.

    python examples/make_hospitals.py

The data are made up, with a fixed seed. Recovery is a coin with the rate below, as in hospitals.toml. The
easy hospitals used treatment A most, the hard ones B, so that sums over all hospitals mislead.
"""

from __future__ import annotations

import csv
import random
from pathlib import Path

TREATMENTS = ("A", "B", "C")
RATES = {
    "north": (0.80, 0.89, 0.78),
    "east": (0.60, 0.71, 0.58),
    "south": (0.40, 0.51, 0.38),
    "west": (0.24, 0.25, 0.34),
}
PATIENTS = {
    "north": (700, 60, 350),
    "east": (500, 140, 350),
    "south": (150, 500, 350),
    "west": (50, 700, 350),
}


def main() -> None:
    rng = random.Random(20)
    with (Path(__file__).parent / "hospitals.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["hospital", "treatment", "patients", "recovered"])
        for hospital, rates in RATES.items():
            for treatment, rate, patients in zip(TREATMENTS, rates, PATIENTS[hospital], strict=True):
                recovered = sum(rng.random() < rate for _ in range(patients))
                writer.writerow([hospital, treatment, patients, recovered])


if __name__ == "__main__":
    main()
