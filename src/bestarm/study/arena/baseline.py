"""``Baseline``: a method of the literature that only a kernel simulates, and the list of those that there
are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.instances import ANYWHERE, OVERALL
from bestarm.study.arena.bandit import Bandit, Outcome
from bestarm.util.text import shorten

BaselineKernel = Callable[[Bandit, float, np.random.Generator, int, int], Outcome]
ANY_LAYOUT = ""


def _everything(bandit: Bandit) -> str:
    return ANY_LAYOUT


@dataclass(frozen=True)
class Baseline:
    """A method that takes part in the arena without machines.

    Parameters
    ----------
    name, title : str
        The name on the command line, and the name for readers.
    kernel : callable
        ``kernel(bandit, delta, rng, trials, most)`` simulates that many trials and returns their ``Outcome``.
        A trial that has made `most` pulls ends undecided. It is not called for a single option, which is the
        answer without a pull.
    proof : str
        What is proved about the error probability, in a sentence with its source; empty if nothing is.
    source : str
        Where the method comes from.
    coins : bool
        Whether rewards other than 0/1 are turned into coins of the same mean first.
    questions : tuple of str
        The questions that it answers.
    refuse : callable
        ``refuse(bandit)``: why it can't run on this problem; empty if it can.
    headline : bool
        False if a formula is from memory, since its source could not be read, or the method is a variant
        of ours. A proved constant that is smaller than the paper's, in the method's favour, is no variant.
    """

    name: str
    title: str
    kernel: BaselineKernel
    proof: str = ""
    source: str = ""
    coins: bool = False
    questions: tuple[str, ...] = (ANYWHERE, OVERALL)
    refuse: Callable[[Bandit], str] = field(default=_everything)
    headline: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[^\s,:]+", self.name):
            raise InputError(
                f"name = {shorten(self.name)} can't be used",
                where="Baseline",
                expected="a word without commas and colons, which separate names on the command line",
            )
        if not callable(self.kernel):
            raise InputError(
                f"kernel = {shorten(self.kernel)} can't be called", where=f'baseline "{self.name}"'
            )
