"""Estimates for the answers of a question: the value of the best option, and the leads over a control.

Their intervals hold at the stopping time. P(an answer is wrong, or its interval misses) is at most δ + α, for
means that do not change; the leads over a control share α.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from bestarm.methods.bet.sites.decisions import Before, Block, ControlRace, Race, Stand
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.protocol.decisions import Ints
from bestarm.protocol.verdict import Answer, Verdict
from bestarm.stats import betting, contrasts
from bestarm.stats.contrasts import Played, PlayedBlock, Sides
from bestarm.stats.pairs import PlayedPairs
from bestarm.stats.sums import Sums


class Closed(NamedTuple):
    """A closed block: its pulls and rewards, the stands and the step of its races, and what its bets use."""

    block: Block
    stands: list[Stand | None]
    step: int
    races: tuple[int, ...]
    before: Before | None  # None: the rewards of all blocks that were closed before


def with_estimates(verdict: Verdict, ledger: Ledger, closed: Sequence[Closed]) -> Verdict:
    """The verdict with the estimated values of its answers, and their intervals, in [0, 1]."""
    if not closed or ledger.course.options.byzantine:
        return verdict  # where sites may lie, nobody knows whose rewards count
    alpha = ledger.course.options.alpha
    if ledger.course.question.control is not None:
        share = alpha / max(len(verdict.answers), 1)
        answers = [_lead(answer, ledger, closed, share) for answer in verdict.answers]
        return replace(verdict, answers=tuple(answers))
    races = zip(verdict.answers, ledger.races, strict=True)
    answers = [_value(answer, race, ledger, closed, alpha) for answer, race in races]
    first = answers[0]
    whole = {} if verdict.arm is None else {"mean": first.value, "interval": first.interval}
    return replace(verdict, answers=tuple(answers), **whole)


def _value(answer: Answer, race: Race, ledger: Ledger, closed: Sequence[Closed], alpha: float) -> Answer:
    """The value of the best option."""
    if answer.option is None:
        return answer
    option = ledger.course.cells.options.index(answer.option)
    cells = race.clients[race.weights[race.clients, option] > 0]
    place = (0, cells, option)
    own, rounded = ledger.sums.at(place), ledger.rounded[place]
    weights = race.weights[cells, option]
    value = float((weights * (own.total + rounded / 2) / own.count).sum())
    if len(cells) == 1:
        ends = betting.intervals(*own.parts, alpha, rounded=rounded)
        return replace(answer, value=value, interval=(float(ends[0][0]), float(ends[1][0])))
    none = np.zeros(len(cells))
    up = _bound(closed, cells, (option, None), Sides(weights, none), alpha / 2, (0.0, 1.0))
    down = _bound(closed, cells, (None, option), Sides(none, weights), alpha / 2, (-1.0, 0.0))
    return replace(answer, value=value, interval=(up, -down))


def _lead(answer: Answer, ledger: Ledger, closed: Sequence[Closed], alpha: float) -> Answer:
    """The lead of an option over the control."""
    (race,) = ledger.races
    assert isinstance(race, ControlRace)
    assert answer.option is not None
    option, clients = ledger.course.cells.options.index(answer.option), race.clients
    if not race.offered[option]:
        return answer
    weights = Sides(race.weights[clients, option], race.weights[clients, race.control])
    total = ledger.sums.total + ledger.rounded / 2
    mean = total[0, clients] / np.maximum(ledger.sums.count[0, clients], 1)
    pair = (option, race.control)
    lead = float((weights.up * mean[:, pair[0]] - weights.down * mean[:, pair[1]]).sum())
    low = _bound(closed, clients, pair, weights, alpha / 2, (-1.0, 1.0))
    high = -_bound(closed, clients, pair[::-1], Sides(weights.down, weights.up), alpha / 2, (-1.0, 1.0))
    # An answer that is right narrows the interval down; together they fail with probability at most δ + α.
    margin = race.margin
    ends = {"better": (margin, 1.0), "worse": (-1.0, -margin), "within": (-margin, margin)}
    least, most = ends.get(answer.answer, (-1.0, 1.0))
    return replace(answer, value=lead, interval=(max(low, least), min(high, most)))


def _bound(
    closed: Sequence[Closed],
    cells: Ints,
    pair: tuple[int | None, int | None],
    weights: Sides,
    alpha: float,
    span: tuple[float, float],
) -> float:
    """A lower bound on the lead of the first option of a pair; without one of them, on ± a value."""
    nothing, blocks = Sums.none(len(cells)), list[PlayedBlock]()
    before = [nothing, nothing]
    for block, *_ in closed:
        b, a = pair
        if block.pairs is not None and b is not None and a is not None:
            first = np.zeros_like(cells)
            met = block.pairs.on(first, cells, np.full_like(cells, b), np.full_like(cells, a))
            if (met.count > 0).all():
                blocks.append(PlayedPairs(met, block.pairs.coins[cells]))
            continue
        rewards = [
            nothing if k is None else view((np.zeros_like(cells), cells, np.full_like(cells, k)))
            for k, view in zip(pair, (block.up, block.down), strict=True)
        ]
        pulls = Sides(rewards[0].count, rewards[1].count)
        if (pulls.up[weights.up > 0] > 0).all() and (pulls.down[weights.down > 0] > 0).all():
            means = Sides(*(contrasts.estimate(sums.count, sums.total) for sums in before))
            blocks.append(Played(means, pulls, *rewards))
        before = [sums.plus(new) for sums, new in zip(before, rewards, strict=True)]
    return float(contrasts.lower_bound(blocks, weights, alpha, span))
