"""The intervals and leads of one record hold all together, with the answer, at the level that it states."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import bestarm as ba
from bestarm.evidence.conclude import claimed, conclude, look_once
from bestarm.evidence.contests import contests_of
from bestarm.evidence.record import Counts, Settings
from bestarm.problem.counted import Rows
from bestarm.problem.scale import Scale
from bestarm.stats.intervals import clopper_pearson
from marking import slow
from rates import rate_exceeds, rate_is_below

LEVEL = 0.1  # δ and α each


def settings(question, sites, bounds=None, **more):
    shared = question in ("overall", "control")
    plain = {
        "question": question,
        "look": "once",
        "looks": 1,
        "delta": LEVEL,
        "alpha": LEVEL,
        "goal": "max",
        "bounds": bounds,
        "weights": {f"s{k}" if sites > 1 else "": 1 / sites for k in range(sites)} if shared else {},
        "weighted": "equal",
        "control": None,
        "margin": 0.0,
        "simultaneous": False,
        "seed": 0,
        "orders": 20,
        "order": None,
        "columns": {"reward": "x"},
    }
    return Settings(**{**plain, **more})


def recorded(means, rows, rng):
    """A table of coins, by site and option."""
    sites, options = (
        tuple(f"{kind}{k}" for k in range(n)) for kind, n in zip("so", means.shape, strict=True)
    )
    names = ("",) if len(sites) == 1 else sites, options
    ones = rng.binomial(rows, means)
    count = np.stack([rows - ones, ones], axis=-1).ravel()
    site, option = np.indices(means.shape)
    cells = [np.repeat(part.ravel(), 2) for part in (site, option)]
    return Rows(*names, *cells, np.tile([0.0, 1.0], means.size), count)


def found(rows, how):
    contests = contests_of(rows, how.question, how.weights, Scale(*(how.bounds or (0.0, 1.0)), "max"))
    counts = Counts.of(rows)
    return conclude(how, "t", contests, [look_once(counts, contests, how)], None, [], (), rows.total)


def fails(evidence, means):
    """Whether an answer is wrong, or an interval of an option or of a lead misses."""
    values = {("", f"o{k}"): mean for k, mean in enumerate(means.mean(axis=0))}
    if evidence.settings.question == "each":
        values = {(f"s{s}", f"o{k}"): mean for (s, k), mean in np.ndenumerate(means)}
    bad = []
    for (site, name), value in values.items():
        option = next(o for o in evidence.options if (o.site, o.name) == (site, name))
        others = [v for key, v in values.items() if key[0] == site and key[1] != name]
        bad.append(not option.interval[0] <= value <= option.interval[1])
        bad.append(option.status == "best" and value < max(others))
        if option.gap_interval is not None:
            lead = value - values[site, evidence.settings.control]
            bad.append(not option.gap_interval[0] <= lead <= option.gap_interval[1])
            bad.append((option.status == "better" and lead <= 0) or (option.status == "worse" and lead >= 0))
    for lead in evidence.leads:
        others = [v for key, v in values.items() if key[0] == lead.site and key[1] != lead.option]
        ahead = values[lead.site, lead.option] - max(others)
        bad.append(not lead.interval[0] <= ahead <= lead.interval[1])
    return any(bad)


CASES = {  # question, means by site and option, rows by site and option, settings, data sets
    "one site, six options": ("anywhere", [[0.5, 0.5, 0.45, 0.4, 0.3, 0.3]], 200, {}, 300),
    "one site, tied": ("anywhere", [[0.3, 0.3]], 200, {}, 300),
    "one site, a control": ("control", [[0.5, 0.5, 0.6]], 200, {"control": "o0"}, 300),
}
SLOW = {
    "three sites that differ": ("overall", [[0.9, 0.8], [0.5, 0.6], [0.1, 0.1]], 150, {}, 150),
    "three sites, tied": ("overall", [[0.9, 0.5, 0.5], [0.1, 0.5, 0.5]], 150, {}, 150),
    "few rows": ("overall", [[0.9, 0.5], [0.1, 0.5]], 30, {}, 150),
    "numbers": ("anywhere", [[0.5, 0.5, 0.3]], 200, {"bounds": (0.0, 1.0)}, 150),
    "a control at two sites": ("control", [[0.5, 0.6, 0.5], [0.2, 0.3, 0.2]], 200, {"control": "o0"}, 150),
    "each of three sites": ("each", [[0.5, 0.6], [0.5, 0.5], [0.2, 0.4]], 300, {"simultaneous": True}, 300),
}


@pytest.mark.parametrize("name", [*CASES, *slow(*SLOW)])
def test_the_answer_is_wrong_or_an_interval_misses_with_probability_at_most_delta_plus_alpha(name):
    """Null: the rate is above δ + α = .2. The seen rates are at most .08, so the power is nearly 1."""
    question, means, rows, more, sets = {**CASES, **SLOW}[name]
    means, rng = np.array(means), np.random.default_rng(44)
    how = settings(question, len(means), **more)
    failures = sum(
        fails(found(recorded(means, np.full(means.shape, rows), rng), how), means) for _ in range(sets)
    )
    assert rate_is_below(failures, sets, 2 * LEVEL)


def test_intervals_at_alpha_each_would_miss_far_more_often_than_alpha():
    """The forbidden way: each of 20 options has its own interval at α. Null: they miss together at most α."""
    rng, sets = np.random.default_rng(45), 400
    ones = rng.binomial(200, 0.5, (sets, 20))
    low, high = clopper_pearson(ones, 200, LEVEL / 2)
    assert rate_exceeds(int(((low > 0.5) | (high < 0.5)).any(axis=1).sum()), sets, LEVEL)


def table(path, means, rows=400, seed=3):
    rng = np.random.default_rng(seed)
    lines = [(s, o, int(x)) for (s, o), p in means.items() for x in rng.random(rows) < p]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("site", "option", "won"), *(lines[k] for k in rng.permutation(len(lines)))]
        )
    return path


COLUMNS = {"site": "site", "option": "option", "reward": "won"}
CLEAR = {("n", "a"): 0.7, ("n", "b"): 0.5, ("n", "c"): 0.4, ("s", "a"): 0.5, ("s", "b"): 0.3, ("s", "c"): 0.3}


@pytest.mark.parametrize("look", ["once", "any-time"])
def test_the_named_option_is_ahead_of_all_others_at_once(tmp_path, look):
    evidence = ba.evidence(table(tmp_path / "t.csv", CLEAR), **COLUMNS, look=look)
    (lead,) = evidence.leads
    options = {option.name: option for option in evidence.options}
    assert (lead.option, lead.over, evidence.best) == ("a", "b", {"": "a"})
    assert lead.value == pytest.approx(options["a"].mean - options["b"].mean)
    assert 0 <= lead.interval[0] < lead.value < lead.interval[1]
    apart = options["a"].interval[0] - options["b"].interval[1]
    assert lead.interval[0] > apart  # sharper than the difference of both intervals
    a, b = (options[name].interval for name in "ab")
    assert a[1] - a[0] < b[1] - b[0]  # the named option has half of the options' share


def test_a_larger_alpha_makes_every_interval_narrower(tmp_path):
    path = table(tmp_path / "t.csv", CLEAR)
    wide, narrow = (ba.evidence(path, **COLUMNS, alpha=alpha) for alpha in (0.01, 0.2))
    for one, other in zip([*wide.options, *wide.leads], [*narrow.options, *narrow.leads], strict=True):
        assert one.interval[0] < other.interval[0] or one.interval[0] == other.interval[0] == 0
        assert one.interval[1] > other.interval[1]
    assert [o.evalue for o in wide.options] == [o.evalue for o in narrow.options]
    with pytest.raises(ba.InputError, match="alpha = 1"):
        ba.evidence(path, **COLUMNS, alpha=1.0)


def test_sites_share_alpha_and_each_has_a_lead(tmp_path):
    evidence = ba.evidence(table(tmp_path / "t.csv", CLEAR), **COLUMNS, question="each")
    assert [(lead.site, lead.option) for lead in evidence.leads] == [("n", "a"), ("s", "a")]
    option = next(o for o in evidence.options if (o.site, o.name) == ("n", "b"))
    ones = round(option.mean * option.rows)
    level = 0.05 / 2 / (2 * 2) / 2  # two sites, two worse options that share half of it, two ends
    low, high = clopper_pearson(ones, option.rows, level)
    assert option.interval == (float(low), float(high))


def test_less_is_better_means_a_lead_is_positive_for_the_smaller_mean(tmp_path):
    evidence = ba.evidence(table(tmp_path / "t.csv", CLEAR), **COLUMNS, goal="min", question="anywhere")
    (lead,) = evidence.leads
    assert lead.option in ("s/b", "s/c")
    assert lead.value >= 0
    assert lead.interval[1] > 0


def test_a_withdrawn_promise_leaves_the_interval_of_the_lead_as_it_is(tmp_path):
    rows = [("n", o, int(k < n)) for o, n in (("a", 90), ("b", 10)) for k in range(100)]
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("site", "option", "won"), *rows])
    evidence = ba.evidence(tmp_path / "t.csv", **COLUMNS)
    assert evidence.promise == "withdrawn"
    assert evidence.leads[0].option == "a"


@pytest.mark.parametrize(
    ("ends", "status", "margin", "said"),
    [
        ((-0.1, 0.2), "better", 0.0, (0.0, 0.2)),
        ((-0.2, 0.1), "worse", 0.05, (-0.2, -0.05)),
        ((-0.2, 0.3), "open", 0.05, (-0.2, 0.3)),
        ((-0.2, 0.3), "within", 0.05, (-0.05, 0.05)),
        ((-0.3, -0.2), "better", 0.0, (0.0, 0.0)),
    ],
)
def test_a_lead_over_the_control_agrees_with_what_was_found_about_it(ends, status, margin, said):
    assert claimed(*ends, status, margin) == said
