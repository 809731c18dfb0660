"""What all participants know: the options, who plays them, and how the rounds go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm.errors import InputError
from bestarm.methods.rivals.options import Rival
from bestarm.problem.layout import Layout
from bestarm.protocol.decisions import Floats

MOST = 1 << 36  # pulls of an option by one player


class Course:
    """The options that all players share, the rounds, and the answer to the question.

    `place` has, for each client, the option of each of its arms. A question about all sites (`over_all`) is
    answered with an option; else there is one group, and the answer is one of its arms.
    """

    def __init__(self, layout: Layout, options: Rival) -> None:
        self.layout, self.options = layout, options
        self.names = layout.groups[0].arms
        self.number, self.players = len(self.names), len(layout.clients)
        self.over_all = layout.question.kind != "anywhere"
        groups = [layout.groups[layout.group_of[name]] for name in layout.clients]
        self.place = [[self.names.index(name) for name in group.arms] for group in groups]
        self.binary = [group.binary for group in groups]
        self.stoppable = options.budget is not None or layout.finite
        self._rounds = options.schedule(self.players, self.number)
        self._known: list[tuple[int, float]] = []

    def round(self, r: int) -> tuple[int, float]:
        """n_r, and the margin of round r."""
        while len(self._known) <= r:
            self._known.append(next(self._rounds))
        return self._known[r]

    def size(self, r: int) -> int:
        """n_r; 0 before the first round."""
        return self.round(r)[0] if r >= 0 else 0

    def name(self, option: int) -> str:
        """The answer that names this option."""
        return self.names[option] if self.over_all else self.layout.arm(0, option)

    def values(self, means: Sequence[Sequence[float]]) -> Floats:
        """The true value of each option: the average over the players, from the means by group and arm."""
        total = np.zeros(self.number)
        for name, place in zip(self.layout.clients, self.place, strict=True):
            total[place] += means[self.layout.group_of[name]]
        return np.asarray(total / self.players)


def refuse(layout: Layout, options: Rival) -> None:
    """Raise InputError unless all players have the same options and count alike."""
    if options.byzantine:
        raise InputError("this method trusts every client", fix='Use method = "bet" or method = "fisher"')
    if options.epsilon > 0.0:
        raise InputError(f"epsilon = {options.epsilon:g} can't be used with this method", expected="0")
    question = layout.question
    if question.kind == "anywhere" and len(layout.groups) > 1:
        raise InputError(
            "needs sites that all have the same options",
            expected='one group, or question = "overall"',
        )
    if question.also or question.missing_options != "refuse" or layout.paired:
        raise InputError('this method answers question = "overall" without further keys')
    if question.kind != "anywhere":
        weights = question.weights or (1.0,) * len(layout.groups)
        shares = {w / len(group.clients) for w, group in zip(weights, layout.groups, strict=True)}
        if max(shares) > min(shares) * (1 + 1e-9):
            raise InputError(
                "this method takes the plain average over all clients",
                expected="equal weights, and equally many clients at each site",
                fix='Use method = "bet"',
            )
