"""Rounding, sites with one option, copies of rows, averages with counts, and values that no row has."""

import re

import numpy as np
import pytest

import bestarm as ba
from bestarm.cli.render.evidence import show
from bestarm.errors import InputError
from bestarm.evidence.card import evidence_card
from bestarm.evidence.sites import means_by_site
from bestarm.evidence.verify import verify
from bestarm.records.figures import lead_places, mean_places
from bestarm.report.page import of_evidence

SHOPS = "shop,banner,bought,seen\n" + "".join(
    f"{shop},{banner},{bought},{seen}\n"
    for shop, banner, bought, seen in [
        ("north", "a", 90, 1000),
        ("north", "b", 40, 1000),
        ("south", "a", 80, 1000),
        ("south", "b", 50, 1000),
    ]
)


def written(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text, "utf-8")
    return str(path)


def money(tmp_path):
    """A table whose intervals are far wider than its means differ."""
    rng = np.random.default_rng(3)
    rows = ["plan,euro"]
    for plan, mean in (("a", 4.63), ("b", 3.16), ("c", 3.09), ("d", 2.55)):
        rows += [f"{plan},{x:.2f}" for x in np.minimum(1000, rng.exponential(mean, 200))]
    return written(tmp_path, "\n".join(rows))


def money_found(tmp_path):
    return ba.evidence(money(tmp_path), option="plan", reward="euro", bounds=(0, 1000), unit="EUR")


def test_means_of_money_keep_three_digits_and_the_same_decimals(tmp_path, capsys):
    found = money_found(tmp_path)
    show(found)
    lines = capsys.readouterr().out.splitlines()
    means = [line.split()[2] for line in lines if re.match(r"[abcd] +200 ", line)]
    assert len(means) == 4
    assert all(re.fullmatch(r"\d\.\d\d", mean) for mean in means)
    assert means == sorted(means, reverse=True)


def test_a_lead_is_the_same_number_on_the_card_the_terminal_and_the_page(tmp_path, capsys):
    found = money_found(tmp_path)
    show(found)
    said = re.search(r"leads by (\d+\.\d+) EUR", capsys.readouterr().out)[1]
    page = of_evidence(found)
    assert re.search(rf"<p class=\"?main\"?>{said} EUR</p>", page)
    assert f"<td>{said} EUR" in page or f">{said} EUR</td>" in page


def test_order_and_shown_means_never_contradict_each_other():
    found = ba.evidence("examples/hospitals.csv")
    card = evidence_card(found)
    assert mean_places(card) == 1  # 50.9 % above 50.8 %, though the interval of A is wide
    assert lead_places(card) >= 1


@pytest.mark.parametrize("asked", [{}, {"question": "control", "control": "a"}])
def test_means_at_each_site_are_those_of_the_table(tmp_path, capsys, asked):
    found = ba.evidence(
        written(tmp_path, SHOPS), option="banner", site="shop", successes="bought", trials="seen", **asked
    )
    table = means_by_site(found)
    assert table.sites == ("north", "south")
    assert {row.name: row.means for row in table.rows} == {"a": (0.09, 0.08), "b": (0.04, 0.05)}
    assert table.bests == ("a", "a")
    show(found)
    assert "At each site, without an interval or promise:\noption" in capsys.readouterr().out
    assert "Each option at each site" in of_evidence(found)


def test_means_at_each_site_of_looks_at_any_time_are_those_of_closed_blocks(tmp_path):
    rng = np.random.default_rng(5)
    rows = ["city,plan,minutes"]
    for _ in range(400):
        rows += [f"{city},{plan},{rng.integers(0, 60)}" for city in ("x", "y") for plan in ("a", "b")]
    asked = {"option": "plan", "site": "city", "reward": "minutes", "bounds": (0, 60), "goal": "min"}
    found = ba.evidence(written(tmp_path, "\n".join(rows)), **asked, look="any-time")
    table, over_all = means_by_site(found), {option.name: option for option in found.options}
    for row in table.rows:
        assert np.mean(row.means) == pytest.approx(over_all[row.name].mean)
        assert row.pulls == over_all[row.name].rows


def test_no_table_by_site_where_nothing_is_averaged(tmp_path):
    path = written(tmp_path, SHOPS)
    asked = {"option": "banner", "site": "shop", "successes": "bought", "trials": "seen"}
    assert means_by_site(ba.evidence(path, **asked, question="each")) is None
    assert means_by_site(ba.evidence(path, **asked, question="anywhere")) is None


def test_a_site_with_one_option_is_left_out_of_each(tmp_path):
    path = written(tmp_path, SHOPS + "west,a,7,100\neast,b,7,100\n")
    asked = {"option": "banner", "site": "shop", "successes": "bought", "trials": "seen"}
    found = ba.evidence(path, **asked, question="each")
    assert set(found.best) == {"north", "south"}
    assert "left out, as they have only one option: east and west" in found.notes
    assert found.rows == 4000
    assert verify(found).ok


def test_sites_that_all_have_one_option_are_refused(tmp_path):
    path = written(tmp_path, "shop,banner,bought,seen\nnorth,a,1,9\nsouth,b,1,9\n")
    with pytest.raises(InputError, match="only 1 option"):
        ba.evidence(path, option="banner", site="shop", successes="bought", trials="seen", question="each")


def test_where_lists_the_values_of_the_column(tmp_path):
    path = written(tmp_path, SHOPS)
    with pytest.raises(InputError, match=r'shop = "North".*one of \'north\', \'south\''):
        ba.evidence(path, option="banner", successes="bought", trials="seen", where={"shop": "North"})


def test_where_lists_at_most_six_values(tmp_path):
    rows = "".join(f"{k},a,1,9\n{k},b,2,9\n" for k in range(9))
    path = written(tmp_path, f"week,banner,bought,seen\n{rows}")
    with pytest.raises(InputError, match=r"one of '0'(, '\d'){5}, …"):
        ba.evidence(path, option="banner", successes="bought", trials="seen", where={"week": "10"})


def test_a_page_names_no_file_that_was_not_saved(tmp_path):
    found = ba.evidence("examples/hospitals.csv")
    assert "The record was not saved" in of_evidence(found)
    assert "The record was not saved" not in of_evidence(found, "found.json")


def test_the_margin_is_said_in_the_unit_of_the_lead(tmp_path, capsys):
    path = written(tmp_path, SHOPS)
    asked = {"option": "banner", "site": "shop", "successes": "bought", "trials": "seen"}
    found = ba.evidence(path, **asked, question="control", control="b", margin=0.0125)
    show(found)
    told = capsys.readouterr().out
    assert told.startswith("Compared with b: a is better by more than 1.25 points.")
    assert "> 1.25 points better" in told
    assert "within 1.25 points" in told
    page = of_evidence(found)
    assert page.count("better by more than 1.25 points") >= 3


def test_averages_with_counts_are_refused(tmp_path):
    rows = "".join(f"{plan},{share} %,40\n" for plan in "ab" for share in (30, 40, 50))
    path = written(tmp_path, f"plan,response,n\n{rows}")
    with pytest.raises(InputError, match="averages or shares"):
        ba.evidence(path, option="plan", reward="response", count="n", bounds=(0, 1))
    assert ba.evidence(path, option="plan", reward="response", bounds=(0, 1), site="").rows == 6


def test_results_of_single_tries_with_counts_are_read_whatever_their_name(tmp_path):
    path = written(tmp_path, "plan,rate,n\na,0,40\na,1,30\nb,0,60\nb,1,10\n")
    assert ba.evidence(path, option="plan", reward="rate", count="n").rows == 140


def visits(n, copies, name=lambda k: str(k)):
    rows = [f"{name(k)},{'ab'[k % 2]},{k % 3 == 0:d}" for k in range(n)]
    return "visitor,plan,bought\n" + "\n".join(rows + rows[:copies])


@pytest.mark.parametrize(
    ("copies", "note"),
    [
        (30, "30 rows repeat another row exactly; if they are copies, remove them"),
        (1, "1 row repeats another row exactly; if it is a copy, remove it"),
    ],
)
def test_copies_of_rows_are_noted(tmp_path, copies, note):
    found = ba.evidence(written(tmp_path, visits(500, copies)), option="plan", reward="bought")
    assert note in found.notes


@pytest.mark.parametrize(
    "text",
    [
        visits(500, 0),
        visits(500, 30, lambda k: "shop"),  # no column tells rows apart
        visits(500, 30, lambda k: f"{k}.5"),  # amounts, of which two may be equal
    ],
)
def test_equal_rows_are_no_copies_where_nothing_tells_rows_apart(tmp_path, text):
    found = ba.evidence(written(tmp_path, text), option="plan", reward="bought")
    assert not [note for note in found.notes if "repeat" in note]
