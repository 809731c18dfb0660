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


def bar(mean: float, lower: float, upper: float, flip: bool, width: int = 36) -> str:
    """An interval of [0, 1] drawn in a line of characters, from the least reward to the largest.

    >>> bar(0.5, 0.25, 0.75, flip=False, width=9)
    '··━━●━━··'
    """

    def place(x: float) -> int:
        x = min(max(x, 0.0), 1.0)
        return round((1.0 - x if flip else x) * (width - 1))

    first, last = sorted((place(lower), place(upper)))
    at = place(mean)
    return "".join("●" if i == at else "━" if first <= i <= last else "·" for i in range(width))
