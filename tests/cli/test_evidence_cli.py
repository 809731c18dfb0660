"""``bestarm evidence`` as a user types it: exit codes, JSON, records, reports, errors."""

from __future__ import annotations

import json
import re
from functools import partial

import numpy as np
import pytest

import command_line


@pytest.fixture
def bestarm(tmp_path):
    """Run a command in the test's folder."""
    return partial(command_line.bestarm, cwd=tmp_path)


def table(path, means, n=400, ordered=False):
    rng = np.random.default_rng(3)
    rows = [f"{s},{o},{int(rng.random() < p)}" for s, o, p in means for _ in range(n)]
    if not ordered:
        rows = [rows[k] for k in rng.permutation(len(rows))]
    path.write_text("\n".join(["region,variant,won", *rows]) + "\n", encoding="utf-8")
    return path


COLUMNS = ("--site", "region", "--option", "variant", "--reward", "won")
CLEAR = [("north", "a", 0.7), ("north", "b", 0.5), ("south", "a", 0.5), ("south", "b", 0.3)]


def test_a_table_alone_is_enough_for_a_verdict_a_record_and_a_report(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    done = bestarm("evidence", path, *COLUMNS, "--out", "e.json", "--report", "e.html")
    assert done.returncode == 0, done.stderr
    assert (
        "a is the best option: the highest mean of won on average over 2 sites, equally weighted."
        in done.stdout
    )
    assert "This is wrong with probability at most 0.05." in done.stdout
    assert "1,600 rows, each counted once" in done.stdout
    assert "next: bestarm verify e.json\nnext: bestarm report e.json\n" in done.stdout
    assert bestarm("verify", tmp_path / "e.json").stdout.startswith(str(tmp_path / "e.json"))
    assert bestarm("report", "e.json", "--out", "again.html").returncode == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "e.html").read_text()


def test_the_card_is_the_same_on_the_terminal_in_json_and_on_the_page(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    told = bestarm("evidence", path, *COLUMNS, "--report", "e.html").stdout
    found = json.loads(bestarm("evidence", path, *COLUMNS, "--json").stdout)
    card, page = found["card"], (tmp_path / "e.html").read_text()
    (lead,) = found["leads"]
    assert (lead["option"], lead["over"]) == ("a", "b")
    (ahead,) = card["ahead"]
    size, low, high = (f"{100 * x:.0f}" for x in (lead["value"], *lead["interval"]))
    assert ahead.startswith(f"Ahead by {size} points over b ({low} to {high}), which is ")
    for text in (card["headline"], ahead, card["risk"], *(f"next: {step}" for step in card["next"])):
        assert text in told
    assert card["risk"].endswith(
        "The probability that it is wrong or any interval here misses is at most 0.1."
    )
    assert card["cost"] == "1,600 rows, each counted once"
    for text in ("<dt>Best</dt>", "<dt>Ahead by</dt>", "<dt>Risk</dt>", "<dt>Cost</dt>", "Next step"):
        assert text in page
    for text in (card["headline"], card["risk"], f"{size} points", f"over b ({low} to {high})", "1,600 rows"):
        assert text in page
    each = json.loads(bestarm("evidence", path, *COLUMNS, "--question", "each", "--json").stdout)["card"]
    assert [text.split(":")[0] for text in each["ahead"]] == ["north/a", "south/a"]
    control = bestarm("evidence", path, *COLUMNS, "--question", "control", "--control", "b", "--json").stdout
    assert json.loads(control)["card"]["ahead"][0].startswith("a: ")


def test_a_withdrawn_promise_shows_no_interval_and_no_next_step_but_the_remedy(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR, ordered=True)
    rows = path.read_text().splitlines()
    path.write_text("\n".join([rows[0], *sorted(rows[1:])]) + "\n")  # by reward: rows are not independent
    found = json.loads(bestarm("evidence", path, *COLUMNS, "--json", "--report", "e.html").stdout)
    card = found["card"]
    assert found["promise"] == "withdrawn"
    assert card["headline"].startswith("No safe answer: the promise is withdrawn. ")
    assert card["risk"].startswith("Nothing is promised, because ")
    assert "(" not in card["ahead"][0]
    assert card["next"][0] == "Do not act on this answer."
    assert "--order none" in " ".join(card["next"])
    page = (tmp_path / "e.html").read_text()
    assert "verdict card wrong" in page
    assert "not bounded" in page
    assert "<dt>Best</dt>" not in page


def test_json_is_one_object_and_the_record(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    done = bestarm("evidence", path, *COLUMNS, "--json", "--out", tmp_path / "e.json")
    found = json.loads(done.stdout)
    card = found.pop("card")
    assert set(card) == {"headline", "ahead", "risk", "cost", "next"}
    assert found == json.loads((tmp_path / "e.json").read_text())
    assert (found["kind"], found["status"], found["best"]) == ("evidence", "identified", {"": "a"})


def test_an_undecided_look_says_what_to_do_next(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", [("north", "a", 0.5), ("north", "b", 0.5)], n=40)
    once, later = (bestarm("evidence", path, *COLUMNS, *look) for look in ((), ("--look", "any-time")))
    assert "next: Collect more rows of the options that are not ruled out. To count these rows" in once.stdout
    assert "next: Collect more rows of the options that are not ruled out, and repeat" in later.stdout


def test_exit_codes_say_undecided_and_withdrawn(tmp_path, bestarm):
    tied = table(tmp_path / "t.csv", [("x", "a", 0.5), ("x", "b", 0.5)])
    done = bestarm("evidence", tied, *COLUMNS)
    assert done.returncode == 3
    assert "Undecided: 2 of 2 options are not ruled out." in done.stdout
    drifting = tmp_path / "d.csv"
    first = table(drifting, [("x", "a", 0.2), ("x", "b", 0.2)]).read_text()
    second = table(drifting, [("x", "a", 0.6), ("x", "b", 0.6)]).read_text().split("\n", 1)[1]
    drifting.write_text(first + second, encoding="utf-8")
    done = bestarm("evidence", drifting, *COLUMNS, "--json")
    assert done.returncode == 6
    assert json.loads(done.stdout)["promise"] == "withdrawn"
    told = bestarm("evidence", drifting, *COLUMNS).stdout
    assert told.startswith("No safe answer: the promise is withdrawn. ")
    assert "Nothing is promised" in told
    assert "wrong with probability" not in told


def test_a_record_is_continued_and_a_second_look_refused(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    assert bestarm("evidence", path, *COLUMNS, "--record", "r.json").returncode == 0
    before = (tmp_path / "r.json").read_bytes()
    with path.open("a") as file:
        file.write("north,a,1\n")
    done = bestarm("evidence", path, *COLUMNS, "--record", "r.json")
    assert done.returncode == 2
    assert "rows that were already used" in done.stderr
    assert (tmp_path / "r.json").read_bytes() == before
    again = ("evidence", path, *COLUMNS, "--look", "any-time", "--record", "a.json")
    assert bestarm(*again).returncode == 0
    with path.open("a") as file:
        file.write("north,a,1\n")
    assert bestarm(*again).returncode == 0


def test_percentages_are_written_as_in_the_table(tmp_path, bestarm):
    path, rng = tmp_path / "t.csv", np.random.default_rng(5)
    rows = [f"{o},{100 * rng.beta(p, 10):.1f}%" for o, p in (("a", 3), ("b", 2)) for _ in range(2000)]
    path.write_text("\n".join(["option,rate", *rows]) + "\n", encoding="utf-8")
    asked = ("evidence", path, "--option", "option", "--reward", "rate", "--order", "none")
    refused = bestarm(*asked)
    assert refused.returncode == 2
    assert re.search(r'column "rate" holds \d+(\.\d)?%, not 0 or 1', refused.stderr)
    assert "--bounds 0 1 means 0 to 100%" in refused.stderr
    bounds = ("--bounds", "0", "1")
    found = json.loads(bestarm(*asked, *bounds, "--json").stdout)
    assert found["settings"]["percent"] is True
    mean, ends = (found["options"][0][key] for key in ("mean", "interval"))
    shown = bestarm(*asked, *bounds, "--report", "p.html")
    text = f"{100 * mean:.1f} % ({100 * ends[0]:.1f} to {100 * ends[1]:.1f} %)"
    assert f"Its mean is about {text}." in shown.stdout
    assert "Every reward is between 0 and 100 %" in shown.stdout
    assert shown.stdout.endswith("next: Add --out evidence.json to keep the record.\nreport: p.html\n")
    assert f"is about {text}" in (tmp_path / "p.html").read_text("utf-8").replace("&nbsp;", " ")
    (lead,) = found["leads"]
    control = bestarm(*asked, *bounds, "--question", "control", "--control", "b").stdout
    assert "Compared with b: a is better." in control
    assert f" {100 * lead['value']:.1f} points " in control
    minutes = json.loads(bestarm(*asked, *bounds, "--unit", "kg", "--json").stdout)
    assert " kg over b (" in minutes["card"]["ahead"][0]


def test_every_question_and_weights(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    each = bestarm("evidence", path, *COLUMNS, "--question", "each")
    assert "a is the best option at each of the 2 sites." in each.stdout
    control = bestarm("evidence", path, *COLUMNS, "--question", "control", "--control", "b")
    assert "Compared with b: a is better." in control.stdout
    given = bestarm("evidence", path, *COLUMNS, "--weights", "north=1,south=3", "--json")
    assert json.loads(given.stdout)["settings"]["weights"] == {"north": 0.25, "south": 0.75}
    part = bestarm("evidence", path, *COLUMNS, "--where", "region=north", "--json")
    assert json.loads(part.stdout)["rows"] == 800


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--option", "variant", "--reward", "lost"), 'no column "lost"'),
        ((*COLUMNS, "--weights", "north=x"), "SITE=NUMBER"),
        ((*COLUMNS, "--where", "region"), "COLUMN=VALUE"),
        ((*COLUMNS, "--bounds", "1", "0"), "low < high"),
        ((*COLUMNS, "--record", "t.csv"), "not a record of evidence"),
    ],
)
def test_bad_input_exits_with_2_and_writes_nothing(tmp_path, bestarm, args, said):
    table(tmp_path / "t.csv", CLEAR, n=30)
    done = bestarm("evidence", "t.csv", *args, "--out", "e.json")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "e.json").exists()


def test_columns_that_are_not_named_are_found_or_listed(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    found = bestarm("evidence", path)
    assert found.returncode == 0
    assert 'read with site = "region", option = "variant", reward = "won"' in found.stdout
    lines = path.read_text().splitlines()
    lines = [
        f"{lines[0]},colour",
        *(f"{line},{'red' if k % 3 else 'blue'}" for k, line in enumerate(lines[1:])),
    ]
    path.write_text("\n".join(lines).replace("variant", "kind"))
    refused = bestarm("evidence", path, "--reward", "won")
    assert refused.returncode == 2
    assert "can be read in" in refused.stderr


def test_a_table_must_be_named(bestarm):
    done = bestarm("evidence", *COLUMNS)
    assert done.returncode == 2
    assert "no table is named" in done.stderr


def test_a_changed_record_is_not_sound(tmp_path, bestarm):
    path = table(tmp_path / "t.csv", CLEAR)
    bestarm("evidence", path, *COLUMNS, "--out", tmp_path / "e.json")
    text = (tmp_path / "e.json").read_text().replace('"delta": 0.05', '"delta": 0.01')
    (tmp_path / "e.json").write_text(text)
    done = bestarm("verify", tmp_path / "e.json", "--json")
    assert done.returncode == 4
    assert not json.loads(done.stdout)["ok"]
    assert bestarm("verify", tmp_path / "e.json", "--replay").returncode == 2


def test_a_folder_is_no_name_of_a_scenario(bestarm, tmp_path):
    (tmp_path / "data").mkdir()
    done = bestarm("new", "data")
    assert done.returncode == 2
    assert "this is a folder" in done.stderr
    assert not (tmp_path / "data.toml").exists()


def test_ratings_are_named_one_by_one(bestarm, tmp_path):
    (tmp_path / "t.csv").write_text("place,1,2,3\na,9,8,900\nb,900,9,9\n", encoding="utf-8")
    done = bestarm("evidence", "t.csv")
    assert done.returncode == 2
    assert 'ways: (1) option = "place", ratings = ["1", "2", "3"]; (2)' in done.stderr
    done = bestarm("evidence", "t.csv", *(f"--ratings={k}" for k in (1, 2, 3)), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["best"] == {"": "a"}


def test_a_table_without_rows_says_so(tmp_path):
    (tmp_path / "empty.csv").write_text("shop,banner,won\n")
    done = command_line.bestarm("evidence", "empty.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "empty.csv: the table has no rows." in done.stderr


def test_evidence_has_the_day_of_its_look(tmp_path):
    rows = "".join(f"{'ab'[k % 2]},{int(k % 3 == 0)}\n" for k in range(30))
    (tmp_path / "t.csv").write_text(f"option,won\n{rows}")
    command_line.bestarm("evidence", "t.csv", "--out", "e.json", cwd=tmp_path)
    found = json.loads((tmp_path / "e.json").read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert command_line.bestarm("verify", "e.json", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    "asked", [(), ("--question", "control", "--control", "b")], ids=["anywhere", "control"]
)
def test_a_unit_in_brackets_is_shown_as_it_is(tmp_path, bestarm, asked):
    path = tmp_path / "t.csv"
    path.write_text("option,score\n" + "".join(f"{'ab'[k % 2]},{k * 7 % 10}\n" for k in range(400)))
    columns = ("--option", "option", "--reward", "score", "--bounds", "0", "10")
    done = bestarm("evidence", path, *columns, *asked, "--unit", "[/ms]")
    assert done.returncode == 0, done.stderr
    assert "mean ([/ms])" in done.stdout
    assert "1.00 [/ms]" in done.stdout
