"""Numbers as people read them."""

from __future__ import annotations

import math


def short(x: float) -> str:
    """A number in about six characters.

    >>> short(3836000), short(28.3), short(177)
    ('3.836M', '28.3', '177')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= 0.9995 * size:
            return f"{x / size:.4g}{unit}"
    return f"{x:.3g}"


def times(x: float) -> str:
    """How many times as much, with three digits or as a whole number.

    >>> times(1.2345), times(28.31), times(4032.4)
    ('1.23', '28.3', '4,032')
    """
    return f"{x:.3g}" if x < 100 else f"{x:,.0f}"


def count(x: float) -> str:
    """A number of things.

    >>> count(1234), count(3836000), count(math.inf)
    ('1,234', '3.836M', 'unbounded')
    """
    return "unbounded" if math.isinf(x) else f"{x:,.0f}" if x < 1e5 else short(x)
