"""Durations as people write them: a number and a unit, such as "24h"."""

from __future__ import annotations

import math

from bestarm.errors import InputError
from bestarm.util.text import shorten

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def in_seconds(text: str, where: str = "") -> float:
    """Seconds, from a text such as "90s", "15m", "24h" or "7d".

    >>> in_seconds("90s"), in_seconds("24h")
    (90.0, 86400.0)
    """
    unit = UNITS.get(text[-1:])
    try:
        number = float(text[:-1]) if unit else math.nan
    except ValueError:
        number = math.nan
    if unit is None or not 0 < number < math.inf:
        raise InputError(
            f"{shorten(text)} is not a duration",
            where=where,
            expected='a number above 0 with a unit: for example "90s", "15m", "24h" or "7d"',
        )
    return number * unit
