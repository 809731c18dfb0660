"""Summaries: one encoding each, one per client, and nothing impossible is accepted."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bestarm as ba
from bestarm.protocol.codec import Malformed
from bestarm.protocol.events import Pull, Pulled
from bestarm.protocol.summaries import Summary, SummaryBook, Tally, longest_summary

LAYOUT = ba.Problem.bernoulli([[0.9, 0.2], [0.5]], clients=2).layout


@st.composite
def summaries(draw):
    rows = draw(st.lists(st.tuples(st.integers(0, 2**40), st.floats(0, 1), st.floats(0, 1)), min_size=1))
    count = tuple(n for n, _, _ in rows)
    if draw(st.booleans()):
        ones = tuple(float(int(n * share)) for n, share, _ in rows)
        return Summary(count, ones, ones)
    total = tuple(n * share for n, share, _ in rows)
    least = [s * s / n if n else 0.0 for n, s in zip(count, total, strict=True)]
    squares = tuple(q + x * (s - q) for q, s, (_, _, x) in zip(least, total, rows, strict=True))
    return Summary(count, total, squares if draw(st.booleans()) else None)


@given(summaries())
def test_a_summary_survives_its_encoding_and_is_never_longer_than_the_limit(summary):
    data, bits = summary.encode()
    found, same = Summary.decode(data, len(summary.count), binary=False)
    assert (found, same) == (summary, bits)
    assert len(data) <= longest_summary(len(summary.count))


@given(st.binary(max_size=60), st.integers(1, 4), st.booleans())
def test_bytes_are_a_summary_with_this_encoding_or_malformed(data, arms, binary):
    try:
        found, _ = Summary.decode(data, arms, binary)
    except Malformed:
        return
    assert found.encode()[0] == data


@pytest.mark.parametrize(
    "summary",
    [
        Summary((3,), (3.5,), (3.5,)),
        Summary((3,), (-0.5,), (0.0,)),
        Summary((4,), (2.0,), (0.5,)),
        Summary((4,), (2.0,), (2.5,)),
        Summary((4,), (float("nan"),), None),
    ],
    ids=["sum above the pulls", "negative", "squares too small", "squares too large", "not a number"],
)
def test_sums_that_no_rewards_have_are_refused(summary):
    with pytest.raises(Malformed):
        Summary.decode(summary.encode()[0], 1, binary=False)


def test_each_client_counts_once_and_every_refusal_is_counted_with_its_size():
    book = SummaryBook(LAYOUT, refuses={"g2-1"})
    good = Summary((8, 4), (6.0, 1.0), (6.0, 1.0)).encode()[0]
    assert book.take("g1-1", good)
    assert not book.take("g1-1", good)
    assert not book.take("g1-2", b"\xff" * 4)
    assert not book.take("g1-2", bytes(longest_summary(2) + 1))
    assert not book.take("g2-1", Summary((3,), (1.0,), (1.0,)).encode()[0])
    assert not book.take("g2-2", Summary((3,), (1.5,), (1.0,)).encode()[0]), "its rewards are 0/1"
    assert list(book.accepted) == ["g1-1"]
    assert [row.client for row in book.refused] == ["g1-1", "g1-2", "g1-2", "g2-1", "g2-2"]
    assert "second" in book.refused[0].reason


def test_a_tally_adds_up_shares_and_forgets_squares_that_it_was_not_told():
    tally = Tally(2, binary=False)
    first = Pull((0, 1), 2, shares=(3, 1), moments=True)
    tally.add(first, Pulled((2.5, 0.5), 2, (2.25, 0.25), (0, 0), (1, 1)))
    assert tally.summary() == Summary((6, 2), (2.5, 0.5), (2.25, 0.25))
    tally.add(Pull((1,), 4), Pulled((2.0,), 4))
    assert tally.summary() == Summary((6, 6), (2.5, 2.5), None)


METHODS = ("bet", "fisher", "fed-sel")


@pytest.mark.parametrize("method", METHODS)
def test_summaries_change_nothing_but_the_bits_after_the_verdict(method):
    problem = ba.Problem.bernoulli([[0.9, 0.2], [0.6, 0.1]])
    own = ba.identify(problem, method, seed=4, delta=0.1)
    kept = ba.identify(problem, method, seed=4, delta=0.1, summaries=False)
    assert kept.summaries is None
    assert own.summaries is not None
    assert set(own.summaries) == set(problem.layout.clients)
    assert own.verdict == kept.verdict
    assert (own.bits.up, own.bits.down) == (kept.bits.up, kept.bits.down)
    assert own.bits.after > kept.bits.after
    assert all(sum(s.count) == own.pulls.by_client[name] for name, s in own.summaries.items())
    assert ba.verify(own, replay=True).ok
    assert ba.verify(kept, replay=True).ok


@pytest.mark.parametrize("attack", ["random-bytes", "silent", "promote"])
def test_a_liar_s_summary_is_refused_or_counts_as_its_own_and_never_changes_the_verdict(attack):
    problem = ba.Problem.bernoulli([[0.95, 0.05], [0.8, 0.05]], clients=3)
    liars = [ba.Adversary("g2", attack, 1)]
    keys = {"byzantine": 1, "delta": 0.1, "seed": 5, "adversaries": liars}
    record = ba.identify(problem, "fisher", **keys)
    kept = ba.identify(problem, "fisher", summaries=False, **keys)
    assert record.verdict == kept.verdict
    assert ba.verify(record, replay=True).ok
    liar = record.adversaries[0]["clients"][0]
    lied = record.summaries.get(liar)
    if attack == "promote":
        assert lied is not None
        assert lied.total[0] == lied.count[0]
    else:
        assert lied is None


def test_a_record_with_a_forged_summary_does_not_pass():
    record = ba.identify(ba.Problem.bernoulli([[0.9, 0.2], [0.6]]), seed=4)
    name = "g1-1"
    own = record.summaries[name]
    for forged in (
        Summary((own.count[0] + 1, own.count[1]), own.total, own.squares),
        Summary(own.count, (own.count[0] + 1.0, own.total[1]), (own.count[0] + 1.0, own.total[1])),
    ):
        changed = {**record.summaries, name: forged}
        forged_record = msgspec.structs.replace(record, summaries=changed).sealed()
        assert not ba.verify(forged_record).ok
