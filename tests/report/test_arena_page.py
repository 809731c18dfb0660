"""The page of an arena shows every number, picture and command, and nothing from elsewhere."""

from __future__ import annotations

import re
from html import unescape

import msgspec
import numpy as np
import pytest
from docs import compare

import bestarm as ba
from bestarm.report.numbers import number
from bestarm.report.page import of_arena, script
from bestarm.report.svg.arena import front, numbered, profile
from bestarm.study.arena.overview import overview

KEPT = ba.Arena.load(compare.DATA)


@pytest.fixture(scope="module")
def html():
    return re.sub("</?span[^>]*>", "", of_arena(KEPT))


def test_the_page_has_only_its_own_script_and_loads_nothing(html):
    assert html.count("<script") == html.count(f"<script>{script()}</script>") == 1
    assert not re.findall(r'(?:src|href)="(?!#|data:)', html)
    assert "default-src &#x27;none&#x27;" in html


def test_every_instance_has_a_table_a_front_and_its_commands(html):
    for ground in KEPT.grounds:
        assert f'id="i-{ground.name}"' in html
        assert f"Pulls against rounds on {ground.name}." in html
    for score in KEPT.scores:
        assert score.command in html


def test_variants_of_ours_are_in_a_table_of_their_own(html):
    overview, variants = html.split("Not quite as in their papers")
    titles = {entry.label: entry.title for entry in KEPT.entries}
    first = overview.split("All instances</h2>")[1]
    assert titles["top-two"] in first
    assert titles["fed-elim"] in first
    assert titles["batched"] not in first
    assert titles["batched"] in variants.split("Performance profiles</h2>")[0]


def test_means_over_instances_are_over_the_solved_ones_as_in_docs_compare_md(html):
    (row,) = (row for row in overview(KEPT, headline=True) if row.entry.label == "tri-bbai")
    assert 0 < len(row.solved) < len(row.scores)
    rounds = row.mean("rounds")
    assert rounds == pytest.approx(np.exp(np.mean([np.log(score.rounds.mean) for score in row.solved])))
    table = html.split("Methods over all instances</caption>")[1].split("</table>")[0]
    line = table.split(f"<bdi>{row.entry.title}</bdi>")[1].split("</tr>")[0]
    assert f'<td class="n">{number(rounds, 3)}</td>' in line
    assert f"| {number(rounds, 3)} |" in compare.overview(KEPT).split(row.entry.title)[1]
    titles = [row.entry.title for row in overview(KEPT, headline=True)]
    assert [unescape(title) for title in re.findall("<bdi>([^<]*)</bdi>", table)] == titles


def test_an_entrant_that_solved_nothing_has_no_means_and_comes_last():
    scores = [
        msgspec.structs.replace(score, undecided=1, over_limit=None) if score.method == "bet" else score
        for score in KEPT.scores
    ]
    last = overview(msgspec.structs.replace(KEPT, scores=tuple(scores)), headline=True)[-1]
    assert (last.entry.label, last.solved, last.over_limit, last.mean("rounds")) == ("bet", [], None, None)


def test_pairs_that_were_not_run_are_listed_with_the_reason(html):
    assert f"{len(KEPT.left_out)} pairs" in html
    assert "needs sites that all have the same options" in html


def test_a_method_that_breaks_delta_is_named_at_the_top():
    broken = sorted({score.method for score in KEPT.scores if score.keeps == "no"})
    assert KEPT.scores[0].method not in broken
    scores = [msgspec.structs.replace(KEPT.scores[0], keeps="no", errors=99), *KEPT.scores[1:]]
    page = of_arena(msgspec.structs.replace(KEPT, scores=tuple(scores)))
    named = re.search("Wrong more often than δ: <strong>([^<]*)</strong>", page)[1].split(", ")
    assert named == ["bet", *broken]


def test_names_are_escaped():
    nasty = "<img src=x>"
    entries = [msgspec.structs.replace(KEPT.entries[0], title=nasty), *KEPT.entries[1:]]
    assert nasty not in of_arena(msgspec.structs.replace(KEPT, entries=tuple(entries)))


def test_pictures_say_in_words_what_they_show():
    names = [ground.name for ground in KEPT.grounds if not ground.shared]
    picture = profile(KEPT, 900, cost="pulls", title="pulls", instances=names)
    assert "bet within 2 times on" in picture
    phone = profile(KEPT, 330, cost="pulls", title="pulls", instances=names)
    for label, place in numbered(KEPT).items():
        if label in KEPT.profile("pulls", names):
            assert f">{place} {label}<" in picture
            assert f">{place} {label[:8]}" in phone, "a line without a name says nothing"
    best = [score.method for score in KEPT.front("paper-5")]
    assert f"On the front: {', '.join(best)}" in front(KEPT, 430, instance="paper-5")
    assert len(set(numbered(KEPT).values())) == len(KEPT.entries)
