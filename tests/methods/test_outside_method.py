"""A method outside the package is found through its entry point, and the example method is correct."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples.uniform_method import METHOD, Server, Uniform, encode, leader

import bestarm as ba
from bestarm.cli.render.plan import show_plan
from bestarm.cli.render.record import show
from bestarm.cli.render.study import show_study
from bestarm.errors import InputError
from bestarm.problem.layout import Group, Layout
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Drop, Received, Start
from bestarm.protocol.registry import GROUP, INCLUDED, METHODS
from bestarm.records.answer import answer_card
from bestarm.records.figures import ahead_said, next_steps
from bestarm.stats.intervals import binomial_interval

GROUPS = {"west": {"a": 0.9, "b": 0.3}, "east": {"c": 0.5}}
PROBLEM = ba.Problem.from_rewards(GROUPS)
SCENARIO = """
method = "uniform"
seed = 7
group = [{ name = "west", arms = { a = 0.9, b = 0.3 } }, { name = "east", arms = { c = 0.5 } }]
"""


@pytest.fixture(autouse=True)
def _registered():
    ba.register_method(METHOD)


@pytest.fixture
def install(root, tmp_path):
    """Install distributions in a separate path, as pip would; return an environment that sees them."""
    site = tmp_path / "site"
    site.mkdir()

    def distribution(name, point, files=()):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{point}\n")
        for path in files:
            shutil.copy(root / path, site)
        return {**os.environ, "PYTHONPATH": str(site)}

    return distribution


def python(env, *words):
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=True)


def test_an_installed_method_is_found_through_its_entry_point(install, tmp_path):
    env = install("uniform", "uniform = uniform_method:METHOD", ["examples/uniform_method.py"])
    code = f"import bestarm as ba; print(ba.identify(ba.Problem.from_rewards({GROUPS}), 'uniform', seed=7))"
    assert python(env, "-c", code).stdout.strip() == str(ba.identify(PROBLEM, "uniform", seed=7))
    (tmp_path / "sites.toml").write_text(SCENARIO)
    words = ["run", str(tmp_path / "sites.toml"), "--n0", "64", "--json"]
    record = json.loads(python(env, "-m", "bestarm.cli", *words).stdout)
    assert (record["method"], record["options"]["n0"]) == ("uniform", 64)
    assert record["verdict"]["arm"] == "west/a"


@pytest.mark.parametrize("point", ["lost = no_such_module:METHOD", "wrong = json:dumps", "fisher = m:METHOD"])
def test_an_entry_point_that_cannot_be_used_is_left_out_with_a_warning(install, point):
    env = install("broken", point)
    copy = "METHOD = dataclasses.replace(fisher.METHOD, title='Mine')"
    module = f"import dataclasses\nfrom bestarm.methods import fisher\n{copy}\n"
    Path(env["PYTHONPATH"], "m.py").write_text(module)
    found = python(env, "-c", "import bestarm as ba; print(ba.Fisher().delta)")
    assert found.stdout == "0.05\n"
    assert "RuntimeWarning" in found.stderr
    assert f"the method {point.split()[0]} " in found.stderr


def test_a_method_may_be_registered_twice_but_not_its_name():
    assert ba.register_method(METHOD) is METHOD
    with pytest.raises(InputError, match="uniform"):
        ba.register_method(ba.Method(**{**vars(METHOD), "title": "Another"}))


def test_the_method_of_the_examples_fits_on_a_few_screens(root):
    assert len((root / "examples/uniform_method.py").read_text("utf-8").splitlines()) < 200


def test_the_page_about_it_shows_parts_that_exist(root):
    text, page = ((root / p).read_text("utf-8") for p in ("examples/uniform_method.py", "docs/own-method.md"))
    shown = re.findall(r":pyobject: (\S+)", page)
    assert {"Uniform", "Client", "Server", "audit_client"} <= set(shown)
    for name in shown:
        assert re.search(rf"^(?:class|def) {name}\b", text, re.MULTILINE), name


def test_the_example_s_options_can_be_given_as_an_object():
    assert ba.identify(PROBLEM, Uniform(n0=64), seed=7) == ba.identify(PROBLEM, "uniform", n0=64, seed=7)


def test_the_example_is_wrong_no_more_often_than_delta():
    """H0: an error has probability at most 0.3; false alarm below 1e-6."""
    problem = ba.Problem.bernoulli([[0.55, 0.45], [0.5]])
    trials = ba.study(problem, "uniform", trials=150, seed=11, delta=0.3, n0=2, workers=1)
    wrong = int((trials["correct"] == False).sum())  # noqa: E712
    assert binomial_interval(wrong, 150, 1 - 2e-6)[0] <= 0.3
    held = [arm == "g1/a1" for arm, good in zip(trials["arm"], trials["good_event"], strict=True) if good]
    assert held
    assert all(held), "on the good event it is never wrong"


@pytest.mark.parametrize(
    ("options", "reason", "pulls"),
    [({"budget": 400}, "budget", 3 * 128), ({"max_rounds": 2}, "rounds", 3 * 64)],
)
def test_the_example_ends_undecided_when_a_limit_is_reached(options, reason, pulls):
    problem = ba.Problem.from_rewards({"west": {"a": 0.5, "b": 0.5, "c": 0.5}})
    record = ba.identify(problem, "uniform", seed=1, **options)
    assert (record.verdict.reason, record.pulls.total) == (reason, pulls)
    assert len(record.verdict.candidates) == 3
    assert ba.verify(record, replay=True).failures == ()


def test_the_example_ends_undecided_when_the_data_run_out():
    values = tuple(float(k % 2) for k in range(50))
    problem = ba.Problem.from_rewards({"west": {"a": ba.Recording(values), "b": 0.5}})
    record = ba.identify(problem, "uniform", seed=1)
    assert (record.verdict.reason, record.pulls.total) == ("budget", 100)
    assert ba.verify(record, replay=True).failures == ()


def test_an_arm_that_is_close_enough_is_named_sooner():
    problem = ba.Problem.bernoulli([[0.6, 0.55], [0.5]])
    exact, close = (ba.identify(problem, "uniform", seed=3, epsilon=epsilon) for epsilon in (0.0, 0.2))
    assert close.pulls.total < exact.pulls.total
    assert close.verdict.arm in ("g1/a1", "g1/a2", "g2/a1")
    assert exact.verdict.arm == "g1/a1"


def test_the_leader_is_the_largest_mean_and_a_lone_arm_has_no_rival():
    import numpy as np

    j, arm, short = leader(np.array([[0.2, 0.9], [0.7, -np.inf]]), 0.05)
    assert (j, arm, round(short, 12)) == (0, 1, -0.1)
    assert leader(np.array([[0.2]]), 0.05) == (0, 0, -np.inf)


def started():
    layout = Layout((Group("west", ("a", "b"), ("w",)), Group("east", ("c",), ("e",))))
    server = Server(layout, Uniform(n0=100))
    server.handle(Start())
    return server


@pytest.mark.parametrize("sums", [(101.0, 3.0), (-1.0, 3.0), (float("nan"), 3.0), (1.0,), (1.0, 2.0, 3.0)])
def test_a_message_that_no_honest_client_sends_proves_a_fault(sums):
    server = started()
    server.handle(Received("w", encode(sums)[0]))
    assert [fault["client"] for fault in server.faulty] == ["w"]
    assert server.verdict.reason == "votes"


def test_bits_after_the_message_are_malformed():
    from examples.uniform_method import decode

    with pytest.raises(Malformed):
        decode(encode((1.0,))[0] + b"\0", 1, 100)


def test_a_group_that_the_operator_drops_is_no_longer_compared():
    server = started()
    server.handle(Drop("w"))
    server.handle(Received("e", encode((10.0,))[0]))
    assert server.verdict.arm == "east/c"
    assert server.warnings


class NamesTheSecond(Server):
    """A server that always names the second best option."""

    def _close_round(self):
        return self._identified(1, 0)


@pytest.fixture
def unproved(monkeypatch):
    """A method without a proof that is always wrong, on a problem with a clear best option."""
    method = dataclasses.replace(METHOD, name="second", title="Second", server=NamesTheSecond, proof="")
    monkeypatch.setitem(METHODS, "second", method)
    return ba.Problem.from_rewards({"w": {"a": 0.9, "b": 0.4}, "e": {"c": 0.6}})


def test_nothing_is_promised_for_a_method_without_a_proof(unproved, tmp_path, capsys):
    why = "no error probability is proved for the method Second"
    record = ba.identify(unproved, "second", seed=7)
    card = answer_card(record)
    assert card.headline == f"No safe answer: {why}. The run named e/c."
    assert card.tone == "bad"
    assert card.risk.startswith(f"Nothing is promised: {why}. The intervals do not depend on the method")
    assert not any("publish" in text for text in next_steps(card, None))
    page = record.report(tmp_path / "r.html", quick=True).read_text("utf-8")
    show(record)
    show_plan(found := ba.plan(unproved, methods=["second"], trials=4, seed=1, quick=True, workers=1))
    show_study(trials := ba.study(unproved, "second", trials=4, seed=1, workers=1))
    told = capsys.readouterr().out
    for text in (page, told):
        assert why in text
        assert "with probability at most 0.05" not in text
        assert "is the best arm" not in text
    assert told.count(why) == 4
    assert found.to_dict()["methods"][0]["unproved"] == why
    assert (found.limit, found.no_limit) == (None, f"second: {why}")
    assert [trials.summary()[0][key] for key in ("limit", "no_limit", "unproved")] == [None, why, why]


def test_a_page_says_so_if_its_own_numbers_contradict_the_answer(unproved, tmp_path):
    record = ba.identify(unproved, "second", seed=7)
    card = answer_card(record)
    text = "The numbers of this run contradict its answer: the mean of w/a is better than that of e/c."
    assert card.alarms[0] == text
    means = {row.name: row.mean for row in card.options}
    assert card.lead.value == means["e/c"] - means["w/a"] < -0.25
    assert card.lead.interval[0] < card.lead.value < card.lead.interval[1]
    assert ahead_said(card) == ["Behind w/a by 31 points."]
    page = record.report(tmp_path / "r.html", quick=True).read_text("utf-8")
    assert text in page
    assert "Ahead by 0" not in page
    assert "out at its site" not in page


def test_a_proof_of_somebody_else_is_named_as_an_assumption():
    ours, theirs = (answer_card(ba.identify(PROBLEM, name, seed=7)) for name in ("fisher", "uniform"))
    assert theirs.tone == "good"
    text = f"The author of the method Uniform is right about its proof: {METHOD.proof}."
    assert text in theirs.assumptions
    assert not any("author" in text for text in ours.assumptions)


def test_every_method_of_the_package_says_where_its_proof_is_or_promises_nothing():
    assert [name for name, method in INCLUDED.items() if method.unproved] == ["fpe-heuristic"]
    assert not dataclasses.replace(METHODS["fisher"], name="copy").included


class SaysNothing(Server):
    """A server whose author forgot to return the actions."""

    def _close_round(self):
        return None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pulls_of": None}, 'method "odd": pulls_of = None can\'t be called'),
        ({"name": "My Method"}, "name = 'My Method' can't be used"),
        ({"pulls_of": lambda part, arms, options: 7}, 'method "odd": pulls_of returned 7'),
        ({"server": SaysNothing}, 'server "SaysNothing": _close_round returned None'),
    ],
)
def test_a_mistake_in_a_method_names_the_method_and_the_part(monkeypatch, change, text):
    def run():
        method = dataclasses.replace(METHOD, **{"name": "odd", **change})
        monkeypatch.setitem(METHODS, "odd", method)
        ba.identify(PROBLEM, "odd", seed=1)

    with pytest.raises(InputError, match=re.escape(text)):
        run()


def test_an_unknown_method_points_to_the_arena_s_baselines():
    with pytest.raises(
        InputError, match="Baselines such as lucb run in the arena only: bestarm arena --list"
    ):
        ba.study(PROBLEM, "lucb", trials=1)


def test_keys_that_cannot_be_varied_are_not_explained_with_internal_names():
    with pytest.raises(InputError, match="Known: ") as error:
        ba.study(PROBLEM, "bet", trials=1, vary={"zzzzzz": [1]})
    assert "proved" not in str(error.value)
