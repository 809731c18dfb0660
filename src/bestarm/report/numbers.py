"""Numbers as readers want them: in text, and on an axis."""

from __future__ import annotations

import math


def number(x: float | None, digits: int = 4) -> str:
    """Format a number for readers; a dash if there is none.

    >>> [number(x) for x in (1234.2, 0.87123, 3.8e-12, 1e40, None)], number(163.7, 2)
    (['1,234', '0.8712', '3.8e-12', '1e+40', '–'], '164')
    """
    if x is None:
        return "–"
    if math.isinf(x):
        return "∞"
    if abs(x) >= 1e15:
        return f"{x:.{digits}g}"
    if x == int(x):
        return f"{int(x):,}"
    return f"{x:,.0f}" if abs(x) >= 10 ** (digits - 1) else f"{x:.{digits}g}"


def plus_minus(mean: float, interval: tuple[float, float]) -> tuple[str, str]:
    """A mean and half the width of its interval, both rounded to two digits of the latter.

    >>> plus_minus(9.775, (9.295, 10.255)), plus_minus(3606.2, (3066.0, 4146.4))
    (('9.78', '0.48'), ('3,610', '540'))
    >>> plus_minus(-0.0001, (-0.0301, 0.0299))
    ('0.000', '0.030')
    """
    half = (interval[1] - interval[0]) / 2
    places = 0 if half <= 0 else 1 - math.floor(math.log10(half))
    told, wide = (f"{round(value, places) + 0.0:,.{max(places, 0)}f}" for value in (mean, half))  # never "-0"
    return told, wide


def beside(x: float) -> str:
    """Format a number that stands beside its mark in a picture.

    >>> [beside(x) for x in (9.775, 3699, 43841, 1234567)]
    ['9.775', '3,699', '43,841', '1.23M']
    """
    return number(x) if abs(x) < 1e6 else short(float(f"{x:.3g}"))


def short(x: float) -> str:
    """Format a number for an axis.

    >>> [short(x) for x in (0.25, 1000, 2500000)]
    ['0.25', '1k', '2.5M']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size:
            return f"{x / size:.4g}{unit}"
    return f"{x:.4g}"
