"""How a lying client alters a method's messages, in simulations.

An attack decides *what* a liar claims (another arm, another mean, another count). Only the method knows *how*
its messages encode such a claim. A method that can be attacked therefore has a ``Lies`` in its ``Method``:
functions that rewrite an honest message with the answers of a ``Liar``. An attack that the messages of a
method cannot express is refused before the run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

# The methods of ``Liar`` that an attack may override.
CLAIMS = ("arm", "mean", "count", "interval", "verdict")


class Liar(Protocol):
    """One lying client, as the functions of ``Lies`` see it.

    ``machine`` is the honest client inside it, ``turn`` is the number of messages that this client has sent
    so far, and ``subject`` is the index of the group that the message is about. A method whose clients also
    report on other groups sets ``subject`` before it asks for claims.
    """

    machine: Any  # the method's own client
    subject: int
    turn: int

    def arm(self, arm: int) -> int:
        """The arm that it claims is best; `arm` is the honest answer."""

    def mean(self, arm: int, mean: float) -> float:
        """The mean that it claims for an arm."""

    def count(self, count: int) -> int:
        """The number of pulls that it claims."""

    def interval(self, lower: float, upper: float) -> tuple[float, float]:
        """The bounds on a mean that it claims."""

    def verdict(self, group: int, arm: int) -> tuple[int, int]:
        """The winner that it announces: a group and an arm."""


def trimmed_mean(machine: Any, means: Sequence[float], byzantine: int) -> float:
    """The mean of the values without the `byzantine` smallest and the `byzantine` largest ones.

    >>> trimmed_mean(None, [0.0, 0.5, 0.6, 1.0], 1)
    0.55
    """
    if len(means) <= 2 * byzantine:
        return means[-1]
    return float(np.sort(np.asarray(means))[byzantine : len(means) - byzantine].mean())


def one_arm_mean(machine: Any, arm: int) -> float | None:
    """The empirical mean of an arm, for a client with attributes `arm`, `sum` and `count`; else None."""
    return machine.sum / machine.count if machine.count and machine.arm == arm else None


@dataclass(frozen=True, kw_only=True)
class Lies:
    """How a liar alters the messages of one method.

    Parameters
    ----------
    claims : callable
        ``claims(options)``: which of ``CLAIMS`` the method's messages contain. An attack that lies about none
        of them is refused.
    alter : callable
        ``alter(liar, payload)`` rewrites a message with the liar's answers. It returns None for a message
        that claims nothing (such as a stop), which is then sent unchanged.
    observed : callable
        ``observed(machine, arm)``: the empirical mean that a client has of an arm, or None.
    early : callable, optional
        ``early(machine)``: a first message, sent before any pull, that claims that the first arm always pays.
    forge : callable, optional
        ``forge(machine, best)``: messages, sent before any pull, with claims for all groups; `best` is the
        group and the index of the best arm. Without it a forger sends ``early``.
    tell : callable, optional
        ``tell(machine, place, payload)``: for peers, a different message for each neighbour.
    least : callable
        ``least(machine)``: the smallest count that the server accepts, or None if messages have no count.
    reals : callable
        ``reals(machine)``: whether messages contain means as floating-point numbers, which can be NaN.
    statistic : callable
        ``statistic(machine, means, byzantine)``: the number that decides about an arm if the clients of its
        group report these means. The attack "adaptive" moves it as far as possible.
    """

    claims: Callable[[Any], frozenset[str]]  # Any: the method's own options; below, its own client
    alter: Callable[[Liar, bytes], bytes | None]
    observed: Callable[[Any, int], float | None] = one_arm_mean
    early: Callable[[Any], bytes] | None = None
    forge: Callable[[Any, tuple[int, int]], list[bytes]] | None = None
    tell: Callable[[Any, int, bytes], bytes] | None = None
    least: Callable[[Any], int | None] = lambda machine: None
    reals: Callable[[Any], bool] = lambda machine: False
    statistic: Callable[[Any, Sequence[float], int], float] = trimmed_mean
