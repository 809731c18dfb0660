"""A study's file and the settings beside it are enough to run any of its trials again."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

import bestarm as ba
from bestarm.errors import InputError

LIARS = ba.Problem.bernoulli([[0.9, 0.3], [0.6, 0.2]], clients=3)
ASKED = ba.Problem.from_rewards({"s": {"a": 0.9, "b": 0.4}, "t": {"a": 0.7, "b": 0.5}}).asking("overall")
STUDIES = {
    "family": lambda: ba.study(
        ba.Problem.paper_instance,
        trials=3,
        seed=5,
        workers=1,
        vary={"sigma": [1, 2], "method": ["bet", "fisher"]},
    ),
    "liars": lambda: ba.study(
        LIARS,
        "fisher",
        trials=3,
        seed=2,
        workers=1,
        byzantine=1,
        adversaries=[ba.Adversary("g1", "bury", 1)],
    ),
    "question": lambda: ba.study(ASKED, "bet", trials=3, seed=3, workers=1, delta=0.1),
    "one": lambda: ba.study(LIARS, "bet", trials=2, seed=9, workers=1, prefer="rounds"),
}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("name", STUDIES)
def test_a_loaded_study_has_its_seed_its_limit_and_its_trials(tmp_path, name, ending):
    made = STUDIES[name]()
    loaded = ba.Trials.load(made.save(tmp_path / f"rows.{ending}"))
    assert (loaded.seed, loaded.trials, loaded.varied) == (made.seed, made.trials, made.varied)
    assert loaded.summary() == made.summary()
    for i in (0, len(made) - 1):
        again = loaded.record(i)
        assert again.to_dict() == made.record(i).to_dict()
        assert again.pulls.total == made["pulls_total"][i]


def test_the_page_of_a_loaded_study_has_the_limit_delta_and_the_command(tmp_path):
    made = STUDIES["family"]()
    page = ba.Trials.load(made.save(tmp_path / "rows.csv")).report(tmp_path / "p.html").read_text("utf-8")
    page = re.sub("<[^>]*>", "", page)
    for text in (
        "pulls / limit",
        "bestarm study SCENARIO.toml --trials 3 --seed 5 --delta 0.05 --vary sigma=1,2 --vary method=bet,",
        "δ = 0.05, seed 5.",
    ):
        assert text in page


def test_without_its_settings_a_study_says_so_and_does_not_guess(tmp_path):
    path = STUDIES["one"]().save(tmp_path / "rows.csv")
    beside = tmp_path / "rows.csv.json"
    kept = beside.read_text("utf-8")

    def refused(why):
        loaded = ba.Trials.load(path)
        assert loaded.seed is None
        assert "seed not known" in repr(loaded)
        row = loaded.summary()[0]
        assert (row["limit"], why in row["no_limit"]) == (None, True)
        with pytest.raises(InputError, match=why):
            loaded.record(0)
        assert why in unescape(loaded.report(tmp_path / "p.html").read_text("utf-8"))

    beside.write_text("{}", "utf-8")
    refused("can't be read as the settings of a study")
    beside.write_text(json.dumps({**json.loads(kept), "format": 99}), "utf-8")
    refused("another version of bestarm")
    beside.write_text(kept, "utf-8")
    path.write_text(path.read_text("utf-8").replace("g1/a1", "g2/a1"), "utf-8")
    refused("rows.csv has changed")
    beside.unlink()
    refused("rows.csv.json, which has the settings of the study, is not beside rows.csv")


def test_rewards_of_a_python_function_cannot_be_kept_and_the_file_says_so(tmp_path):
    problem = ba.Problem.from_rewards({"w": {"a": ba.Function(lambda rng: 1.0), "b": 0.2}})
    made = ba.study(problem, "bet", trials=2, seed=1, workers=1)
    loaded = ba.Trials.load(made.save(tmp_path / "rows.csv"))
    assert loaded.seed == 1
    with pytest.raises(InputError, match="this trial can't be run again"):
        loaded.record(0)
    page = loaded.report(tmp_path / "p.html").read_text("utf-8")
    assert "The settings are not known" in page
