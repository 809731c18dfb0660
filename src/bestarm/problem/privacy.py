"""Local differential privacy: every reward is replaced at once by a random 0 or 1.

A reward x in [0, 1] becomes Y = 1 with probability ½ + κ(x − ½), κ = tanh(ε/2). Whatever x was, each answer
has nearly the same probability: the ratio is at most e^ε. Everything that happens later uses Y only. The mean
of Y is an affine function of the mean of x, with one slope for all arms, so their order stays the same.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bestarm.errors import InputError, RewardError
from bestarm.problem.coins import Coined, Flipped
from bestarm.problem.moments import Floats
from bestarm.problem.rewards import Bernoulli, Beta, RewardModel, Table, Unknown

LEAST, MOST = 0.01, 20.0  # the values of ε that can be used
BITS = 53  # of randomness in an answer


def check_privacy(epsilon: object) -> float:
    """The ε of a problem; InputError if it cannot be used."""
    number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not number or not LEAST <= float(epsilon) <= MOST:  # type: ignore[arg-type]
        raise InputError(
            f"privacy = {epsilon!r} can't be used",
            expected=f"one number from {LEAST:g} to {MOST:g} for the whole problem: ε per pull",
        )
    return float(epsilon)  # type: ignore[arg-type]


def without_pairs() -> InputError:
    """The error for privacy with pairs. Errors about pairs name subjects, so it comes before their data."""
    return InputError(
        "privacy is not supported with pairs, whose rewards are all in one file anyway",
        fix="Leave out pair, or privacy",
    )


def slope(epsilon: float) -> float:
    """κ = tanh(ε/2).

    >>> round(slope(2.0), 4)
    0.7616
    """
    return math.tanh(epsilon / 2.0)


def ones(share: float, epsilon: float) -> int:
    """How many of 2^53 equally likely numbers lead to the answer 1, if the reward is `share`.

    The least and the most are rounded inwards, so that the ratio of two answers' probabilities is at most
    e^ε, not nearly so.

    >>> [round(ones(share, 2.0) / 2**53, 4) for share in (0.0, 0.5, 1.0)]
    [0.1192, 0.5, 0.8808]
    """
    whole = 1 << BITS
    least = math.ceil(whole / (1.0 + math.exp(epsilon))) + 1  # the division may round down
    answer = round((0.5 + slope(epsilon) * (share - 0.5)) * whole)
    return min(max(answer, least), whole - least)


def answer(share: float, epsilon: float) -> float:
    """A random answer for a reward in [0, 1], with randomness from the operating system."""
    return float(secrets.randbits(BITS) < ones(share, epsilon))


@dataclass(frozen=True)
class Private(Flipped):
    """Another model's rewards, each replaced by a random answer, for simulations.

    `hidden`: the rewards are data, so neither their mean nor anything else about them may be shown.
    """

    epsilon: float
    hidden: bool = False
    binary: bool = field(default=True, init=False, repr=False)

    @property
    def mean(self) -> float | None:
        """The mean of the answers."""
        return None if self.hidden else self._shifted(self.model.mean)

    @property
    def p(self) -> float | None:
        """The probability of a 1 if answers are independent, so that sums are binomial; else None."""
        known = isinstance(self.model, Bernoulli | Table | Beta)
        return self._shifted(self.model.mean) if known else None

    def _shifted(self, mean: float | None) -> float | None:
        return None if mean is None else 0.5 + slope(self.epsilon) * (mean - 0.5)

    def chances(self, rewards: Floats) -> Floats:
        return 0.5 + slope(self.epsilon) * (rewards - 0.5)

    def _rewards(self, rng: np.random.Generator, m: int, start: int) -> Floats:
        try:
            return super()._rewards(rng, m, start)
        except RewardError as error:
            raise error.unshown() from None

    def spec(self) -> dict[str, Any] | None:
        """The model of the rewards themselves; the ε is that of the problem's scale."""
        return None if self.hidden else self.model.spec()


def private(model: RewardModel, epsilon: float, data: bool) -> RewardModel:
    """The model with random answers. `data`: its rewards were recorded, so nothing may show them."""
    if isinstance(model, Unknown):
        return Unknown(None if model.mean is None else 0.5 + slope(epsilon) * (model.mean - 0.5), True)
    plain = model.model if isinstance(model, Coined) else model
    return Private(plain, epsilon, hidden=data or plain.limit is not None)


def variance(model: RewardModel) -> float | None:
    """The variance of a model's rewards, if it is known.

    >>> variance(Bernoulli(0.5)), variance(Table((0.0, 0.5, 1.0), (1.0, 2.0, 1.0)))
    (0.25, 0.125)
    """
    match model:
        case Bernoulli(p):
            return p * (1 - p)
        case Table(values, _):
            return float(np.average((np.asarray(values) - model.mean) ** 2, weights=model.probabilities))
        case Beta(a, b, low, high):
            return (high - low) ** 2 * a * b / ((a + b) ** 2 * (a + b + 1))
    return None


def price(models: list[RewardModel], epsilon: float) -> float | None:
    """(σ_Y²/σ_X²)/κ²: how many times as many pulls random answers need, for small gaps between these arms.

    Parameters
    ----------
    models : list of RewardModel
        The rewards themselves, such as those of the two best arms.
    epsilon : float
        The privacy of a pull.

    Returns
    -------
    float or None
        The predicted factor, or None if a variance is unknown or 0.

    Examples
    --------
    >>> [round(price([Bernoulli(0.5)], epsilon), 2) for epsilon in (0.5, 1.0, 2.0, 4.0)]
    [16.67, 4.68, 1.72, 1.08]
    """
    before, after, kappa = 0.0, 0.0, slope(epsilon)
    for model in models:
        spread, mean = variance(model), model.mean
        if spread is None or mean is None:
            return None
        before += spread
        after += 0.25 - kappa**2 * (mean - 0.5) ** 2
    return after / before / kappa**2 if before > 0 else None
