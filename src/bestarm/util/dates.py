"""The day that records and folders are labelled with."""

from __future__ import annotations

import datetime


def today() -> str:
    """The day, in UTC, as 2026-01-31."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
