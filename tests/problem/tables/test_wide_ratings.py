"""Tables with a column of counts for each rating are read like tables with a row for each rating."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.errors import InputError
from bestarm.evidence.describe import aim
from bestarm.problem.tables import Columns, read_rows
from bestarm.scenario.load import load

RATINGS = ("1★", "2★", "3★", "4★", "5★")
WIDE = Columns(option="place", site="city", ratings=RATINGS)
LONG = Columns(option="place", site="city", reward="rating", count="n")


def write(folder):
    """The same ratings in a wide and in a long table."""
    rng = np.random.default_rng(7)
    wide, long = [",".join(["city", "place", *RATINGS])], ["city,place,rating,n"]
    for city in ("north", "south"):
        for place, up in (("a", 60), ("b", 0)):
            for _ in range(3):
                counts = rng.integers(0, 40, 5) + np.array([0, 0, 0, up, up])
                wide.append(",".join([city, place, *map(str, counts)]))
                long += [f"{city},{place},{k},{n}" for k, n in enumerate(counts, start=1)]
    for name, lines in (("wide.csv", wide), ("long.csv", long)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "wide.csv", folder / "long.csv"


def test_a_wide_table_holds_the_rewards_of_the_long_one(tmp_path):
    wide, long = write(tmp_path)
    found, expected = read_rows(wide, WIDE), read_rows(long, LONG)
    for part in ("sites", "options"):
        assert getattr(found, part) == getattr(expected, part)
    for part in ("site", "option", "value", "count"):
        assert getattr(found, part).tolist() == getattr(expected, part).tolist()


def test_parquet_and_frames_hold_the_same_counts(tmp_path):
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    wide, _ = write(tmp_path)
    duckdb.sql(f"copy (from read_csv('{wide}')) to '{tmp_path / 'wide.parquet'}'")
    expected = read_rows(wide, WIDE)
    for source in (tmp_path / "wide.parquet", pandas.read_csv(wide)):
        found = read_rows(source, WIDE)
        assert found.value.tolist() == expected.value.tolist()
        assert found.count.tolist() == expected.count.tolist()


def test_evidence_of_both_tables_is_the_same_and_the_ratings_are_the_bounds(tmp_path):
    wide, long = write(tmp_path)
    found = ba.evidence(wide)
    expected = ba.evidence(long, option="place", site="city", reward="rating", count="n", bounds=(1, 5))
    assert found.status == "identified"
    assert found.settings.bounds == (1.0, 5.0)
    assert found.options == expected.options
    assert found.best == expected.best
    assert "the ratings (1★, 2★, 3★, 4★, 5★)" in aim(found)


def test_a_scenario_reads_a_wide_table(tmp_path):
    wide, long = write(tmp_path)
    text = f'[data]\ncsv = "{wide.name}"\ngroup = "city"\narm = "place"\nratings = {list(RATINGS)}\n'
    (tmp_path / "w.toml").write_text(text, encoding="utf-8")
    keys = 'group = "city"\narm = "place"\nreward = "rating"\ncount = "n"\nbounds = [1, 5]\n'
    (tmp_path / "l.toml").write_text(f'[data]\ncsv = "{long.name}"\n{keys}', encoding="utf-8")
    one, other = (load(tmp_path / name).problem for name in ("w.toml", "l.toml"))
    assert one.rewards == other.rewards
    assert one.scale == other.scale


@pytest.mark.parametrize(
    ("cell", "says"),
    [("-1", "a count of -1"), ("0.5", "a count of 0.5"), ("many", '"3★" holds'), ("", '"3★" holds')],
)
def test_a_cell_that_is_no_count_is_named(tmp_path, cell, says):
    path = tmp_path / "t.csv"
    path.write_text(f"place,1★,2★,3★\na,1,2,3\nb,1,2,{cell}\n", encoding="utf-8")
    with pytest.raises(InputError, match=says) as error:
        read_rows(path, Columns(option="place", ratings=RATINGS[:3]))
    assert "line 3" in str(error.value)


@pytest.mark.parametrize(
    ("ratings", "says"),
    [(("low", "2★"), "which rating"), (("2★", "2 stars"), "two columns count"), (("2★",), "at least two")],
)
def test_columns_that_name_no_rating_are_refused(ratings, says):
    with pytest.raises(InputError, match=says):
        Columns(option="place", ratings=ratings)


def test_ratings_outside_the_bounds_are_refused(tmp_path):
    wide, _ = write(tmp_path)
    with pytest.raises(InputError, match=r'"5★" counts ratings of 5, not in \[1, 4\]'):
        ba.evidence(wide, bounds=(1, 4))


def test_a_scenario_that_does_not_say_the_columns_lists_how_its_table_can_be_read(tmp_path):
    wide, _ = write(tmp_path)
    listed = r'The table can be read with: group = "city", arm = "place", ratings = \["1★", "2★"'
    for keys in ("", 'arm = "place"\n', 'arm = "CHECK: a or b"\n'):
        (tmp_path / "q.toml").write_text(f'[data]\ncsv = "{wide.name}"\n{keys}', encoding="utf-8")
        with pytest.raises(InputError, match=listed):
            load(tmp_path / "q.toml")
