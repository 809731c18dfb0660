"""``bestarm.evidence``: questions, looks, records, verification and reports of a table."""

from __future__ import annotations

import csv
import math
import re

import msgspec
import numpy as np
import pytest

import bestarm as ba
from bestarm.evidence.record import Evidence
from bestarm.evidence.verify import verify

COLUMNS = {"site": "site", "option": "option", "reward": "reward"}


def write(path, rows, header=("site", "option", "reward")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def coins(seed, sizes, means, shuffle=True):
    """Rows (site, option, reward) in random order, by (site, option)."""
    rng = np.random.default_rng(seed)
    rows = [
        (site, option, int(x))
        for (site, option), n in sizes.items()
        for x in rng.random(n) < means[site, option]
    ]
    return [rows[k] for k in rng.permutation(len(rows))] if shuffle else rows


CELLS = {(s, o): 300 for s in ("east", "west") for o in ("blue", "green")}
CLEAR = {("east", "blue"): 0.5, ("east", "green"): 0.7, ("west", "blue"): 0.2, ("west", "green"): 0.35}


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "t.csv", coins(1, CELLS, CLEAR))


def named(found, name):
    return next(option for option in found.options if option.name == name)


def test_sites_that_share_options_are_asked_overall_by_default(table):
    found = ba.evidence(table, **COLUMNS)
    assert found.settings.question == "overall"
    assert (found.status, found.best) == ("identified", {"": "green"})
    assert found.test == "e-value"
    assert found.rows == sum(option.rows for option in found.options) == 1200
    blue = named(found, "blue")
    assert blue.status == "out"
    assert blue.evalue >= 20
    low, high = blue.interval
    assert low < blue.mean < high
    assert found.promise == "stands"


def test_sites_with_their_own_options_are_asked_anywhere_by_default(tmp_path):
    own = {("east", "blue"): 200, ("west", "green"): 200}
    found = ba.evidence(write(tmp_path / "t.csv", coins(2, own, CLEAR)), **COLUMNS)
    assert found.settings.question == "anywhere"
    assert found.best == {"": "east/blue"}
    assert found.test == "exact"  # 0/1 rewards, one site per option
    assert named(found, "west/green").tests[0].pvalue <= 0.05


def test_bounds_that_are_given_mean_that_rewards_are_not_coins(tmp_path):
    """The layout and the settings choose the test, never the rewards."""
    own = {("east", "blue"): 200, ("west", "green"): 200}
    path = write(tmp_path / "t.csv", coins(2, own, CLEAR))
    assert ba.evidence(path, **COLUMNS, bounds=(0, 1)).test == "e-value"


def test_each_site_gets_its_own_verdict(table):
    found = ba.evidence(table, **COLUMNS, question="each")
    assert found.best == {"east": "green", "west": "green"}
    assert {test.level for option in found.options for test in option.tests} == {0.05}
    both = ba.evidence(table, **COLUMNS, question="each", simultaneous=True)
    assert {test.level for option in both.options for test in option.tests} == {0.025}


def test_options_are_compared_with_a_control(tmp_path):
    cells = {("x", o): 500 for o in ("a", "b", "c")}
    means = {("x", "a"): 0.5, ("x", "b"): 0.7, ("x", "c"): 0.3}
    path = write(tmp_path / "t.csv", coins(3, cells, means))
    found = ba.evidence(path, **COLUMNS, question="control", control="a")
    assert {option.name: option.status for option in found.options} == {
        "a": "control",
        "b": "better",
        "c": "worse",
    }
    b = named(found, "b")
    assert b.gap == pytest.approx(b.mean - named(found, "a").mean)
    assert b.gap_interval[0] < b.gap < b.gap_interval[1]
    assert {test.level for test in b.tests} == {0.05 / 4}
    assert found.status == "identified"
    wide = ba.evidence(path, **COLUMNS, question="control", control="a", margin=0.6)
    assert {option.status for option in wide.options} == {"control", "within"}
    assert {test.level for option in wide.options for test in option.tests} == {0.05 / 8}


def test_goal_min_and_a_scale_of_the_user(tmp_path):
    rng = np.random.default_rng(4)
    rows = [("x", o, float(x)) for o, top in (("slow", 60), ("quick", 40)) for x in rng.integers(0, top, 250)]
    path = write(tmp_path / "t.csv", [rows[k] for k in rng.permutation(len(rows))])
    found = ba.evidence(path, **COLUMNS, bounds=(0, 100), goal="min")
    assert found.best == {"": "quick"}
    assert 15 < named(found, "quick").mean < 25
    low, high = named(found, "quick").interval
    assert low < named(found, "quick").mean < high < 100


def test_a_unit_is_kept_in_the_settings_and_changes_nothing_else():
    keys = {"option": "courier", "site": "city", "reward": "minutes late", "bounds": (0, 60), "goal": "min"}
    plain = ba.evidence("examples/deliveries.csv", **keys)
    named = ba.evidence("examples/deliveries.csv", **keys, unit="min")
    assert named.settings.unit == "min"
    assert named.options == plain.options
    with pytest.raises(ba.InputError, match="unit = "):
        ba.evidence("examples/deliveries.csv", **keys, unit="m" * 30)


def test_counts_are_rows(tmp_path, table):
    rows = coins(1, CELLS, CLEAR)
    good = {cell: sum(r[2] for r in rows if r[:2] == cell) for cell in CELLS}
    header = ("site", "option", "ok", "all")
    trials = write(tmp_path / "c.csv", [(*cell, good[cell], 300) for cell in CELLS], header)
    values = [(*c, v, n) for c in CELLS for v, n in ((1, good[c]), (0, 300 - good[c]))]
    counts = write(tmp_path / "v.csv", values, ("site", "option", "reward", "times"))
    plain = ba.evidence(table, **COLUMNS)
    for found in (
        ba.evidence(trials, site="site", option="option", successes="ok", trials="all"),
        ba.evidence(counts, **COLUMNS, count="times"),
    ):
        assert [o.evalue for o in found.options] == [o.evalue for o in plain.options]
        assert found.settings.order is None  # counts have no order


def test_the_order_of_the_rows_changes_no_e_value(tmp_path, table):
    rows = coins(1, CELLS, CLEAR)
    other = write(tmp_path / "o.csv", sorted(rows))
    found = ba.evidence(other, **COLUMNS, order="none")
    assert [o.evalue for o in found.options] == [o.evalue for o in ba.evidence(table, **COLUMNS).options]
    assert ba.evidence(other, **COLUMNS).promise == "withdrawn"  # sorted by reward


def test_frames_and_parquet_give_the_same_answer(tmp_path, table):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    frame = pandas.read_csv(table)
    frame.to_parquet(tmp_path / "t.parquet")
    plain = ba.evidence(table, **COLUMNS)
    for source in (frame, tmp_path / "t.parquet"):
        found = ba.evidence(source, **COLUMNS)
        assert found.options == plain.options


def test_weights_by_rows_are_frozen_at_the_first_look(tmp_path):
    first = coins(5, {**CELLS, ("east", "blue"): 100, ("east", "green"): 100}, CLEAR)
    path, record = write(tmp_path / "t.csv", first), tmp_path / "r.json"
    how = {**COLUMNS, "weights": "rows", "looks": 2, "record": record}
    one = ba.evidence(path, **how)
    one.save(record)
    assert one.settings.weights == {"east": 0.25, "west": 0.75}
    write(path, first + coins(6, CELLS, CLEAR))
    two = ba.evidence(path, **how)
    assert two.settings.weights == one.settings.weights
    assert len(two.looks) == 2
    assert verify(two).ok


def test_a_second_look_at_the_same_rows_is_refused(tmp_path, table):
    record = tmp_path / "r.json"
    first = ba.evidence(table, **COLUMNS, record=record)
    first.save(record)
    assert ba.evidence(table, **COLUMNS, record=record) == first  # the same look, not a second one
    with table.open("a") as file:
        file.write("east,blue,1\n")
    with pytest.raises(ba.InputError, match=r"rows that were already used.*--looks N"):
        ba.evidence(table, **COLUMNS, record=record)


def test_a_second_look_at_other_rows_is_refused_and_not_called_the_same_rows(tmp_path, table):
    record = tmp_path / "r.json"
    ba.evidence(table, **COLUMNS, record=record).save(record)
    fresh = write(tmp_path / "fresh.csv", coins(8, CELLS, CLEAR))
    with pytest.raises(ba.InputError, match=r"not all of which are in these data.*a record of their own"):
        ba.evidence(fresh, **COLUMNS, record=record)


def test_looks_that_were_declared_are_counted_and_add_up(tmp_path, table):
    record = tmp_path / "r.json"
    one = ba.evidence(table, **COLUMNS, looks=2, record=record)
    one.save(record)
    with table.open("a") as file:
        file.writelines(f"{s},{o},{x}\n" for s, o, x in coins(7, CELLS, CLEAR))
    two = ba.evidence(table, **COLUMNS, looks=2, record=record)
    two.save(record)
    for k, option in enumerate(two.options):
        logs = [look.log_evalues[0][k] for look in two.looks]
        assert option.evalue == pytest.approx(sum(map(math.exp, logs)) / 2, rel=1e-9)
    for option, alone in zip(two.options, ba.evidence(table, **COLUMNS).options, strict=True):
        assert option.interval[0] < alone.interval[0]  # each look has its share of the misses
        assert option.interval[1] > alone.interval[1]
    assert verify(two).ok
    with table.open("a") as file:
        file.write("east,blue,1\n")
    with pytest.raises(ba.InputError, match="2 looks of 2 declared"):
        ba.evidence(table, **COLUMNS, looks=2, record=record)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delta": 0.1}, "delta was 0.05"),
        ({"question": "each"}, "question was"),
        ({"seed": 5}, "seed was 0"),
        ({"looks": 3}, "looks was 1"),
        ({"look": "any-time"}, "look was"),
        ({"bounds": (0.0, 1.0)}, "bounds was not given"),
    ],
)
def test_settings_cannot_be_changed_after_the_first_look(tmp_path, table, change, said):
    record = tmp_path / "r.json"
    ba.evidence(table, **COLUMNS).save(record)
    with pytest.raises(ba.InputError, match=said):
        ba.evidence(table, **{**COLUMNS, "record": record, **change})


def test_looks_at_any_time_resume_from_their_record(tmp_path):
    rows = coins(8, CELLS, CLEAR)
    record, path = tmp_path / "r.json", tmp_path / "t.csv"
    how = {**COLUMNS, "look": "any-time", "record": record}
    seen = []
    for part in range(1, 11):
        write(path, rows[: 120 * part])
        found = ba.evidence(path, **how)
        found.save(record)
        assert verify(Evidence.load(record)).ok
        seen.append(sum(found.blocks.used))
    assert seen == sorted(seen)
    fresh = ba.evidence(path, **{**how, "record": None})
    assert fresh == found
    assert found.status == "identified"


def test_a_changed_past_is_refused(tmp_path):
    rows = coins(9, CELLS, dict.fromkeys(CELLS, 0.5))
    record, path = tmp_path / "r.json", tmp_path / "t.csv"
    how = {**COLUMNS, "look": "any-time", "record": record}
    ba.evidence(write(path, rows[:600]), **how).save(record)
    site, option, reward = rows[0]
    for changed, said in (
        ([(site, option, 1 - reward), *rows[1:]], "rows that were already counted have changed"),
        ([(site, option, 1 - reward), *rows], "rows that were already counted have changed"),
        (rows[:40], "were already counted"),
        ([*rows, ("east", "red", 1)], 'option "red" is new'),
    ):
        with pytest.raises(ba.InputError, match=said):
            ba.evidence(write(path, changed), **how)
    assert ba.evidence(write(path, rows), **how).rows == 1200


def test_rows_by_time_may_be_in_any_order_of_the_file(tmp_path):
    rows = [(*row, k // 7) for k, row in enumerate(coins(10, CELLS, dict.fromkeys(CELLS, 0.5)))]
    header = ("site", "option", "reward", "day")
    one = write(tmp_path / "a.csv", rows, header)
    mixed = [rows[k] for k in np.random.default_rng(1).permutation(len(rows))]
    mixed.sort(key=lambda row: row[3] % 5)
    other = write(tmp_path / "b.csv", mixed, header)
    first, second = (ba.evidence(path, **COLUMNS, time="day", look="any-time") for path in (one, other))
    assert first.settings.order == "day"
    assert first.blocks == second.blocks
    last = sum(row[3] == rows[-1][3] for row in rows)
    assert first.blocks.waiting >= last  # the last day may be incomplete


def test_rows_of_counts_need_a_time_for_looks_at_any_time(tmp_path):
    path = write(tmp_path / "t.csv", [("x", "a", 5, 10), ("x", "b", 4, 9)], ("site", "option", "ok", "all"))
    with pytest.raises(ba.InputError, match=r"order of arrival.*--time COLUMN"):
        ba.evidence(path, site="site", option="option", successes="ok", trials="all", look="any-time")


def test_a_verdict_that_later_rows_contradict_is_noted(tmp_path):
    rng = np.random.default_rng(11)
    rows = [("x", o, int(rng.random() < p)) for _ in range(400) for o, p in (("a", 0.8), ("b", 0.4))]
    rows += [("x", o, int(rng.random() < p)) for _ in range(2000) for o, p in (("a", 0.2), ("b", 0.9))]
    found = ba.evidence(write(tmp_path / "t.csv", rows), **COLUMNS, look="any-time")
    assert found.best == {"": "a"}
    assert any("over all rows b has the better mean" in note for note in found.notes)
    assert found.promise == "withdrawn"
    assert verify(found).ok


def test_notes_do_not_touch_the_promise(tmp_path):
    cells = {("s", "a"): 400, ("s", "b"): 12, ("t", "a"): 400, ("t", "b"): 12}
    means = {("s", "a"): 0.9, ("s", "b"): 0.1, ("t", "a"): 0.05, ("t", "b"): 0.9}
    found = ba.evidence(write(tmp_path / "t.csv", coins(12, cells, means)), **COLUMNS)
    assert any(note.startswith("options with fewer than 30 rows: b (24)") for note in found.notes)
    assert any("sites disagree" in note for note in found.notes)
    assert found.promise == "stands"
    tiny = write(tmp_path / "u.csv", [("x", "a", 1), *[("x", "b", 0)] * 3000])
    lone = ba.evidence(tiny, **COLUMNS, order="none")
    assert lone.best == {"": "a"}
    assert "the winner a has one row" in lone.notes


WRONG = {
    "no bounds": ({"reward": "amount"}, "3.5, not 0 or 1, and no bounds are given.*bounds.*matter of chance"),
    "out of bounds": ({"reward": "amount", "bounds": (0, 3)}, "not in"),
    "unknown question": ({"question": "best"}, 'question = "best" is unknown'),
    "no control": ({"question": "control"}, "names no control"),
    "unknown control": ({"question": "control", "control": "gren"}, 'Did you mean "green"'),
    "control elsewhere": ({"control": "green"}, "has no control"),
    "margin elsewhere": ({"margin": 0.1}, "margin"),
    "delta": ({"delta": 1.5}, "not a probability"),
    "look": ({"look": "twice"}, 'look = "twice" is unknown'),
    "looks": ({"looks": 0}, "looks = 0"),
    "looks at any time": ({"looks": 2, "look": "any-time"}, "need not be counted"),
    "goal": ({"goal": "up"}, 'goal = "up" is unknown'),
    "order": ({"order": "up"}, 'order = "up" is unknown'),
    "weights": ({"weights": "size"}, 'weights = "size" is unknown'),
    "weights that change with each look": (
        {"weights": "rows", "look": "any-time"},
        "frozen at the first look.*--record",
    ),
    "weight of nobody": ({"weights": {"east": 1, "north": 2}}, 'no site "north"'),
    "weights without sites": ({"weights": {"east": 1}, "site": ""}, "there are no sites to weight"),
    "site without weight": ({"weights": {"east": 1}}, 'site "west" has no weight'),
    "weights elsewhere": ({"weights": "rows", "question": "each"}, "weights are about"),
    "simultaneous elsewhere": ({"simultaneous": True}, "simultaneous is about"),
    "seed": ({"seed": -1}, "seed = -1"),
    "no such column": ({"option": "colour"}, 'no column "colour"'),
    "two kinds of rewards": ({"successes": "reward", "trials": "amount"}, "not clear which columns"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_says_what_is_wrong(tmp_path, name):
    rows = [(*row, 3.5) for row in coins(13, CELLS, CLEAR)]
    path = write(tmp_path / "t.csv", rows, ("site", "option", "reward", "amount"))
    given, said = WRONG[name]
    with pytest.raises(ba.InputError, match=f"(?s){said}"):
        ba.evidence(path, **{**COLUMNS, **given})


def test_overall_needs_every_option_at_every_site(tmp_path):
    path = write(tmp_path / "t.csv", [r for r in coins(14, CELLS, CLEAR) if r[:2] != ("west", "blue")])
    with pytest.raises(ba.InputError, match='option "blue" has no row at site "west"'):
        ba.evidence(path, **COLUMNS, question="overall")
    assert ba.evidence(path, **COLUMNS).settings.question == "anywhere"


def test_one_option_is_no_contest(tmp_path):
    with pytest.raises(ba.InputError, match="only 1 option"):
        ba.evidence(write(tmp_path / "t.csv", [("x", "a", 1)]), **COLUMNS)


def test_records_are_saved_and_loaded_and_sound(tmp_path, table):
    for question in ("anywhere", "overall", "each"):
        found = ba.evidence(table, **COLUMNS, question=question)
        assert Evidence.load(found.save(tmp_path / "e.json")) == found
        assert verify(found).failures == ()


def tampered(found):
    """The record with one conclusion changed, and a digest that fits."""
    worse = msgspec.structs.replace
    option = found.options[0]
    yield "best", worse(found, best={"": "blue"})
    yield "status", worse(found, status="identified" if found.status == "undecided" else "undecided")
    yield "options", worse(found, options=[worse(option, mean=0.9), *found.options[1:]])
    yield "options", worse(found, options=[worse(option, status="best"), *found.options[1:]])
    yield "options", worse(found, options=[worse(option, tests=[worse(option.tests[0], evalue=1.0)])])
    yield "looks", worse(found, looks=[worse(found.looks[0], log_evalues=[[0.0, 5.0]])])
    yield "options", worse(found, settings=worse(found.settings, delta=0.5))
    yield "looks", worse(found, settings=worse(found.settings, seed=1))
    yield "promise", worse(found, promise="withdrawn")
    yield "alarms", worse(found, checks=[worse(found.checks[0], total=1e3), *found.checks[1:]])
    yield "notes", worse(found, notes=["all is well"], rows=found.rows)
    yield "rows", worse(found, rows=7)


def test_every_changed_conclusion_is_detected(tmp_path):
    cells = {**CELLS, ("east", "blue"): 20, ("west", "blue"): 9}
    found = ba.evidence(write(tmp_path / "t.csv", coins(15, cells, CLEAR)), **COLUMNS)
    assert found.notes
    for key, changed in tampered(found):
        assert any(failure.startswith(key) for failure in verify(changed.sealed()).failures), key
        assert not verify(changed)


def test_a_changed_file_does_not_fit_its_digest(tmp_path, table):
    found = msgspec.structs.replace(ba.evidence(table, **COLUMNS), source="other.csv")
    assert verify(found).failures == ("the digest does not fit: the file was changed",)


def test_a_page_says_what_its_picture_leaves_out_and_folds_a_long_table(tmp_path):
    means = {("east", f"o{k:02}"): 0.2 + 0.01 * k for k in range(35)}
    table = write(tmp_path / "t.csv", coins(7, dict.fromkeys(means, 50), means))
    page = ba.evidence(table, **COLUMNS).report(tmp_path / "e.html").read_text()
    assert "The first 30 of 35 options are drawn." in page
    assert "The first 20 of 35 options; the rest is in the fold below" in page
    assert "The other 15 options" in page


def test_the_report_states_the_promise_and_what_was_withdrawn(tmp_path, table):
    page = ba.evidence(table, **COLUMNS).report(tmp_path / "e.html").read_text()
    assert "green is the best option" in page
    assert "This is wrong with probability at most 0.05." in page
    assert "independent draws" in page
    assert page.count("<script") == 1
    assert "script-src &#x27;sha256-" in page  # only the page's own
    path = write(tmp_path / "s.csv", sorted(coins(1, CELLS, CLEAR)))
    page = ba.evidence(path, **COLUMNS).report(tmp_path / "w.html").read_text()
    assert "No safe answer: the promise is withdrawn." in page
    assert "What was withdrawn" in page
    assert "looks best" in page
    assert not re.search(r"\d to \d+ %", page)  # no interval
    assert "This is wrong with probability" not in page


def test_names_in_a_report_are_text(tmp_path):
    cells = {("<b>", "<i>x"): 50, ("<b>", "y"): 50}
    means = dict.fromkeys(cells, 0.5)
    page = ba.evidence(write(tmp_path / "t.csv", coins(16, cells, means)), **COLUMNS).report(
        tmp_path / "e.html"
    )
    assert "<i>x" not in page.read_text()


@pytest.mark.parametrize("name", ["rtt_ms", "minutesLate", "deaths"])
def test_rewards_of_which_less_sounds_better_need_a_goal(name):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    frame = pandas.DataFrame({"variant": ["a", "b"] * 200, name: [0, 1] * 200})
    with pytest.raises(ba.InputError, match=rf'whether more of "{name}" is better, or less.*--goal min'):
        ba.evidence(frame, option="variant", reward=name)
    assert ba.evidence(frame, option="variant", reward=name, goal="min").best == {"": "a"}
    assert ba.evidence(frame, option="variant", reward=name, goal="max").best == {"": "b"}
    other = frame.rename(columns={name: "revenue"})
    assert ba.evidence(other, option="variant", reward="revenue").settings.goal == "max"


def test_a_column_called_a_site_is_not_pooled_away_because_the_others_were_named(tmp_path):
    """Simpson's paradox: pooled, A looks best, although B is better at both hospitals."""
    lines = ["north,A,810,900", "north,B,95,100", "south,A,30,100", "south,B,360,900"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["hospital,drug,cured,patients", *lines]) + "\n")
    named = {"option": "drug", "successes": "cured", "trials": "patients"}
    found = ba.evidence(path, **named)
    assert set(found.settings.weights) == {"north", "south"}
    assert found.best[""] != "A"
    assert any("hospital" in note and "--site none" in note for note in found.notes)
    pooled = ba.evidence(path, **named, site="")
    assert pooled.best[""] == "A"


def test_a_column_that_may_be_anything_is_not_taken_for_the_site(tmp_path):
    lines = [f"{'ab'[k % 2]},{'xy'[k // 2 % 2]},{k % 3 % 2}" for k in range(80)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["option,device,won", *lines]) + "\n")
    assert ba.evidence(path, option="option", reward="won").settings.columns.get("site") is None


def test_two_columns_that_may_be_the_site_are_listed(tmp_path):
    lines = [f"{'ab'[k % 2]},{'xy'[k // 2 % 2]},{'uv'[k // 4 % 2]},{k % 3 % 2}" for k in range(80)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["option,city,shop,won", *lines]) + "\n")
    with pytest.raises(ba.InputError, match="can be read in 2 ways"):
        ba.evidence(path, option="option", reward="won")


def test_a_margin_as_large_as_the_range_is_refused(table):
    keys = {**COLUMNS, "question": "control", "control": "a"}
    with pytest.raises(ba.InputError, match=r"one percentage point is 0\.01"):
        ba.evidence(table, **keys, margin=1.0)


def test_a_changed_order_of_rows_is_named_as_the_flag_has_it(table, tmp_path):
    first = ba.evidence(table, **COLUMNS, looks=2)
    first.save(tmp_path / "looks.json")
    with pytest.raises(ba.InputError, match='order was "file" at the first look, and is none now'):
        ba.evidence(table, **COLUMNS, looks=2, order="none", record=tmp_path / "looks.json")
