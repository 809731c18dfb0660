"""What may be asked of sites, and what is refused with which words."""

from __future__ import annotations

import pytest

import bestarm as ba

REGIONS = {"US": {"A": 0.3, "B": 0.4, "C": 0.2}, "EU": {"A": 0.7, "B": 0.5, "C": 0.6}}
OWN = {"north": {"x": 0.5, "y": 0.4}, "south": {"z": 0.6}}


def asked(groups=REGIONS, **keys):
    return ba.Problem.from_rewards(groups).asking(**keys)


@pytest.mark.parametrize(
    ("keys", "best"),
    [
        ({"question": "anywhere"}, "EU/A"),
        ({"question": "overall"}, "A"),
        ({"question": "overall", "weights": {"US": 3, "EU": 1}}, "B"),
        ({"question": "each"}, "US: B, EU: A"),
        ({"question": "overall", "also": ["each"]}, "A, US: B, EU: A"),
        ({"question": "control", "control": "A"}, "B: worse, C: worse"),
    ],
)
def test_the_right_answer_follows_from_the_question(keys, best):
    assert asked(**keys).best == best


def test_weights_are_normalised_and_clients_of_a_site_share_its_weight():
    problem = ba.Problem.from_rewards(REGIONS, clients=[1, 3]).asking("overall", weights={"US": 1, "EU": 3})
    assert problem.layout.question.weights == (0.25, 0.75)
    assert problem.best == asked(question="overall", weights={"US": 1, "EU": 3}).best


def test_weights_by_rows_count_the_recorded_rewards_of_each_site():
    rows = {"US": {"A": [1, 0, 1], "B": [0, 1]}, "EU": {"A": [1] * 10, "B": [0] * 5}}
    groups = {
        site: {arm: {"kind": "recording", "values": values} for arm, values in arms.items()}
        for site, arms in rows.items()
    }
    assert asked(groups, question="overall", weights="rows").layout.question.weights == (0.25, 0.75)
    with pytest.raises(ba.InputError, match="needs recorded data"):
        asked(question="overall", weights="rows")


def test_options_that_a_site_does_not_offer_are_refused_unless_averages_are_asked_for():
    groups = {"US": {"A": 0.3, "B": 0.4}, "EU": {"A": 0.7}}
    with pytest.raises(ba.InputError, match=r'"EU" does not offer the option "B".*confounding'):
        asked(groups, question="overall")
    assert asked(groups, question="overall", missing_options="average").best == "A"
    assert asked(groups, question="each").best == "US: B, EU: A"


def test_a_control_may_be_one_arm_of_sites_that_share_none():
    assert asked(OWN, question="control", control="north/x").best == "north/y: worse, south/z: better"
    with pytest.raises(ba.InputError, match="names one site"):
        asked(question="control", control="US/A")


def test_a_question_survives_a_record():
    problem = asked(question="overall", weights={"US": 2, "EU": 1}, also="each", simultaneous=True)
    assert ba.Problem.from_dict(problem.to_dict()).layout == problem.layout
    assert "question" not in asked().to_dict()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"question": "overal"}, "Did you mean"),
        ({"question": 3}, "unknown"),
        ({"question": "anywhere", "weights": "equal"}, "does not belong"),
        ({"question": "each", "weights": "equal"}, "does not belong"),
        ({"question": "each", "also": "each"}, "does not belong"),
        ({"question": "overall", "weights": "even"}, "weights = "),
        ({"question": "overall", "weights": {"US": 1}}, '"EU" has no weight'),
        ({"question": "overall", "weights": {"US": 1, "EU": 0}}, "above 0"),
        ({"question": "overall", "weights": {"US": 1, "EU": 1, "UK": 1}}, 'no site "UK"'),
        ({"question": "overall", "also": ["overall"]}, "also"),
        ({"question": "overall", "missing_options": "skip"}, "missing_options"),
        ({"question": "overall", "simultaneous": 1}, "true or false"),
        ({"question": "control"}, "needs the name of the control"),
        ({"question": "control", "control": "D"}, "not an option"),
        ({"question": "overall", "wights": "equal"}, "Did you mean"),
    ],
)
def test_keys_that_make_no_sense_are_refused(keys, message):
    with pytest.raises(ba.InputError, match=message):
        asked(**keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"question": "overall", "epsilon": 0.1}, "budget"),
        ({"question": "overall", "byzantine": 1}, "more than 2 sites"),
        ({"question": "each", "byzantine": 1}, "only for one answer"),
        ({"question": "each", "allocation": "equal"}, "allocation"),
        ({"question": "overall", "simultaneous": True}, "own answers"),
        ({"question": "overall", "silence": "fill"}, "silence"),
        ({"question": "overall", "margin": 0.1}, "margin does not belong"),
        ({"question": "anywhere", "margin": 0.1}, "do not belong"),
        ({"question": "control", "control": "A", "margin": 1.0}, "as wide as"),
        ({"question": "overall", "method": "fisher"}, 'Use method = "bet"'),
        ({"question": "overall", "method": "fed-sel"}, "does not answer"),
    ],
)
def test_options_that_do_not_fit_a_question_are_refused(keys, message):
    with pytest.raises(ba.InputError, match=message):
        ba.identify(ba.Problem.from_rewards(REGIONS), seed=1, **keys)


def test_one_option_is_nothing_to_compare():
    with pytest.raises(ba.InputError, match="only one option"):
        ba.identify(ba.Problem.from_rewards({"US": {"A": 0.3}, "EU": {"A": 0.5}}), question="overall")


def test_ties_are_named_for_the_question():
    groups = {"US": {"A": 0.25, "B": 0.5}, "EU": {"A": 0.5, "B": 0.25}}
    assert asked(groups, question="overall").ties() == ["the best options are tied: A, B"]
    assert asked(groups, question="each").ties() == []
    assert asked(groups, question="control", control="A").ties() == ["as good as the control A: B"]
