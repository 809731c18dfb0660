"""Recognises copies of recorded rewards.

Rewards that are counted twice break δ. Two recordings with the same values are copies of each other if the
values have so much entropy that independent draws would not repeat them: 64 fair coins do, three zeros don't.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

TELLING_BITS = 32.0  # independent draws repeat such values with probability 2^-32


def entropy(counts: Iterable[int]) -> float:
    """The empirical entropy in bits of a sequence in which each value occurs so many times.

    >>> entropy([32, 32]), entropy([3])
    (64.0, 0.0)
    """
    counts = list(counts)
    total = sum(counts)
    return sum(n * math.log2(total / n) for n in counts)


def copies(recordings: Sequence[tuple[float, ...]]) -> int:
    """How many recordings begin with all the values of the shortest of them, and not by chance.

    >>> reals = (0.1, 0.7, 0.3, 0.9, 0.2, 0.8, 0.4, 0.6, 0.5, 0.0)
    >>> copies([reals, (0.5, *reals), (*reals, 1.0)]), copies([(0.0, 1.0, 1.0)] * 3)
    (2, 1)
    """
    most, times = 0, 0
    start: tuple[float, ...] | None = None
    for values in sorted(recordings):  # all that begin with `start` follow it directly
        same = start is not None and values[: len(start)] == start
        if same and entropy(Counter(start).values()) >= TELLING_BITS:
            times += 1
        else:
            start, times = values, 1
        most = max(most, times)
    return most
