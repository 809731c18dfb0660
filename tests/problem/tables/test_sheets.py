"""Sheets of Excel files as people make them, and what counts in a table may hide."""

from __future__ import annotations

import pytest

from bestarm.errors import InputError
from bestarm.problem.tables import Columns, read_rows

openpyxl = pytest.importorskip("openpyxl")


def excel(path, *sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets, start=1):
        sheet = book.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


ROWS = [("a", "x", 1), ("a", "y", 0), ("b", "x", 1), ("b", "y", 0)]
PLACES = Columns(site="city", option="plan", reward="sold")


def test_a_column_without_a_name_shifts_no_other_column(tmp_path):
    head = ("city", "plan", "sold")
    plain = read_rows(excel(tmp_path / "a.xlsx", [head, *ROWS]), PLACES)
    numbered = [(None, *head), *((k, *row) for k, row in enumerate(ROWS))]  # as pandas writes it
    beside = [(a, b, None, c) for a, b, c in (head, *ROWS)]
    for k, rows in enumerate((numbered, beside, [(), (), head, *ROWS])):
        found = read_rows(excel(tmp_path / f"{k}.xlsx", rows), PLACES)
        assert found.sites == plain.sites == ("a", "b")
        assert found.options == plain.options == ("x", "y")
        assert found.value.tolist() == plain.value.tolist()


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        ([[("May 2024",), ("city", "plan", "sold"), *ROWS]], "row 2 has a cell in column 2, which row 1"),
        ([[("city", None, "results", None), (None, "plan", "sold", "of"), *ROWS]], "row 2 has a cell in col"),
        (
            [[("Made by Ana",)], [("city", "plan", "sold"), *ROWS]],
            r'"sheet 1": .*first \(the others: sheet',
        ),
        ([[], [("city", "plan", "sold"), *ROWS]], r'"sheet 1": the first sheet is empty'),
        ([[("city", "plan", "plan"), *ROWS]], 'row 1: column "plan" appears more than once'),
        ([[(), ("city", "plan", "sold"), ("a", "x", "?"), ("a", "y", 1)]], "row 3: column"),
    ],
    ids=["title", "two rows of names", "the wrong sheet", "an empty sheet", "a name twice", "a bad cell"],
)
def test_sheets_that_are_no_table_are_refused(tmp_path, sheets, message):
    with pytest.raises(InputError, match=message):
        read_rows(excel(tmp_path / "t.xlsx", *sheets), PLACES)


def test_options_without_any_try_are_named(tmp_path):
    path = tmp_path / "t.csv"
    counts = Columns(site="city", option="plan", successes="sold", trials="seen")
    path.write_text("city,plan,sold,seen\nb,x,0,0\nb,y,3,9\na,x,2,8\na,y,0,0\na,y,1,4\n", encoding="utf-8")
    assert read_rows(path, counts).notes == ("nothing is known about b/x, where all counts are 0",)
    times = Columns(option="plan", reward="sold", count="seen")
    path.write_text("plan,sold,seen\nz,1,0\nx,0,3\ny,1,9\n", encoding="utf-8")
    assert read_rows(path, times).notes == ("nothing is known about z, where all counts are 0",)


def test_a_count_beside_averages_is_noted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("plan,sold,seen\nx,30 %,10\ny,20 %,20\n", encoding="utf-8")
    _, note = read_rows(path, Columns(option="plan", reward="sold", count="seen")).notes
    assert 'give successes and trials; if averages, leave out "seen"' in note
    assert len(read_rows(path, Columns(option="plan", reward="sold")).notes) == 1
