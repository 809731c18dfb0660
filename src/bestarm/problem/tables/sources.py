"""Opens a table: a file, a folder or pattern of files, a frame, or a query."""

from __future__ import annotations

import os
from pathlib import Path

from bestarm.errors import InputError
from bestarm.problem.tables.batches import Table
from bestarm.problem.tables.text_file import TextFile


def open_table(
    source: object, *, sql: str | None = None, database: str | None = None, name: str = ""
) -> Table:
    """The table of a source; see ``read_rows``. `name` is what errors call it."""
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"expected a path, got {type(source).__name__}")
    path = Path(source)
    if not path.is_file():
        raise InputError("there is no such file", where=name or str(path))
    return TextFile(path, name)
