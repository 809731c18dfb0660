"""Votes and trimming, as pure array functions over leading axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bestarm.protocol.decisions import Floats, Ints, Mask


def tally(votes: Ints, arms: int) -> Ints:
    """The number of votes for each arm; −1 is no vote. The last axis of `votes` is the client.

    >>> tally(np.array([2, 0, 2, -1]), 3).tolist()
    [1, 0, 2]
    """
    return np.asarray((votes[..., None] == np.arange(arms)).sum(axis=-2))


def trim(lower: Floats, upper: Floats, members: Mask, faults: ArrayLike) -> tuple[Floats, Floats]:
    """Robust bounds from the members' intervals, of which `faults` may lie (erratum 14).

    U is the (f+1)-th smallest upper bound, and L is the (f+1)-th largest lower bound. Each is on the safe
    side of some honest bound. The paper trims f values on both sides and uses any of the rest; these bounds
    are the tightest choice. With fewer than f+1 members, nothing is known. The last axis is the client.

    >>> trim(np.array([.1, .2, .9]), np.array([.3, .4, .95]), np.ones(3, dtype=bool), 1)
    (array(0.2), array(0.4))
    """
    faults = np.asarray(faults, dtype=np.int64)
    known = (faults >= 0) & (members.sum(axis=-1) > faults)
    at = np.clip(faults, 0, lower.shape[-1] - 1)[..., None]
    high = np.take_along_axis(np.sort(np.where(members, upper, np.inf), axis=-1), at, axis=-1)[..., 0]
    low = -np.take_along_axis(np.sort(np.where(members, -lower, np.inf), axis=-1), at, axis=-1)[..., 0]
    return np.where(known, low, -np.inf), np.where(known, high, np.inf)
