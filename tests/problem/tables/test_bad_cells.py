"""What is wrong with a table is said with its line and column, and how often."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas
import pytest

from bestarm.errors import InputError
from bestarm.problem.tables import Columns, grid, read_rows, text_file

COLUMNS = Columns(option="banner", site="shop", reward="sales")
COUNTS = Columns(option="banner", successes="good", trials="all")
HEAD = "shop,banner,sales\n"


def table(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


BAD = {
    "text": ("s,a,1\ns,b,x\ns,b,z\ns,b,2\n", r"t.csv, line 3: column \"sales\" holds 'x' \(1 more row can't"),
    "empty name": ("s,a,1\n,b,2\n", r"line 3: column \"shop\" is empty. missing = \"skip\" .* leaves out"),
    "missing": ("s,a,1\ns,b,n/a\n", r"line 3: column \"sales\" holds 'n/a'. Expected a finite number. miss"),
    "infinite": ("s,a,1\ns,b,inf\n", r"line 3: column \"sales\" holds 'inf'"),
    "underscore": ("s,a,1\ns,b,1_0\n", r"line 3: column \"sales\" holds '1_0'"),
    "decimal comma": (
        's,a,1\ns,b,"3,5"\n',
        r"line 3: column \"sales\" holds '3,5'. Expected a finite number",
    ),
    "mixed": ("s,a,12%\ns,b,7 %\ns,b,0.3\n", r"line 4: .* holds '0.3'. Expected a number with \"%\""),
    "units": ("s,a,3 ms\ns,b,7ms\ns,b,2 s\n", r"line 4: .* holds '2 s'. Expected a number with \"ms\""),
    "after a line break": ('s,"a\nb",1\ns,b,x\n', r"line 4: column \"sales\" holds 'x'"),
    "ragged": ("s,a,1\ns,b\n", r"line 3: 2 cells. Expected 3, as in the first line"),
    "no rows": ("", "no row is left"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_the_first_bad_cell_is_named(text, said, tmp_path):
    for ordered in (False, True):
        with pytest.raises(InputError, match=said):
            read_rows(table(tmp_path, HEAD + text), COLUMNS, ordered=ordered)


COUNTED = {
    "a fraction": ("a,1.5,3\n", r"line 2: column \"good\" holds a count of 1.5. Expected a whole number"),
    "negative": ("a,1,3\na,1,-3\n", r"line 3: column \"all\" holds a count of -3"),
    "too many": ("a,1,3\na,4,3\n", "line 3: 4 successes of 3 trials"),
}


@pytest.mark.parametrize(("text", "said"), COUNTED.values(), ids=COUNTED)
def test_counts_are_whole_and_add_up(text, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read_rows(table(tmp_path, "banner,good,all\n" + text), COUNTS)


NAMED = {
    "no column": (b"shop,banner,sale\ns,a,1\n", r"t.csv, line 1: there is no column.*you mean \"sale\"\?"),
    "semicolons": (b"shop;banner;sales\ns;a;1\n", r"this looks separated by \";\""),
    "empty": (b"", "the file is empty"),
    "UTF-16": ((HEAD + "s,a,1\n").encode("utf-16"), "this looks like UTF-16. Expected CSV in UTF-8. Save"),
    "UTF-16 without a mark": ((HEAD + "s,a,1\n").encode("utf-16-le"), "this looks like UTF-16"),
    "Latin-1": ((HEAD + "s,a,1\nKöln,b,2\n").encode("latin-1"), r"line 3: this is not UTF-8, and looks"),
    "Parquet": (b"PAR1" + bytes(40), "this is a Parquet file, not a text file.*ends with .parquet"),
    "Excel": (b"PK\x03\x04" + bytes(40), "this is an Excel or zip file, not a text file"),
    "Feather": (b"ARROW1" + bytes(40), "this is a Feather .Arrow. file"),
    "gzip": (b"\x1f\x8b" + bytes(40), "this is a gzip file"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "said"), NAMED.values(), ids=NAMED)
def test_a_file_that_is_something_else_is_called_by_its_name(data, said, tmp_path):
    with pytest.raises(InputError, match=said):
        read_rows(table(tmp_path, data), COLUMNS)


@pytest.fixture
def fast(monkeypatch):
    """PyArrow reads even small files, in many pieces."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(text_file, "LARGE", 0)
    monkeypatch.setattr(text_file, "BLOCK", 2**12)


def test_both_readers_read_alike(tmp_path, fast, monkeypatch):
    rng = np.random.default_rng(3)
    sites, options, values = rng.integers(0, 5, 2000), rng.integers(0, 5, 2000), rng.normal(size=2000)
    lines = [f'"s{a}",b{b},{float(v)!r}\n' for a, b, v in zip(sites, options, values, strict=True)]
    lines[1000] = '"s,""1""",b9, 7\n'
    path = table(tmp_path, "\ufeff" + HEAD + "".join(lines))
    for ordered in (False, True):
        found = read_rows(path, COLUMNS, ordered=ordered)
        with monkeypatch.context() as patch:
            patch.setattr(text_file, "LARGE", 2**40)
            slow = read_rows(path, COLUMNS, ordered=ordered)
        assert found.sites == slow.sites
        assert 's,"1"' in found.sites
        for one in ("site", "option", "value", "count"):
            assert getattr(found, one).tolist() == getattr(slow, one).tolist()


@pytest.mark.parametrize("odd", ["x", "12%", "+-1", '"3\n4"'])
def test_a_bad_cell_late_in_a_file_is_found(tmp_path, fast, odd):
    lines = ["shop,b,0.123456789\n"] * 2000
    lines[1500] = lines[1700] = f"shop,b,{odd}\n"
    with pytest.raises(InputError, match=r"line 150[23]: .* \(1 more row can't be used either\)"):
        read_rows(table(tmp_path, HEAD + "".join(lines)), COLUMNS)


def test_a_bad_cell_of_any_table_is_found(tmp_path):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    frame = pd.DataFrame(
        {"shop": ["s"] * 9, "banner": list("aaabbbccc"), "sales": [1.0] * 6 + [np.nan, np.inf, 2.0]}
    )
    said = r"row 7: column \"sales\" holds '.*' \(1 more row can't be used either\). Expected a finite number"
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, pl.from_pandas(frame), tmp_path / "t.parquet"):
        with pytest.raises(InputError, match=said):
            read_rows(source, COLUMNS)
    (tmp_path / "t.jsonl").write_text(
        '{"shop": "s", "banner": "a", "sales": 1}\n\n{"shop": "s", "banner": "a"}\n'
    )
    with pytest.raises(InputError, match="line 3: column \"sales\" holds ''"):
        read_rows(tmp_path / "t.jsonl", COLUMNS)
    (tmp_path / "t.jsonl").write_text('{"shop": "s", "banner": "a", "sales": 1}\n[3]\n')
    with pytest.raises(InputError, match="line 2: this is not a JSON object"):
        read_rows(tmp_path / "t.jsonl", COLUMNS)


def test_a_bad_cell_in_one_of_several_files_is_found(tmp_path):
    table(tmp_path, HEAD + "s,a,1\ns,b,2\n", "a.csv")
    table(tmp_path, HEAD + "s,a,1\ns,b,z\n", "b.csv")
    with pytest.raises(InputError, match=r"\(2 files\), .*b.csv, line 3: column \"sales\" holds 'z'"):
        read_rows(tmp_path, COLUMNS)
    table(tmp_path, "shop,banner\ns,a\n", "c.csv")
    with pytest.raises(InputError, match=r"c.csv, line 1: there is no column \"sales\""):
        read_rows(f"{tmp_path}/*.csv", COLUMNS)


def test_names_that_look_alike_are_reported_and_not_merged(tmp_path):
    rows = read_rows(table(tmp_path, HEAD + "s,Acme,1\ns,acme ,2\ns,Acme ,3\n s2 ,x/y,4\n"), COLUMNS)
    assert rows.options == ("Acme", "Acme ", "acme", "x∕y")
    assert rows.sites == ("s", "s2")  # a blank that merges nothing is dropped
    assert rows.notes == (
        "column \"banner\": 'Acme' and 'Acme ' and 'acme ' differ only by blanks or case, "
        "and count as different names (if they mean the same, write them alike in the table)",
    )


def test_rows_without_a_name_or_a_number_can_be_left_out(tmp_path):
    rows = read_rows(table(tmp_path, HEAD + "s,a,1\n,a,2\ns,b,NaN\ns,b,4\n"), COLUMNS, missing="skip")
    assert rows.value.tolist() == [1, 4]
    assert rows.notes == ("2 rows without a name or a number left out",)


def test_numbers_as_people_write_them(tmp_path):
    text = 'shop,banner,sales\ns,a,"1,234"\ns,a,999\ns,a," 2,000,000.5 "\n'
    assert read_rows(table(tmp_path, text), COLUMNS).value.tolist() == [999, 1234, 2000000.5]
    percent = read_rows(table(tmp_path, HEAD + "s,a,12%\ns,a,3.5 %\n"), COLUMNS)
    assert percent.value.tolist() == pytest.approx([0.035, 0.12])
    assert percent.notes == ('column "sales" holds percentages: 12% is read as 0.12',)
    money = read_rows(table(tmp_path, HEAD + 's,a,$12\ns,a,"$1,200.50"\n'), COLUMNS)
    assert money.value.tolist() == [12, 1200.5]
    assert money.notes == ("column \"sales\" holds numbers in '$'",)


def test_bounds_are_checked(tmp_path):
    path = table(tmp_path, HEAD + "s,a,1\ns,a,7\ns,a,-2\n")
    said = r"line 3: sales = 7 not in \[0, 5\] \(1 more row can't .*range from -2 to 7. Declare bounds"
    with pytest.raises(InputError, match=said):
        read_rows(path, COLUMNS, bounds=(0, 5))


def test_only_the_rows_that_where_asks_for_count(tmp_path):
    path = table(tmp_path, HEAD + "s,a,1\nt,a,x\ns,b,3\n")  # a bad cell in another row does not matter
    rows = read_rows(path, Columns(option="banner", reward="sales"), where={"shop": "s"})
    assert rows.value.tolist() == [1, 3]


def test_too_many_distinct_values_are_rounded_down_to_the_same_grid_by_every_reader(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr(grid, "MOST_DISTINCT", 5000)
    monkeypatch.setattr(grid, "STEPS", 2**10)
    values = np.random.default_rng(4).normal(size=30_000)
    frame = pd.DataFrame({"shop": "s", "banner": "a", "sales": values})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv")
    (tmp_path / "parts").mkdir()
    for part, rows in enumerate(np.array_split(np.arange(len(values)), [3000])):
        frame.iloc[rows].to_parquet(tmp_path / "parts" / f"{part}.parquet")
    exact = np.sort(values)
    for bounds in (None, (-8.0, 8.0)):
        step = grid.grid_step(*(bounds or (exact[0], exact[-1])))
        for source in (frame, tmp_path / "t.parquet", tmp_path / "t.csv", tmp_path / "parts"):
            rows = read_rows(source, COLUMNS, bounds=bounds)
            assert rows.width == step
            assert np.array_equal(np.repeat(rows.value, rows.count), np.floor(exact / step) * step)
            assert "rounded down to a grid" in rows.notes[0]
        assert not read_rows(frame[:5000], COLUMNS).width


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"option": "a"}, "it is not clear which columns contain the rewards"),
        ({"option": "a", "reward": "r", "trials": "t"}, "it is not clear"),
        ({"option": "a", "successes": "s", "trials": "t", "count": "n"}, "count goes with reward"),
        ({"option": "a", "reward": "a"}, 'option = "a" is given twice'),
    ],
)
def test_columns_say_one_thing(asked, said):
    with pytest.raises(InputError, match=said):
        Columns(**asked)


def test_what_is_no_table_is_refused(tmp_path):
    for source, said in [
        (tmp_path / "none.csv", "there is no such file"),
        (tmp_path, "there is no table in this folder"),
        (f"{tmp_path}/*.csv", "no file matches this pattern"),
        (table(tmp_path, b"x", "t.docx"), "files that end with '.docx' are not read"),
        (None, "a NoneType is no table"),
    ]:
        with pytest.raises(InputError, match=said):
            read_rows(source, COLUMNS)
    with pytest.raises(InputError, match="it is not clear what to read"):
        read_rows("x.csv", COLUMNS, sql="select 1", database="sqlite://")
    with pytest.raises(InputError, match="this is not the address of a database"):
        read_rows(None, COLUMNS, sql="select 1", database="nonsense")


def test_a_database_file_that_does_not_exist_is_refused_and_not_made(tmp_path):
    with pytest.raises(InputError, match="there is no such database file"):
        read_rows(None, COLUMNS, sql="select * from t", database=f"sqlite:///{tmp_path}/typo.db")
    assert not list(tmp_path.iterdir())


def test_a_frame_needs_different_texts_as_column_names():
    rows = [["s", "a", 1], ["s", "b", 0]]
    for names, said in [([0, 1, 2], "a column called 0"), (["x", "x", "reward"], "same name")]:
        with pytest.raises(InputError, match=said):
            read_rows(pandas.DataFrame(rows, columns=names), COLUMNS)


def test_bounds_in_per_cent_are_refused_for_a_column_whose_percentages_are_read_as_shares(tmp_path):
    path = table(tmp_path, HEAD + "s,a,5.7%\ns,b,-5%\n")
    with pytest.raises(InputError, match=r"mean -2,000% to 10,000%. Expected bounds from -0.2 to 1"):
        read_rows(path, COLUMNS, bounds=(-20.0, 100.0))
    assert read_rows(path, COLUMNS, bounds=(-0.2, 1.0)).total == 2
    assert read_rows(path, COLUMNS, bounds=(-1.0, 5.0)).total == 2  # growth may well be above 100 %


def test_a_date_whose_month_could_be_its_day_is_refused_with_the_way_to_write_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("shop,banner,click,day\ns,a,1,31/12/2024\n")
    columns = dataclasses.replace(COLUMNS, reward="click", time="day")
    with pytest.raises(InputError, match=r"31/12/2024.*a date such as 2024-05-31 .*not 05/31/2024"):
        read_rows(path, columns, ordered=True)
