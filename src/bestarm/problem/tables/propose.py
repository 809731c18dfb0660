"""Proposes what the columns of a table are, from their names and contents."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.problem.tables.columns import Columns


@dataclass(frozen=True)
class Reading:
    """One way to read a table: which column is what, and the reasons for it."""

    columns: Columns
    reasons: tuple[str, ...]


def propose(
    source: object,
    *,
    sql: str | None = None,
    database: str | None = None,
    given: dict[str, str] | None = None,
) -> list[Reading]:
    """Every plausible reading of a table, best first; `given` are the columns that the user named."""
    raise NotImplementedError
