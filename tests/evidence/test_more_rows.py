"""The estimate of the rows that would decide agrees with tables of that many rows."""

from __future__ import annotations

import re

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


def test_equal_means_give_no_number(tmp_path):
    found = look(table(tmp_path / "t.csv", {"a": 0.5, "b": 0.5}, 40), {})
    assert steps(found)[0].startswith("Collect more rows")
