"""Scenario files: what they can contain, and errors that name file, table, key and value."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import bestarm as ba
from bestarm.deploy.terms import without_means
from bestarm.problem.rewards import Bernoulli, Recording, Table
from bestarm.scenario.from_table import propose_for, scenario_for
from bestarm.scenario.load import scenario_from_dict

GROUPS = """
[[group]]
name = "north"
arms = { a = 0.6, b = 0.4 }
[[group]]
name = "south"
arms = { c = 0.5 }
"""


def write(folder, text, name="s.toml"):
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_a_scenario_contains_problem_and_options(tmp_path):
    path = write(tmp_path, 'method = "fed-sel"\ndelta = 0.1\nseed = 4\nperiod = 20\n' + GROUPS)
    scenario = ba.load(path)
    assert scenario.problem.best == "north/a"
    assert (scenario.method, scenario.seed) == ("fed-sel", 4)
    record = ba.identify(scenario)
    assert (record.seed, record.delta, record.options["period"]) == (4, 0.1, 20)
    assert ba.identify(scenario, seed=9, period=50, delta=0.2).options["period"] == 50


def test_a_value_that_only_another_method_knows_is_not_used_by_this_one(tmp_path):
    loaded = ba.load(write(tmp_path, 'prefer = "balanced"\nmethod = "bet"\n' + GROUPS))
    assert ba.identify(loaded, seed=1).options["prefer"] == "balanced"
    assert ba.identify(loaded, "fisher", seed=1).options["prefer"] == "pulls"
    with pytest.raises(ba.InputError, match="prefer = 'balanced'"):
        ba.load(write(tmp_path, 'prefer = "balanced"\nmethod = "fisher"\n' + GROUPS))


def test_arms_may_be_listed_by_name_with_rewards_elsewhere(tmp_path):
    text = """
goal = "min"
[[group]]
name = "north"
bounds = [0, 5]
arms = ["a", "b"]
[[group]]
name = "south"
bounds = [0, 5]
binary = true
arms = ["c"]
[[group]]
name = "west"
bounds = [1, 5]
binary = true
arms = ["d"]
"""
    problem = ba.load(write(tmp_path, text)).problem
    assert [group.arms for group in problem.layout.groups] == [("a", "b"), ("c",), ("d",)]
    assert [group.binary for group in problem.layout.groups] == [False, True, False]  # 1 is not a bound
    assert problem.means == ((None, None), (None,), (None,))
    assert problem.ties() == []
    assert (problem.scale.low, problem.scale.high, problem.best) == (0.0, 5.0, None)
    for refuse in (ba.identify, lambda p: ba.study(p, trials=2), ba.plan):
        with pytest.raises(ba.InputError, match=r"no rewards here: north/a, north/b, .*give means"):
            refuse(problem)


def test_goal_min_and_bounds_are_reported_on_the_user_s_scale(tmp_path):
    text = """
    goal = "min"
    delta = 0.1
    [[group]]
    name = "eu"
    arms = { a = 100, b = 900 }
    bounds = [0, 1000]
    [[group]]
    name = "us"
    arms = { c = 700, d = { kind = "table", values = [200, 1000] } }
    bounds = [200, 1000]
    """
    record = ba.identify(ba.load(write(tmp_path, text)), "fed-sel", seed=1)
    assert record.verdict.arm == "eu/a"
    assert record.verdict.mean == pytest.approx(100, abs=30)
    low, high = record.verdict.interval
    assert 0 <= low < 100 < high <= 1000
    assert ba.verify(record, replay=True)


def test_a_unit_goes_from_the_file_into_the_record_and_changes_no_verdict(tmp_path):
    plain, named = (
        ba.identify(ba.load(write(tmp_path, unit + GROUPS)), seed=1) for unit in ("", 'unit = "€"')
    )
    assert named.problem["scale"] == {**plain.problem["scale"], "unit": "€"}
    assert named.verdict == plain.verdict


CSV = """\
city,place,who,score,n,year
A,x,u1,5,2,2023
A,x,u1,1,1,2024
A,y,u1,3,1,2024
B,z,u2,4,4,2024
B,w,u2,0,1,2024
"""


def data(tmp_path, keys, csv=CSV):
    (tmp_path / "d.csv").write_text(csv, encoding="utf-8")
    return write(tmp_path, "[data]\ncsv = 'd.csv'\n" + textwrap.dedent(keys))


def test_rewards_from_a_csv_file(tmp_path):
    keys = 'group="city"\narm="place"\nreward="score"\ncount="n"\nbounds=[0,5]\nrows="resample"'
    problem = ba.load(data(tmp_path, keys)).problem
    assert [g.name for g in problem.layout.groups] == ["A", "B"]
    assert problem.rewards[0] == (Table((0.2, 1.0), (1.0, 2.0)), Table((0.6,), (1.0,)))
    assert problem.rewards[1] == (Table((0.8,), (4.0,)), Bernoulli(0.0))


def test_where_min_count_and_clients(tmp_path):
    keys = """
    group = "city"
    arm = "place"
    reward = "score"
    count = "n"
    bounds = [0, 5]
    where = { year = 2024, city = ["A", "B"] }
    min_count = 2
    clients = 3
    rows = "resample"
    """
    problem = ba.load(data(tmp_path, keys)).problem
    (group,) = problem.layout.groups
    assert (group.name, group.arms, group.clients) == ("B", ("z",), ("B-1", "B-2", "B-3"))


def test_a_group_table_sets_the_clients_of_a_group_from_data(tmp_path):
    keys = COLUMNS + 'rows="resample"\n[[group]]\nname="A"\nclients=2'
    problem = ba.load(data(tmp_path, keys)).problem
    assert problem.layout.clients == ("A-1", "A-2", "B-1")


def test_a_client_column_gives_each_client_its_own_rewards(tmp_path):
    csv = "g,a,c,r\nG,x,p,1\nG,x,q,0\nG,y,p,0\nG,y,q,0\n"
    problem = ba.load(
        data(tmp_path, 'group="g"\narm="a"\nclient="c"\nreward="r"\nrows="resample"', csv)
    ).problem
    assert problem.layout.clients == ("p", "q")
    assert problem.rewards == ((Bernoulli(1.0), Bernoulli(0.0)), (Bernoulli(0.0), Bernoulli(0.0)))
    assert problem.means == ((0.5, 0.0),)
    assert ba.Problem.from_dict(problem.to_dict()) == problem


def test_successes_of_trials_and_the_better_end_of_goal_min(tmp_path):
    csv = "g,a,good,all\nG,x,30,40\nG,y,10,40\n"
    keys = 'group="g"\narm="a"\nsuccesses="good"\ntrials="all"\nrows="resample"'
    assert ba.load(data(tmp_path, keys, csv)).problem.means == ((0.75, 0.25),)
    columns = {"group": "g", "arm": "a", "successes": "good", "trials": "all", "rows": "resample"}
    least = ba.Problem.from_csv(str(tmp_path / "d.csv"), **columns, goal="min")
    assert least.best == "G/y"


def test_each_row_is_played_once_in_order_unless_the_scenario_resamples(tmp_path):
    csv = "g,a,r\nG,x,1\nG,y,0\nG,x,0\nG,y,1\n"
    problem = ba.load(data(tmp_path, 'group="g"\narm="a"\nreward="r"', csv)).problem
    assert problem.rewards[0] == (Recording((1.0, 0.0)), Recording((0.0, 1.0)))
    record = ba.identify(problem, "fed-sel", seed=1)
    assert record.verdict.reason == "budget"


BAD = {
    "delta above 1": ("delta = 1.5" + GROUPS, r"delta = 1.5 can't be used.*\(0, 1\)"),
    "delta not a number": ("delta = nan" + GROUPS, "delta = nan"),
    "delta as text": ('delta = "a"' + GROUPS, "delta = 'a'"),
    "unknown key": ("perod = 5" + GROUPS, r'"perod" = 5 is unknown.*"period"'),
    "unknown method": ('method = "fedsel"' + GROUPS, '"fed-sel"'),
    "unknown goal": ('goal = "best"' + GROUPS, "goal"),
    "a number as unit": ("unit = 5" + GROUPS, "unit = 5"),
    "a long unit": ('unit = "milliseconds of wall time"' + GROUPS, "at most 20"),
    "seed": ("seed = -3" + GROUPS, "seed = -3"),
    "unknown radius": ('radius = "papr"' + GROUPS, "radius = 'papr'"),
    "no groups": ("delta = 0.1", "no groups"),
    "group no name": ("[[group]]\narms = { a = 0.5 }", r"\[\[group\]\] number 1.*name"),
    "group twice": ('[[group]]\nname="x"\narms={a=0.5}\n[[group]]\nname="x"\narms={a=0.5}', "used twice"),
    "client twice": (
        '[[group]]\nname="x"\nclients=["c","c"]\narms={a=0.5}', 'client name "c" is used twice',
    ),
    "arms not all names": ('[[group]]\nname = "x"\narms = ["a", 3]', r"arms = \['a', 3\].*or \[\"name\""),
    "arm twice": ('[[group]]\nname = "x"\narms = ["a", "a"]', 'arm name "a" is used twice'),
    "arms an empty list": ('[[group]]\nname = "x"\narms = []', 'group "x".*no arms'),
    "binary beside means": ('[[group]]\nname = "x"\nbinary = true\narms = { a = 1 }', "binary = True.*names"),
    "binary a number": ('[[group]]\nname = "x"\nbinary = 1\narms = ["a"]', "binary = 1. Expected true"),
    "no arms": ('[[group]]\nname = "x"', r'"x".*"arms" is missing'),
    "empty arms": ('[[group]]\nname = "x"\narms = {}', 'group "x".*no arms'),
    "mean outside": ('[[group]]\nname = "x"\narms = { a = 1.2 }', r'arm "a".*mean 1.2 is outside \[0, 1\]'),
    "mean nan": ('[[group]]\nname = "x"\narms = { a = nan }', 'arm "a".*nan is not a finite number'),
    "mean text": ('[[group]]\nname = "x"\narms = { a = "hi" }', "does not describe an arm"),
    "arm slash": ('[[group]]\nname = "x"\narms = { "a/b" = 0.5 }', "without"),
    "name empty": ('[[group]]\nname = ""\narms = { a = 0.5 }', "printable"),
    "name hostile": ('[[group]]\nname = "a\\u202Eb"\narms = { a = 0.5 }', "printable"),
    "name number": ('[[group]]\nname = 3\narms = { a = 0.5 }', "name = 3"),
    "clients": ('[[group]]\nname = "x"\nclients = 0\narms = { a = 0.5 }', "clients = 0"),
    "bounds": ('[[group]]\nname = "x"\nbounds = [3, 1]\narms = { a = 2 }', "low < high"),
    "bounds text": ('[[group]]\nname = "x"\nbounds = "big"\narms = { a = 2 }', "two numbers"),
    "group key": ('[[group]]\nname = "x"\narm = { a = 2 }', r'"arm" = .* is unknown.*"arms"'),
    "group a table": ('[group]\nname = "x"', "not a list of tables"),
    "kind": ('[[group]]\nname = "x"\narms = { a = { kind = "normal" } }', "kind = 'normal'"),
    "kind a list": ('[[group]]\nname = "x"\narms = { a = { kind = ["beta"] } }', "unknown"),
    "method a list": ('method = ["x"]' + GROUPS, "unknown"),
    "huge mean": ('[[group]]\nname = "x"\narms = { a = 1' + "0" * 400 + " }", "not a finite number"),
    "huge delta": ("delta = 1" + "0" * 400 + GROUPS, "delta = "),
    "endless number": ("delta = " + "1" * 5000 + GROUPS, "not TOML"),
    "endless bounds": ('[[group]]\nname = "x"\nbounds = [-1e308, 1e308]\narms = { a = 2 }', "two numbers"),
    "many clients": ('[[group]]\nname = "x"\nclients = 30000000\narms = { a = 0.5 }', "clients = 30000000"),
    "huge c": ("c = 1e9" + GROUPS, "c = 1000000000.0"),
    "tiny delta": ("delta = 1e-310" + GROUPS, "delta = 1e-310"),
    "epsilon": ("epsilon = -1" + GROUPS, "epsilon = -1"),
    "family": ('family = "papers"', "paper"),
    "family and groups": ('family = "paper"' + GROUPS, "one of them"),
    "sigma alone": ("sigma = 3" + GROUPS, "belongs to a family"),
    "sigma": ('family = "paper"\nsigma = 30', "sigma = 30"),
    "not toml": ("delta = = 3", "this is not TOML.*line 1"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_an_error_names_where_it_is(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ba.InputError, match=message) as caught:
        ba.load(path)
    assert str(caught.value).startswith(str(path))


COLUMNS = 'group="city"\narm="place"\nreward="score"\nbounds=[0,5]\n'
BAD_DATA = {
    "no file": ("csv='x.csv'\n" + COLUMNS, CSV, "no such file"),
    "no column": (COLUMNS.replace("score", "scor"), CSV, r'no column "scor".*"score"'),
    "no where column": (COLUMNS + "where = { yaer = 3 }", CSV, r'no column "yaer".*"year"'),
    "cell": (COLUMNS, CSV.replace("B,z,u2,4", "B,z,u2,four"), r"line 5.*'four'.*finite number"),
    "nan cell": (COLUMNS, CSV.replace("B,z,u2,4", "B,z,u2,nan"), "line 5"),
    "outside": (COLUMNS, CSV.replace("B,z,u2,4", "B,z,u2,6"), r"line 5.*score = 6"),
    "short row": (COLUMNS, CSV + "A,x\n", "line 7.*2 cells"),
    "empty name": (COLUMNS, CSV.replace("B,z", "B,"), 'line 5.*"place" is empty'),
    "empty file": (COLUMNS, "", "empty"),
    "no rows": (COLUMNS + "where = { year = 1999 }", CSV, 'no row has year = "1999". Expected one of'),
    "min_count": (COLUMNS + "min_count = 100", CSV, "Lower min_count"),
    "unknown key": (COLUMNS + "rewards = 'x'", CSV, r'"rewards".*"reward"'),
    "no reward": ('group="city"\narm="place"', CSV, "which columns"),
    "both": (COLUMNS + "successes='n'\ntrials='n'", CSV, "which columns"),
    "missing client reward": (
        COLUMNS + "client='who'",
        CSV.replace("A,y,u1", "A,y,u3"),
        "has no reward of arm",
    ),
    "successes": ('group="city"\narm="place"\nsuccesses="score"\ntrials="n"', CSV, "5 successes of 2 trials"),
    "column twice": (COLUMNS, CSV.replace("year", "n"), "more than once"),
    "group not there": (COLUMNS + '[[group]]\nname="C"\nclients=2', CSV, '"C" is not in the data'),
    "group with arms": (COLUMNS + '[[group]]\nname="A"\narms={x=1}', CSV, "arms or bounds of its own"),
    "replace": (
        COLUMNS + "replace = true",
        CSV,
        r'is now called rows. Write rows = "resample" instead; "once"',
    ),
    "no replace": (COLUMNS + "replace = false", CSV, r'is now called rows. Write rows = "once" instead'),
    "rows": (COLUMNS + "rows = 'twice'", CSV, r'rows = .twice.. Expected "once" or "resample"'),
    "table and csv": (COLUMNS + "table = 'd.csv'", CSV, "csv and table both name a file"),
    "half count": (COLUMNS + "count = 'n'", CSV.replace("u1,3,1", "u1,3,1.5"), "line 4.*count of 1.5"),
    "huge count": (COLUMNS + "count = 'n'", CSV.replace("u1,3,1", "u1,3,1e308"), "line 4.*count"),
    "underscore": (COLUMNS, CSV.replace("u1,3,1", "u1,0_3,1"), "line 4.*'0_3'"),
    "negative count": (COLUMNS + "count = 'n'", CSV.replace("u1,3,1", "u1,3,-1"), "line 4.*count of -1"),
    "several cells": (
        COLUMNS,
        CSV.replace(",4,4", ",four,4").replace(",0,1", ",,1"),
        r"'four' \(1 more row",
    ),
    "how to skip": (COLUMNS, CSV.replace("B,z,u2,4", "B,z,u2,"), r'line 5.*missing = "skip"'),
    "range": (COLUMNS, CSV.replace(",4,4", ",9,4").replace(",0,1", ",-2,1"), "they range from -2 to 9"),
    "missing": (COLUMNS + "missing = 'drop'", CSV, r'missing = .drop.. Expected "error" or "skip"'),
    "text is not missing": (COLUMNS + "missing = 'skip'", CSV.replace("u2,4", "u2,four"), "line 5.*'four'"),
    "semicolons": (COLUMNS, CSV.replace(",", ";"), r'separated by ";".*commas'),
    "tabs": (COLUMNS, CSV.replace(",", "\t"), "separated by tabs"),
}


@pytest.mark.parametrize(("keys", "csv", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_an_error_in_data_names_its_line(tmp_path, keys, csv, message):
    (tmp_path / "d.csv").write_text(csv, encoding="utf-8")
    text = "[data]\n" + ("" if "csv=" in keys else "csv = 'd.csv'\n") + keys
    with pytest.raises(ba.InputError, match=message):
        ba.load(write(tmp_path, text))


def test_a_problem_knows_its_file_and_what_a_verdict_from_it_is_about(tmp_path):
    problem = ba.load(data(tmp_path, COLUMNS + "rows = 'resample'")).problem
    assert (problem.data.csv, problem.data.reward, problem.data.rows) == ("d.csv", "score", 5)
    assert "from the 5 rows of d.csv with replacement: a verdict is about the file" in str(problem.data)
    assert ba.Problem.from_dict(problem.to_dict()).data == problem.data
    counted = ba.load(data(tmp_path, COLUMNS + "count = 'n'\nrows = 'resample'")).problem
    assert (counted.data.rows, counted.data.rewards) == (5, 9)
    assert "the 9 rewards that d.csv counts" in str(counted.data)
    once = ba.load(data(tmp_path, COLUMNS + "min_count = 2")).problem
    assert str(once.data) == "From d.csv: 2 rows, each played once, in order."
    shops = "g,a,good,all\nG,x,30,40\nG,y,10,40\n"
    keys = 'group="g"\narm="a"\nsuccesses="good"\ntrials="all"'
    trials = ba.load(data(tmp_path, keys, shops)).problem.data
    assert (trials.reward, trials.rows, trials.rewards) == ("good / all", 2, 80)
    assert without_means(problem).keys() == {"scale", "finite", "groups"}  # clients draw from elsewhere


def test_rows_without_a_number_are_skipped_on_request_and_counted(tmp_path):
    holes = CSV + "A,x,u1,,1,2024\nA,y,u1,NA,1,2024\nB,,u2,3,1,2024\n"
    problem = ba.load(data(tmp_path, COLUMNS + "missing = 'skip'", holes)).problem
    assert problem.rewards == ba.load(data(tmp_path, COLUMNS)).problem.rewards
    assert (problem.data.rows, problem.data.skipped) == (5, 3)
    assert "3 rows without a name or a number left out" in str(problem.data)


def written(path, target, **columns):
    """Write a scenario for a table."""
    text = scenario_for(propose_for(path, columns), path, target)
    target.write_text(text, encoding="utf-8")
    return text


def test_a_csv_file_is_refused_as_a_scenario_with_a_way_to_make_one(tmp_path):
    path = tmp_path / "late [1].csv"
    path.write_text('day,"the ""city""",who,min late\n1,Rome,Gio,-5.8\n2,Oslo,Ida,90.2\n3,Oslo,Jo,\n')
    with pytest.raises(ba.InputError, match=r"this is data.*bestarm new .*late \[1\].csv"):
        ba.load(path)
    (tmp_path / "sub").mkdir()
    target = tmp_path / "sub" / "mine.toml"
    text = written(path, target, arm="who")
    assert "3 rows" in text
    assert "bounds = [-10, 100]" in text
    assert "1 of 3 rows lack a name or a number" in text
    assert "#   1 | Rome | Gio | -5.8" in text
    target.write_text(text.replace("# missing", "missing"), encoding="utf-8")
    with pytest.raises(ba.InputError, match=r"goal = 'CHECK: max or min' is not decided"):
        ba.load(target)  # less of "min late" may be better
    target.write_text(target.read_text("utf-8").replace("CHECK: max or min", "min"), encoding="utf-8")
    problem = ba.load(target).problem
    assert [(g.name, g.arms) for g in problem.layout.groups] == [("Rome", ("Gio",)), ("Oslo", ("Ida",))]
    assert (problem.data.reward, problem.data.skipped) == ("min late", 1)
    assert 'arm = "day"' in written(path, target, arm="day", reward="min late")
    with pytest.raises(ba.InputError, match=r'no column "whom".*"who"'):
        written(path, target, arm="whom")
    path.write_text("a;b\nx;2\n")
    with pytest.raises(ba.InputError, match='separated by ";"'):
        written(path, target)


def test_a_table_that_can_be_read_in_several_ways_is_not_run_before_somebody_has_chosen(tmp_path):
    path, target = tmp_path / "visits.csv", tmp_path / "visits.toml"
    rows = [f"{c},{v},{u},{k % 5},{k % 2}\n" for k, (c, v, u) in enumerate(["AXp", "AYq", "BXp", "BYq"] * 9)]
    path.write_text("country,variant,version,revenue,converted\n" + "".join(rows))
    text = written(path, target)
    assert "# It can be read in 4 ways, and you have to choose:" in text
    assert 'arm = "CHECK: variant or version"' in text
    with pytest.raises(ba.InputError, match="arm = 'CHECK: variant or version' is not decided"):
        ba.load(target)
    written(path, target, arm="variant", reward="revenue")
    assert ba.load(target).problem.layout.groups[0].arms == ("X", "Y")


def test_a_table_without_sites_has_one_group(tmp_path):
    path, target = tmp_path / "v.csv", tmp_path / "v.toml"
    path.write_text("variant,clicks,views\na,5,50\nb,7,40\n")
    written(path, target)
    assert "group =" not in target.read_text()
    (group,) = ba.load(target).problem.layout.groups
    assert (group.name, group.arms) == ("all", ("a", "b"))


def test_files_that_are_not_text_are_refused(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b"\x89PNG\x0d\xff\xfe")
    with pytest.raises(ba.InputError, match="not a text file"):
        ba.load(path)
    with pytest.raises(ba.InputError, match="can't be read"):
        ba.load(tmp_path)
    with pytest.raises(ba.InputError, match="No such file"):
        ba.load(tmp_path / "none.toml")
    (tmp_path / "d.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ba.InputError, match="not a text file"):
        ba.load(write(tmp_path, "[data]\ncsv='d.csv'\n" + COLUMNS))


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GROUPS.encode())
    assert ba.load(path).problem.best == "north/a"


def test_numpy_means_are_means():
    problem = ba.Problem.bernoulli(np.array([[0.5, 0.25], [0.125, 0.75]], dtype=np.float32))
    assert problem.best == "g2/a2"
    assert ba.Problem.bernoulli([[np.float32(0.5), np.float64(0.25)]]).best == "g1/a1"


def test_ties_are_named_and_those_that_matter_depend_on_the_method():
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.3, 0.3]])
    assert problem.ties() == ['the best arms of group "g2" are tied: a1, a2']
    assert problem.ties(local=False) == []
    assert ba.Problem.bernoulli([[0.9, 0.9], [0.9]]).ties(local=False) == [
        "the best arms are tied: g1/a1, g1/a2, g2/a1"
    ]
    assert ba.Problem.bernoulli([[0.9, 0.2]]).ties() == []


def test_names_of_unknown_groups_are_refused():
    for keys in ({"clients": {"h": 2}}, {"bounds": {"h": (0, 1)}}):
        with pytest.raises(ba.InputError, match='no group "h"'):
            ba.Problem.from_rewards({"g": {"a": 0.5}}, **keys)
    with pytest.raises(ba.InputError, match="expected a Problem or a Scenario, got a"):
        ba.identify([[0.9, 0.1]])


def test_python_means_are_checked_as_well():
    for means in ([], [[]], [0.9, 0.1], 0.5, [[1.5]], [[0.5, float("nan")]], {"a/b": {"x": 0.5}}):
        with pytest.raises(ba.InputError):
            ba.Problem.bernoulli(means)
    with pytest.raises(ba.InputError, match="2 numbers of clients for 1"):
        ba.Problem.bernoulli([[0.5]], clients=[1, 2])


def test_clients_of_a_group_can_t_play_the_same_rows_once_each(tmp_path):
    (tmp_path / "x.csv").write_text("g,a,r,who\nA,x,1,p\nA,x,0,q\nA,y,0,p\nA,y,1,q\n")
    keys = {"csv": "x.csv", "group": "g", "arm": "a", "reward": "r"}
    for more in ({"data": {**keys, "clients": 2}}, {"data": keys, "group": [{"name": "A", "clients": 2}]}):
        with pytest.raises(ba.InputError, match="has 2 clients, and each row is played once"):
            scenario_from_dict(more, tmp_path)
    named = scenario_from_dict({"data": {**keys, "client": "who"}}, tmp_path).problem
    assert named.layout.clients == ("p", "q")


def test_counted_rewards_are_played_once_each_in_an_order_that_stays(tmp_path):
    (tmp_path / "x.csv").write_text("g,a,good,all\nA,x,30,70\nA,y,5,9\nA,x,1,1\n")
    keys = {"csv": "x.csv", "group": "g", "arm": "a", "successes": "good", "trials": "all"}
    problem = scenario_from_dict({"data": keys}, tmp_path).problem
    assert problem.layout.finite
    x, y = problem.rewards[0]
    assert (len(x.values), sum(x.values), len(y.values), sum(y.values)) == (71, 31, 9, 5)
    assert x.values != tuple(sorted(x.values))
    assert problem == scenario_from_dict({"data": keys}, tmp_path).problem
    assert str(problem.data) == "From x.csv: 80 counted rewards, each played once, in a random order."


def test_any_table_can_be_the_data_of_a_scenario(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    rows = pd.DataFrame({"g": list("BBAABB"), "a": list("yxxyxy"), "r": [0.0, 1, 1, 0, 1, 1]})
    rows.to_csv(tmp_path / "x.csv", index=False)
    rows.to_parquet(tmp_path / "x.parquet")
    rows.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    keys = {"group": "g", "arm": "a", "reward": "r"}
    made = [
        scenario_from_dict({"data": {**keys, **more}}, tmp_path).problem
        for more in ({"csv": "x.csv"}, {"table": "x.jsonl"}, {"table": "x.parquet"})
    ]
    assert made[0].rewards == made[1].rewards
    assert [(group.name, group.arms) for group in made[0].layout.groups] == [
        ("B", ("y", "x")),
        ("A", ("x", "y")),
    ]
    # A Parquet file has no order: names are sorted, and rows are shuffled.
    assert [(group.name, group.arms) for group in made[2].layout.groups] == [
        ("A", ("x", "y")),
        ("B", ("x", "y")),
    ]
    assert sorted(made[2].rewards[1][1].values) == [0, 1]
    assert made[2].data.shuffled


def test_names_that_look_alike_are_noted_in_the_data(tmp_path):
    csv = CSV.replace("A,y", "a,y")
    said = "Column \"city\": 'A' and 'a' differ only by blanks or case, and count as different names"
    text = str(ba.load(data(tmp_path, COLUMNS, csv)).problem.data)
    assert text.endswith(f"{said} (if they mean the same, write them alike in the table).")
