"""The same rows from every kind of table give the same rewards, names and counts."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import bestarm as ba
from bestarm.errors import InputError
from bestarm.problem.tables import Columns, read_rows

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
sa = pytest.importorskip("sqlalchemy")
duckdb = pytest.importorskip("duckdb")
for package in ("narwhals", "openpyxl", "psycopg"):
    pytest.importorskip(package)

COLUMNS = Columns(option="variant", site="region", reward="revenue", time="day")
ROWS = 700


def frame():
    rng = np.random.default_rng(21)
    return pd.DataFrame(
        {
            "day": pd.date_range("2024-01-01", periods=ROWS, freq="h").strftime("%Y-%m-%dT%H:%M:%S"),
            "region": rng.choice(["north", "south", "Übersee"], ROWS),
            "variant": rng.integers(1, 4, ROWS),
            "revenue": rng.normal(10, 3, ROWS).round(2),
            "shown": rng.integers(5, 9, ROWS),
            "clicked": rng.integers(0, 5, ROWS),
            "good": rng.random(ROWS) < 0.4,
        }
    )


@pytest.fixture(scope="module")
def postgres():
    """The address of a PostgreSQL server of its own, which runs as user `postgres`."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        pytest.skip("Debian's package postgresql is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root can start PostgreSQL as the user postgres")
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="bestarm-postgres-"))  # pytest's own folders are closed to others
    os.chown(folder, user.pw_uid, user.pw_gid)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program, *words):
        command = [str(found[-1] / program), "-D", str(folder / "db"), *words]
        done = subprocess.run(
            command,
            user=user.pw_uid,
            group=user.pw_gid,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr

    run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    run("pg_ctl", "-w", "-t", "120", "-l", str(folder / "log"), "-o", options, "start")
    yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    run("pg_ctl", "-w", "-t", "120", "-m", "fast", "stop")
    shutil.rmtree(folder, ignore_errors=True)


def written(kind, table, folder):
    """What ``read_rows`` takes to read `table` as this kind of source."""
    path = folder / f"table.{kind}"
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "tsv":
        table.to_csv(path, index=False, sep="\t")
    elif kind == "parquet":
        table.to_parquet(path)
    elif kind == "feather":
        table.to_feather(path)
    elif kind == "jsonl":
        table.to_json(path, orient="records", lines=True, force_ascii=False)
    elif kind == "xlsx":
        table.to_excel(path, index=False)
    elif kind == "folder":
        (folder / "parts").mkdir()
        table[:300].to_csv(folder / "parts" / "a.csv", index=False)
        table[300:].to_parquet(folder / "parts" / "b.parquet")
        path = folder / "parts"
    elif kind == "glob":
        table[:1].to_csv(folder / "g1.csv", index=False)
        table[1:].to_csv(folder / "g2.csv", index=False)
        path = f"{folder}/g*.csv"
    else:
        return {
            "pandas": lambda: table,
            "polars": lambda: pl.from_pandas(table),
            "lazy": lambda: pl.from_pandas(table).lazy(),
            "arrow": lambda: arrow,
            "duckdb": lambda: duckdb.connect().from_arrow(arrow),
        }[kind]()
    return path


FILES = ["csv", "tsv", "parquet", "feather", "jsonl", "xlsx", "folder", "glob"]
FRAMES = ["pandas", "polars", "lazy", "arrow", "duckdb"]


def plain(rows):
    """Everything but the notes."""
    arrays = (rows.site, rows.option, rows.value, rows.count)
    return rows.sites, rows.options, *(array.tolist() for array in arrays), rows.width


def expected(table, ordered):
    """The same by pandas alone."""
    rewards = table["revenue"]
    keys = [table["region"], table["variant"], rewards]
    sites, options = sorted(set(table["region"])), [str(v) for v in sorted(set(table["variant"]))]
    if ordered:
        triples = [(*key, 1) for key in zip(*keys, strict=True)]
    else:
        triples = [(*key, n) for key, n in table.groupby(["region", "variant", "revenue"]).size().items()]
    columns = zip(*((sites.index(s), options.index(str(o)), v, n) for s, o, v, n in triples), strict=True)
    return tuple(sites), tuple(options), *map(list, columns), 0.0


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", FILES + FRAMES)
def test_every_file_and_frame_gives_the_same_rows(kind, ordered, tmp_path):
    table = frame()
    assert plain(read_rows(written(kind, table, tmp_path), COLUMNS, ordered=ordered)) == expected(
        table, ordered
    )


def stored(url, table, name="Visits"):
    """Store a table in a database; the query that returns it."""
    driver = url.replace("postgresql:", "postgresql+psycopg:")
    with sa.create_engine(driver, poolclass=sa.NullPool).begin() as connection:
        table.to_sql(name, connection, index=False)
    return f'select * from "{name}";'


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_database_gives_the_same_rows(kind, tmp_path, request):
    table = frame()
    url = f"sqlite:///{tmp_path}/x.db" if kind == "sqlite" else request.getfixturevalue("postgres")
    query = stored(url, table)
    for ordered in (False, True):
        found = read_rows(None, COLUMNS, sql=query, database=url, ordered=ordered)
        assert plain(found) == expected(table, ordered)
    with pytest.raises(InputError, match=r"the database says: .*nowhere"):
        read_rows(None, COLUMNS, sql="select * from nowhere", database=url)
    untimed = Columns(option="variant", reward="revenue")
    with pytest.raises(InputError, match=r"the rows have no order: a database returns rows in any order"):
        read_rows(None, untimed, sql=query, database=url, ordered=True)


SETTINGS = {
    "option": "variant", "site": "region", "reward": "revenue", "bounds": (-10.0, 40.0), "delta": 0.1,
}  # fmt: skip


def answers(source, look, **where):
    """Everything that evidence says about the options, with numbers to six digits."""
    order = {"look": "any-time", "time": "day"} if look == "any-time" else {"order": "none"}
    found = ba.evidence(source, **SETTINGS, **order, **where)
    options = [
        (one.name, one.rows, f"{one.mean:.6g}", one.status, [f"{test.evalue:.6g}" for test in one.tests])
        for one in found.options
    ]
    return found.status, found.best, found.promise, found.rows, options


def frame_with_a_winner():
    table = frame()
    return table.assign(revenue=(table["revenue"] + 4 * (table["variant"] == 2)).round(2))


@pytest.mark.parametrize("look", ["once", "any-time"])
def test_evidence_from_every_kind_of_table_is_the_same(look, tmp_path, request):
    """Verdict, counts, means and e-values from files, frames and databases that hold the same rows."""
    table = frame_with_a_winner()
    expected = answers(table, look)
    assert expected[:2] == ("identified", {"": "2"})
    assert expected[3] == ROWS
    for kind in ("csv", "parquet", "polars", "arrow", "duckdb", "feather", "folder"):
        (tmp_path / kind).mkdir()
        assert answers(written(kind, table, tmp_path / kind), look) == expected, kind
    urls = {"sqlite": f"sqlite:///{tmp_path}/visits.db", "postgres": request.getfixturevalue("postgres")}
    for url in urls.values():
        query = stored(url, table, f"Winner {look}")
        assert answers(None, look, sql=query, database=url) == expected, url


COUNTS = Columns(option="variant", site="region", successes="clicked", trials="shown")
WEIGHTED = Columns(option="variant", site="region", reward="revenue", count="clicked")


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "pandas", "polars", "duckdb"])
def test_counts_are_rows(kind, tmp_path):
    table = frame()
    source = written(kind, table, tmp_path)
    rows = read_rows(source, COUNTS)
    assert rows.total == table["shown"].sum()
    assert rows.count[rows.value == 1].sum() == table["clicked"].sum()
    assert len(rows.value) == 2 * 3 * 3  # a value of 0 and one of 1 by site and option
    weighted = read_rows(source, WEIGHTED)
    assert weighted.total == table["clicked"].sum()
    assert np.dot(weighted.value, weighted.count) == pytest.approx(
        (table["revenue"] * table["clicked"]).sum()
    )
    assert (weighted.count > 0).all()


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "xlsx", "pandas", "polars", "arrow"])
def test_yes_and_no_are_rewards(kind, tmp_path):
    table = frame()
    rows = read_rows(written(kind, table, tmp_path), Columns(option="variant", reward="good"))
    assert rows.sites == ("all",)
    assert set(rows.value) == {0.0, 1.0}
    assert rows.count[rows.value == 1].sum() == table["good"].sum()


def test_rows_keep_the_order_of_a_file_or_frame_without_a_time(tmp_path):
    table = frame()
    columns = Columns(option="variant", reward="revenue")
    for kind in ("csv", "pandas", "polars", "arrow"):
        found = read_rows(written(kind, table, tmp_path), columns, ordered=True)
        assert found.value.tolist() == table["revenue"].tolist()
    for kind, why in [("parquet", "written in parts"), ("folder", "several files"), ("lazy", "a query")]:
        with pytest.raises(
            InputError, match=rf"the rows have no order: .*{why}.*Expected a column that says"
        ):
            read_rows(written(kind, table, tmp_path), columns, ordered=True)


def test_the_time_puts_rows_in_order(tmp_path):
    table = frame().assign(day=lambda t: t["day"].sample(frac=1, random_state=1).values)
    by_day = table.sort_values("day", kind="stable")["revenue"].tolist()
    for kind in ("csv", "parquet", "duckdb", "folder"):
        found = read_rows(written(kind, table, tmp_path), COLUMNS, ordered=True)
        assert found.value.tolist() == by_day
    numbered = table.assign(day=np.arange(ROWS)[::-1])  # "10" comes after "9"
    numbered.to_csv(tmp_path / "n.csv", index=False)
    found = read_rows(tmp_path / "n.csv", COLUMNS, ordered=True)
    assert found.value.tolist() == table["revenue"].tolist()[::-1]


@pytest.mark.parametrize("rows", [30, 3 * 2**16])
def test_minus_zero_is_zero_in_small_and_large_tables(rows):
    values = np.tile([0.0, -0.0, 1.0], rows // 3)
    table = pd.DataFrame({"variant": ["a", "b"] * (rows // 2), "revenue": values})
    for ordered in (False, True):
        found = read_rows(table, Columns(option="variant", reward="revenue"), ordered=ordered).counted()
        assert found.value.tolist() == [0, 1, 0, 1]
        assert found.count.tolist() == [rows // 3, rows // 6] * 2
