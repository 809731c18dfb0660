"""Five hospitals: what a reader sees of a question about several sites, in a record and in a federation."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

import bestarm as ba
from bestarm import cli
from bestarm.deploy.federation import files
from bestarm.records.answer import answer_card
from bestarm.records.pulls import known_pulls
from bestarm.records.questions import option_table
from bestarm.report import page
from federations import Coins, Folds

MEANS = {
    "Aachen": {"S": 0.60, "A": 0.78, "B": 0.62},
    "Bonn": {"S": 0.50, "A": 0.70, "B": 0.52},
    "Celle": {"S": 0.35, "A": 0.48, "B": 0.60},
}
WEIGHTS = {"Aachen": 900, "Bonn": 600, "Celle": 300}
PROBLEM = ba.Problem.from_rewards(MEANS)


def printed(record, capsys):
    cli.show(record)
    return capsys.readouterr().out


def words(text):
    return " ".join(text.split())


def test_the_answer_over_all_sites_comes_first_with_its_mean_and_lead(capsys):
    problem = PROBLEM.asking("overall", weights=WEIGHTS, also=["each"])
    record = ba.identify(problem, "bet", seed=1)
    text = words(printed(record, capsys))
    order = [
        "The mean of A over all sites is about",
        "A is ahead overall by",
        "Aachen/A: about",
        "Celle/B: about",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    html = page.of_record(record, quick=True)
    assert (
        html.index("<dt>Best overall</dt>")
        < html.index("<dt>Best at Aachen</dt>")
        < html.index("<dt>Risk</dt>")
    )
    flags = re.sub(r"<[^>]*>", "", html).partition("bestarm run SCENARIO.toml")[2][:400]
    assert "--question overall --also each --weights Aachen=0.5,Bonn=0.3333" in flags


def test_better_than_the_control_names_the_margin(capsys):
    problem = PROBLEM.asking("control", control="S", weights=WEIGHTS)
    record = ba.identify(problem, "bet", seed=1, margin=0.02, budget=20_000)
    text = words(printed(record, capsys))
    assert "A is better than S by more than 2 points" in text
    assert "Better and worse mean by more than the margin of 2 points." in text
    assert "A is better than S by more than 2 points" in page.of_record(record, quick=True)


def test_a_run_says_which_limit_ended_it_where_and_by_how_much(capsys):
    problem = PROBLEM.asking("control", control="S")
    few = ba.identify(problem, "bet", seed=2, budget=300, n1=8)
    assert few.verdict.reason == "budget"
    found = re.search(
        r"B is open: the next block needs (\d+) pulls at (\w+)-1, and (\d+) of its budget of 300 are left\.",
        words(printed(few, capsys)),
    )
    needs, client, left = int(found[1]), f"{found[2]}-1", int(found[3])
    assert left == 300 - few.pulls.by_client[client] < needs
    assert ba.verify(few, replay=True).ok

    def recorded(mean):
        return ba.Recording(tuple(float(k * mean % 1 < mean) for k in range(1, 60)))

    rows = {site: {name: recorded(mean) for name, mean in arms.items()} for site, arms in MEANS.items()}
    short = ba.identify(ba.Problem.from_rewards(rows).asking("control", control="S"), "bet", seed=2)
    assert short.verdict.reason == "budget"
    text = words(printed(short, capsys))
    assert re.search(r"is open: the next block needs \d+ rows? of [SAB] at \w+-1, and \d+ are left", text)
    assert "used up" not in text


def test_a_record_from_before_limits_were_named_is_still_sound():
    record = ba.identify(PROBLEM.asking("control", control="S"), "bet", seed=2, budget=300, n1=8)
    server = {key: value for key, value in record.verdict.certificate["server"].items() if key != "stopped"}
    verdict = replace(record.verdict, certificate={**record.verdict.certificate, "server": server})
    older = replace(record, verdict=verdict).sealed()
    assert ba.verify(older, replay=True).ok
    assert "too small for the next step" in answer_card(older).answers[-1]


@pytest.fixture
def without_celle(tmp_path):
    """The folds of a federation whose operator names a site, which never came, to go on without it."""
    problem = PROBLEM.asking("overall", weights=WEIGHTS)
    case = ba.Scenario(problem, "bet", None, {"delta": 0.1})
    files.init(case, tmp_path / "fed", port=0)
    assert files.drop(tmp_path / "fed", "Celle") == "Celle-1"
    folds = Folds(tmp_path / "fed", Coins(case.problem))
    folds.working = [name for name in folds.names if name != "Celle-1"]
    folds.desk.drop("Celle-1")
    yield folds
    folds.close()


def test_after_a_drop_every_number_is_about_the_sites_that_stayed(without_celle, capsys):
    record = without_celle.go()
    card = answer_card(record)
    assert card.options[0].name == "A"
    assert all(row.mean is not None for row in card.options)
    means = [row.mean for row in card.options]
    assert means == sorted(means, reverse=True)
    table = option_table(record.problem, record.verdict, record.verdict.certificate, record.summaries)
    assert table.weights == pytest.approx((0.6, 0.4, 0.0))

    made = {name: site.pulls for name, site in without_celle.sites.items() if site is not None}
    assert known_pulls(record) == {**made, "Celle-1": 0}
    total = sum(made.values())
    assert sum(row.pulls for row in table.rows) == total == card.costs.pulls
    assert {row.name: row.pulls for row in card.options} == {row.name: row.pulls for row in table.rows}
    assert f"{total:,} pulls, at most {max(made.values()):,} by one client" in words(printed(record, capsys))
    html = page.of_record(record, quick=True)
    assert "Only the clients know their pulls" not in html
    assert "pulls at the site" in html


def test_a_folder_names_a_site_with_several_clients_and_one_that_is_not_there(tmp_path):
    problem = ba.Problem.from_rewards(MEANS, clients={"Celle": 2})
    files.init(ba.Scenario(problem, "bet", None, {}), tmp_path / "fed", port=0)
    with pytest.raises(ba.InputError, match=r'site "Celle" has 2 clients.*Celle-1 and Celle-2'):
        files.drop(tmp_path / "fed", "Celle")
    with pytest.raises(ba.InputError, match='no client "Cele"'):
        files.drop(tmp_path / "fed", "Cele")


def test_the_site_that_spells_an_option_differently_is_named():
    other = {**MEANS, "Celle": {"standard": 0.35, "A": 0.48, "B": 0.6}}
    with pytest.raises(ba.InputError, match='only site "Celle" offers "standard", and it has no "S"'):
        ba.Problem.from_rewards(other).asking("overall")


def test_80_columns_have_all_sites_and_whole_words(monkeypatch, capsys):
    sites = {
        name: {"S": 0.5, "A": 0.8, "B": 0.45} for name in ("Aachen", "Bonn", "Celle", "Dresden", "Essen")
    }
    record = ba.identify(ba.Problem.from_rewards(sites).asking("overall"), "bet", seed=1)
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(record, capsys)
    assert "ruled out" in text
    assert all(site in text for site in sites)
    assert "more site" not in text
