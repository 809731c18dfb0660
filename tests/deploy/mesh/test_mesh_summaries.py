"""Summaries in a mesh: each node's reaches all, changes no verdict, and is as hard to forge as a report."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from test_mesh import Folds, fast_disk, make, small  # noqa: F401

import bestarm as ba
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.mesh.files import RECORD
from bestarm.deploy.mesh.node import MAX_SUMMARY, REPORT, SUMMARY, Node
from bestarm.deploy.mesh.verification import verify
from bestarm.graphs.generators import circulant
from bestarm.protocol.summaries import Summary
from bestarm.records.answer import answer_card
from bestarm.report.page import read

pytestmark = pytest.mark.usefixtures("fast_disk")


def settle(folds):
    """Deliver what is under way after all nodes are done."""
    for _ in range(10):
        for i in range(len(folds.nodes)):
            folds.step(i)


@pytest.fixture
def folds(tmp_path):
    """A finished mesh in which not every node hears every other one."""
    case = small(clients=5, graph=circulant(10, 6))
    make(dataclasses.replace(case, name="trial"), tmp_path / "m")
    made = Folds(tmp_path / "m", case)
    made.open()
    yield made
    made.close()


def summary_of(node, content, number=0):
    place = node.place
    return REPORT + Envelope.sign(place.key, place.setup.run, place.name, SUMMARY, number, content).encode()


def test_each_node_s_record_has_the_summaries_of_all_and_the_name_of_the_run(folds):
    folds.go()
    settle(folds)
    for node in folds.nodes:
        record = node.record()
        assert sorted(record.summaries) == sorted(folds.names)
        assert record.name == "trial"
        assert record.date
        size = sum(summary.encode()[1] for summary in record.summaries.values())
        assert record.bits.after == size * len(node.place.heard)
        own = record.summaries[node.place.name]
        assert sum(own.count) == node.machine.pulls == record.pulls.total
        card = answer_card(record)
        assert [row.name for row in card.options] == ["north/a", "south/c", "north/b", "south/d"]
        assert all(row.mean is not None for row in card.options)
        assert ba.verify(record).ok
        record.save(node.place.folder / RECORD)
        assert verify(node.place.folder).ok


def test_a_restart_sends_the_same_summary_and_keeps_those_of_the_others(folds):
    folds.go()
    settle(folds)
    node = folds.nodes[0]
    before, record = [data for _, data in node.outgoing], node.record()
    node.journal.close()
    folds.nodes[0] = again = Node.open(node.place)
    assert [data for _, data in again.outgoing] == before
    assert again.record() == record


LIE = Summary((9, 9), (9.0, 9.0), (9.0, 9.0))


def finish_without(folds, *messages):
    """Finish the run without its last node, of which the others get only these messages."""
    liar = folds.nodes.pop()
    for k, hearer in enumerate(liar.place.heard):
        node = folds.nodes[folds.names.index(hearer.name)]
        node.take([(liar.place.name, summary_of(liar, messages[k % len(messages)]))])
    folds.go()
    settle(folds)
    found = [(node, node.record()) for node in folds.nodes]
    folds.nodes.append(liar)
    assert {record.verdict.arm for _, record in found} == {"north/a"}
    assert all(ba.verify(record).ok for _, record in found)
    return liar.place.name, found


def test_a_lie_is_attributed_to_its_author_and_trimmed(folds):
    liar, found = finish_without(folds, LIE.encode()[0])
    for _, record in found:
        assert record.summaries[liar] == LIE
        card = answer_card(record)
        assert card.best == "north/a"
        worst = next(row for row in card.options if row.name == "south/d")
        assert worst.mean < 0.1, "one of five claims a mean of 1"


def test_a_summary_of_impossible_sums_is_refused_by_all(folds):
    liar, found = finish_without(folds, b"\xff" * 30)
    for _, record in found:
        assert [row.client for row in record.refused_summaries] == [liar]
        assert liar not in record.summaries
        assert any("Summaries refused" in alarm for alarm in answer_card(record).alarms)


def test_two_different_summaries_are_evidence_that_reaches_all(folds):
    liar, found = finish_without(folds, LIE.encode()[0], b"\xff" * 30)
    for node, record in found:
        assert node.suspects() == {liar: "signed two different reports number 0 on all its arms"}
        assert liar not in record.summaries
        assert [evidence["accused"] for evidence in record.evidence] == [liar]


def test_a_second_a_long_and_an_unwanted_summary_are_not_stored(folds, tmp_path):
    node, other = folds.nodes[:2]
    events = len(node.journal)
    node.take([(other.place.name, summary_of(other, LIE.encode()[0], number=1))])
    node.take([(other.place.name, summary_of(other, bytes(MAX_SUMMARY)))])
    assert sorted(why for _, why in node.refused) == ["early", "malformed"]
    case = small()
    keeping = dataclasses.replace(case, options={**case.options, "summaries": False})
    make(keeping, tmp_path / "k")
    kept = Folds(tmp_path / "k", keeping)
    kept.open()
    first, second = kept.nodes[:2]
    first.take([(second.place.name, summary_of(second, LIE.encode()[0]))])
    assert list(first.refused) == [(second.place.name, "label")]
    kept.go()
    record = first.record()
    assert (record.summaries, record.bits.after) == (None, 0)
    assert answer_card(record).kept == "kept at the site"
    assert len(node.journal) == events
    kept.close()


def test_verification_finds_an_altered_summary(folds):
    folds.go()
    settle(folds)
    node = folds.nodes[0]
    record = node.record()
    forged = {**record.summaries, folds.names[1]: LIE}
    altered = msgspec.structs.replace(record, summaries=forged).sealed()
    assert not ba.verify(altered).ok
    bits = msgspec.structs.replace(record.bits, after=record.bits.after + 1)
    assert not ba.verify(msgspec.structs.replace(record, bits=bits).sealed()).ok
    altered.save(node.place.folder / RECORD)
    assert not verify(node.place.folder).ok


def test_the_page_of_a_node_has_the_answer_card_and_every_option(folds):
    folds.go()
    settle(folds)
    for node in folds.nodes:
        node.record().save(node.place.folder / RECORD)
    folds.nodes[0].journal.close()
    html = read(folds.nodes[0].place.folder)
    folds.nodes[0] = Node.open(folds.nodes[0].place)
    assert f"trial · {folds.nodes[0].place.setup.date} · method p2p" in html
    for option in ("north/a", "south/c", "north/b", "south/d"):
        assert f"<bdi>{option}</bdi>" in html
    assert 'id="leaderboard"' in html
