"""What `make test` leaves out and `make test-all` runs: slow values of a parameter, and most examples of a
property that is checked on hundreds of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> list[Any]:
    """Each of these values, marked as slow; a tuple holds values of several parameters."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]


def slow_but(fast: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """All values, marked as slow except those that are in `fast`."""
    kept = list(fast)
    return [value if value in kept else slow(value)[0] for value in values]


fast = False  # set by conftest.py: whether slow tests are left out of this run


def examples(whole: int) -> int:
    """The number of Hypothesis examples: `whole`, or a tenth of it when slow tests are skipped."""
    return max(10, whole // 10) if fast else whole
