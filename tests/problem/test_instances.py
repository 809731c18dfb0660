"""Named instances: a unique best answer, exact averages, and a place in scenario files."""

from __future__ import annotations

import numpy as np
import pytest

import bestarm as ba
from bestarm.problem.instances import INSTANCES, OVERALL, instance, site_effects

NAMES = list(INSTANCES)


@pytest.mark.parametrize("name", NAMES)
def test_every_instance_has_one_best_answer_and_a_description(name):
    found = instance(name)
    values = sorted(found.values.values(), reverse=True)
    assert values[0] > values[1] + 0.01
    assert found.about
    assert not found.about.endswith(".")
    assert found.problem is instance(name).problem
    assert found.question in ("anywhere", "overall")
    if found.question == "anywhere":
        assert max(found.values, key=found.values.get) == found.problem.best


def test_sites_of_an_overall_instance_share_their_options_and_disagree():
    for name in NAMES:
        if INSTANCES[name].question == "overall":
            groups = INSTANCES[name].problem.layout.groups
            assert len({group.arms for group in groups}) == 1
            assert len(groups) > 1
    means = np.array(instance("site-order").problem.means)
    assert len(set(means.argmax(axis=1))) > 1, "sites do not agree on the best option"


def test_site_effects_leave_the_averages_alone_and_repeat_with_the_seed():
    values = [0.55, 0.5, 0.4]
    problem = site_effects(values, 7, 0.15, 0.05, seed=2)
    assert np.allclose(np.mean(problem.means, axis=0), values, atol=1e-8)
    assert problem == site_effects(values, 7, 0.15, 0.05, seed=2)
    assert problem != site_effects(values, 7, 0.15, 0.05, seed=3)


def test_instances_of_the_batched_paper_are_drawn_as_in_its_experiments():
    uniform, normal = (sorted(instance(f"bbai-{name}").values.values()) for name in ("uniform", "normal"))
    assert (len(uniform), uniform[-1], len(normal), normal[-1]) == (10, 0.5, 10, 0.6)
    assert all(0.2 <= mean <= 0.4 for mean in uniform[:-1])
    assert all(0.0 <= mean <= 0.4 for mean in normal[:-1])
    old = np.random.RandomState(1).uniform(0.2, 0.4, 10)[1:]
    assert np.allclose(sorted(old), uniform[:-1], atol=1e-6)


def test_the_instance_of_fpe_has_scaled_normal_means_and_the_gap_of_its_paper():
    means = np.array(instance("fpe-1").problem.means) - 0.5
    assert means.shape == (3, 6)
    assert np.isclose((means**2).sum(), 1.0, atol=1e-4)
    best = np.sort(means.mean(axis=0))
    assert best[-1] - best[-2] >= 0.05


def test_the_real_data_are_those_of_the_examples(root):
    shared = ba.load(root / "examples/flights.toml").problem
    assert [round(m, 12) for row in instance("flights").problem.means for m in row] == [
        round(m, 12) for row in shared.means for m in row
    ]
    packaged, example = root / "src/bestarm/problem/flights.csv", root / "examples/flights.csv"
    assert packaged.read_bytes() == example.read_bytes()


def test_a_scenario_file_can_name_an_instance(tmp_path):
    path = tmp_path / "named.toml"
    path.write_text('method = "fisher"\nseed = 1\n[problem]\ninstance = "zipf"\n')
    assert ba.load(path).problem is instance("zipf").problem
    assert ba.identify(ba.load(path)).verdict.arm == "s1/a1"


def test_a_scenario_asks_the_question_of_its_instance_unless_it_has_one_of_its_own(tmp_path):
    path = tmp_path / "named.toml"
    path.write_text('[problem]\ninstance = "site-effects-5"\n')
    assert (ba.load(path).problem.best, ba.load(path).asked) == ("a1", True)
    found = ba.arena(["fed-elim"], [str(path)], trials=2, workers=1)
    assert (found.grounds[0].question, len(found.scores)) == (OVERALL, 1)
    assert ba.load(path, {"question": "each"}).problem.layout.question.kind == "each"
    path.write_text('question = "anywhere"\n[problem]\ninstance = "site-effects-5"\n')
    assert ba.load(path).problem.best.startswith("s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[problem]\ninstance = "zip"', "zipf"),
        ("[problem]\ninstance = 3", "unknown"),
        ('[problem]\nname = "zipf"', "instance"),
        ('problem = "zipf"', "instance"),
        ('family = "paper"\n[problem]\ninstance = "zipf"', "each describe a problem"),
        ('goal = "min"\n[problem]\ninstance = "zipf"', "max"),
    ],
)
def test_a_scenario_file_that_names_no_instance_is_refused(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ba.InputError, match=said):
        ba.load(path)
