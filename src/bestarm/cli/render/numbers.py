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


def count(x: float) -> str:
    """A number of things.

    >>> count(1234), count(3836000), count(math.inf)
    ('1,234', '3.836M', 'unbounded')
    """
    return "unbounded" if math.isinf(x) else f"{x:,.0f}" if x < 1e5 else short(x)
