"""What is fixed about Fed-Bet among liars before the run: the wire, how groups are trimmed, and its price."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from bestarm.methods.bet import decisions as bet_decisions
from bestarm.methods.bet.blocks import Blocks, wire_of
from bestarm.methods.bet.levels import BetWire
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.robust import decisions
from bestarm.problem.layout import Layout
from bestarm.protocol.decisions import Floats, Ints
from bestarm.stats import betting


def robust_wire(layout: Layout, options: Bet) -> BetWire:
    """The facts that both ends know. A liar could claim that it has no rewards left, so nobody is asked."""
    return dataclasses.replace(wire_of(layout, options), finite=False)


class Pool:
    """The clients of each group, h = G − 2f of which count, and the price of each group."""

    def __init__(self, layout: Layout, options: Bet) -> None:
        self.f, self.slope = options.byzantine, Blocks(options).slope
        counts, sizes = layout.arm_counts, [len(group.clients) for group in layout.groups]
        self.own = [slice(a, b) for a, b in itertools.pairwise(itertools.accumulate(counts, initial=0))]
        self.members = [slice(a, b) for a, b in itertools.pairwise(itertools.accumulate(sizes, initial=0))]
        self.group = np.repeat(np.arange(len(counts)), counts)  # of each arm
        self.kept = np.array(sizes) - 2 * self.f
        self.log_price = np.array([decisions.log_price(size, self.f) for size in sizes])

    def ratio(self, c: int | Ints, champion: int | Ints, rivals: Ints) -> Floats:
        """The champion's rewards that count per reward of a rival; the arguments after c are groups."""
        return bet_decisions.pooled_ratio(c, self.kept[champion], self.kept[rivals])

    def stakes(self, n: int) -> int:
        """How many stakes a block after n pulls has."""
        return betting.stake_count(n * int(self.kept.max()), self.slope)
