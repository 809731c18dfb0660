"""Rows of one subject: they are aligned over the options, and errors name the subject and the fix."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import bestarm as ba
from bestarm.errors import InputError
from bestarm.problem.layout import Group, Layout

KEYS = {"group": "site", "arm": "option", "reward": "score", "pair": "subject"}
ROWS = [
    ("n", "A", "p1", 0), ("n", "A", "p2", 1), ("n", "B", "p2", 0.25), ("n", "B", "p1", 0.5),
    ("s", "B", "q1", 1), ("s", "A", "q2", 0), ("s", "A", "q1", 0.75), ("s", "B", "q2", 0.5),
]  # fmt: skip


def table(tmp_path, rows):
    path = tmp_path / "d.csv"
    path.write_text("site,option,subject,score\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return str(path)


def refused(tmp_path, lines, **keys):
    with pytest.raises(InputError) as caught:
        ba.Problem.from_csv(table(tmp_path, lines), **{**KEYS, **keys}).asking("overall")
    return str(caught.value)


def test_the_ith_reward_of_every_option_is_that_of_the_same_subject(tmp_path):
    problem = ba.Problem.from_csv(table(tmp_path, ROWS), **KEYS)
    assert problem.layout.paired
    assert [[model.values for model in row] for row in problem.rewards] == [
        [(0.0, 1.0), (0.5, 0.25)],
        [(1.0, 0.5), (0.75, 0.0)],  # B comes first in the file
    ]
    assert "Rows of the same subject are compared" in str(problem.data)
    again = ba.Problem.from_dict(json.loads(json.dumps(problem.asking("overall").to_dict())))
    assert again == problem.asking("overall")
    assert again.layout.paired


def test_a_subject_without_a_reward_is_named_with_the_number_of_others(tmp_path):
    more = [("n", "A", f"x{i}", 1) for i in range(3)]
    text = refused(tmp_path, ROWS + more)
    assert 'site "n"' in text
    assert "subject 'x0' has no reward of option \"B\" (2 more subjects like it)" in text
    assert "Add the missing rows, or leave these subjects out" in text


def test_a_subject_with_two_rewards_of_an_option_is_named(tmp_path):
    text = refused(tmp_path, [*ROWS, ("s", "A", "q2", 1)])
    assert "subject 'q2' has several rewards of option \"A\"" in text
    assert "Average" in text


def test_a_subject_of_two_sites_is_refused_with_the_reason_and_the_fix(tmp_path):
    text = refused(tmp_path, [(*row[:2], row[2].replace("q1", "p1"), row[3]) for row in ROWS])
    assert 'subject \'p1\' appears at sites "n" and "s"' in text
    assert "sites must be independent" in text
    assert "different names" in text
    assert "average the rewards of each subject over the sites first" in text


def test_pairs_need_rows_that_are_played_once_a_column_and_names(tmp_path):
    assert 'rows = "once"' in refused(tmp_path, ROWS, rows="resample")
    assert "the name of a column" in refused(tmp_path, ROWS, pair=3)
    assert 'there is no column "who"' in refused(tmp_path, ROWS, pair="who")
    assert 'column "subject" is empty' in refused(tmp_path, [*ROWS, ("s", "A", "", 1)])


def test_rare_options_are_left_out_before_subjects_are_checked(tmp_path):
    path = table(tmp_path, [*ROWS, ("n", "C", "p1", 1)])
    problem = ba.Problem.from_csv(path, **KEYS, min_count=2)
    assert [group.arms for group in problem.layout.groups] == [("A", "B"), ("B", "A")]


def test_subjects_of_two_clients_of_a_site_are_kept_apart(tmp_path):
    rows = [(site, option, subject, score, f"{site}{subject[1]}") for site, option, subject, score in ROWS]
    path = tmp_path / "c.csv"
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    path.write_text("site,option,subject,score,nurse\n" + text)
    problem = ba.Problem.from_csv(str(path), **KEYS, client="nurse")
    assert problem.layout.clients == ("n1", "n2", "s1", "s2")
    path.write_text("site,option,subject,score,nurse\n" + text + "n,A,p1,1,n2\nn,B,p1,1,n2\n")
    with pytest.raises(InputError, match='clients "n1" and "n2" of site "n"'):
        ba.Problem.from_csv(str(path), **KEYS, client="nurse")


def test_questions_that_pairs_can_t_answer_are_refused(tmp_path):
    problem = ba.Problem.from_csv(table(tmp_path, ROWS), **KEYS)
    for method in ("bet", "fisher"):
        with pytest.raises(InputError, match="pair does not belong to question"):
            ba.identify(problem, method)
    with pytest.raises(InputError, match="with pairs"):
        problem.asking("overall", also=["each"])
    uneven = [*ROWS, ("n", "C", "p1", 1), ("n", "C", "p2", 1)]
    problem = ba.Problem.from_csv(table(tmp_path, uneven), **KEYS)
    with pytest.raises(InputError, match="the same options at every site"):
        problem.asking("overall", missing_options="average")
    assert problem.asking("each").layout.paired
    with pytest.raises(InputError, match="independently, which pairs are not"):
        ba.plan(problem.asking("each"))


def test_a_paired_layout_needs_recordings_of_equal_length():
    groups = (Group("g", ("a", "b"), ("c",)),)
    with pytest.raises(InputError, match="recorded rewards"):
        Layout(groups, paired=True)
    for other in (ba.Recording((0.0,)), ba.Problem.bernoulli([[0.5]]).rewards[0][0]):
        with pytest.raises(InputError, match="recordings of the same subjects"):
            ba.Problem(Layout(groups, finite=True, paired=True), ((ba.Recording((0.0, 1.0)), other),))


def test_the_command_refuses_bad_pairs_with_exit_code_2_and_leaves_nothing(tmp_path):
    table(tmp_path, ROWS[:-1])
    data = 'csv = "d.csv"\ngroup = "site"\narm = "option"\nreward = "score"\npair = "subject"\n'
    (tmp_path / "s.toml").write_text(f'question = "overall"\n[data]\n{data}')
    done = subprocess.run(
        [sys.executable, "-m", "bestarm.cli", "run", "s.toml", "--out", "r.json", "--journal", "r.db"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "subject 'q2' has no reward of option \"B\"" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "s.toml"]


def test_a_federation_refuses_pairs_before_it_makes_a_folder(tmp_path):
    from bestarm.deploy.federation import files
    from bestarm.simulate.setup import Scenario

    problem = ba.Problem.from_csv(table(tmp_path, ROWS), **KEYS).asking("overall")
    with pytest.raises(InputError, match="pairs are for recorded data in one process"):
        files.init(Scenario(problem), tmp_path / "fed")
    assert not (tmp_path / "fed").exists()
