"""The estimate of the rows that would decide agrees with tables of that many rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import bestarm as ba
from bestarm.evidence.card import steps

CASES = {
    "exact tests": ({"a": 0.6, "b": 0.45}, {}),
    "three options": ({"a": 0.7, "b": 0.5, "c": 0.55}, {}),
    "e-values": ({"a": 0.6, "b": 0.4}, {"looks": 2, "seed": 1}),
    "a control": ({"a": 0.6, "b": 0.45}, {"question": "control", "control": "b"}),
}


def table(path, means, rows):
    lines = [f"{o},{v},{round(rows * (m if v else 1 - m))}" for o, m in means.items() for v in (0, 1)]
    path.write_text("\n".join(["option,won,count", *lines]) + "\n")
    return path


def look(path, keys):
    return ba.evidence(path, option="option", reward="won", count="count", **keys)


@pytest.mark.parametrize("name", CASES)
def test_about_so_many_rows_decide(name, tmp_path):
    means, keys = CASES[name]
    now = look(table(tmp_path / "now.csv", means, 40), keys)
    assert now.status == "undecided"
    needed = int(re.match(r"About ([\d,]+) rows", steps(now)[0])[1].replace(",", ""))
    assert needed > now.rows
    for share, status in ((1.5, "identified"), (0.25, "undecided")):
        rows = round(share * needed / len(means))
        assert look(table(tmp_path / f"{share}.csv", means, rows), keys).status == status


def test_the_number_does_not_depend_on_how_often_the_rows_are_repeated(tmp_path):
    rng = np.random.default_rng(5)
    values = {name: np.round(rng.gamma(0.1, 40 * scale, 300), 1) for name, scale in (("a", 1.0), ("b", 0.6))}

    def told(times, bounds):
        lines = [f"{name},{x},{times}" for name, xs in values.items() for x in xs.clip(0, 100)]
        path = tmp_path / f"{times}.csv"
        path.write_text("\n".join(["option,spent,count", *lines]) + "\n")
        found = ba.evidence(path, option="option", reward="spent", count="count", bounds=bounds)
        assert found.status == "undecided"
        return int(re.match(r"About ([\d,]+) rows", steps(found)[0])[1].replace(",", ""))

    once, twice = told(1, (0, 100)), told(2, (0, 100))
    assert once == pytest.approx(twice, rel=0.1)
    assert told(1, (0, 1000)) > 1.5 * once  # wide bounds cost rows


def test_the_estimate_says_so_when_chance_alone_leaves_the_question_open(tmp_path):
    needed = steps(look(table(tmp_path / "now.csv", {"a": 0.6, "b": 0.45}, 40), {}))[0]
    rows = int(re.match(r"About ([\d,]+) rows", needed)[1].replace(",", "")) // 2
    closest = next(
        found
        for k in range(rows - 20, rows + 60)
        if (found := look(table(tmp_path / "t.csv", {"a": 0.6, "b": 0.45}, k), {})).status == "identified"
    )
    assert closest.rows == pytest.approx(2 * rows, rel=0.1)


def test_few_rows_give_no_number(tmp_path):
    found = look(table(tmp_path / "t.csv", {"a": 0.9, "b": 0.6}, 10), {})
    assert found.status == "undecided"
    assert steps(found)[0].startswith("Collect more rows")


def test_equal_means_give_no_number(tmp_path):
    found = look(table(tmp_path / "t.csv", {"a": 0.5, "b": 0.5}, 40), {})
    assert steps(found)[0].startswith("Collect more rows")
