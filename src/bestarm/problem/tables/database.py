"""Reads the result of a query: the database counts equal rows.

Requires SQLAlchemy and a driver; ``bestarm[data]`` installs them, with psycopg for PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bestarm.errors import InputError
from bestarm.problem.tables.batches import Batch, Wanted, coded
from bestarm.problem.tables.extras import need

if TYPE_CHECKING:
    import sqlalchemy as sa

ROWS = 2**16  # in a batch


class Query:
    """The result of a query as a table.

    `database` is SQLAlchemy's address, such as ``sqlite:///file.db`` or ``postgresql://user@host/name``. The
    query becomes a subquery, so that nothing but a select is accepted.
    """

    head = ""
    unordered = "a database returns rows in any order"

    def __init__(self, sql: str, database: str) -> None:
        sqlalchemy = need("sqlalchemy", "a database")
        try:
            url = sqlalchemy.engine.make_url(database)
            if url.drivername in ("postgresql", "postgres"):  # the driver that the extra installs
                url = url.set(drivername="postgresql+psycopg")
            self.name = f"the query of {url.set(query={}).render_as_string()}"  # without the password
            _demand_file(url)
            self.engine: sa.Engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
        except (sqlalchemy.exc.ArgumentError, sqlalchemy.exc.NoSuchModuleError) as error:
            raise InputError(
                f"this is not the address of a database: {error}",
                where="--database",
                expected="such as sqlite:///file.db or postgresql://user@host/name",
            ) from None
        except ImportError as error:
            raise InputError(
                f"the driver of this database is not installed: {error}", where=self.name
            ) from None
        self.sql = sql.strip().rstrip(";")
        with self._answer(f"select * from ({self.sql}) t where 1 = 0", stream=False) as (columns, _):
            self.header = columns

    def batches(self, wanted: Wanted, *, merged: bool) -> Iterator[Batch]:
        quote = self.engine.dialect.identifier_preparer.quote_identifier
        listed = ", ".join(quote(column) for column in wanted.columns)
        query = f"select {listed} from ({self.sql}) t"
        if merged:
            query = f"select {listed}, count(*) from ({self.sql}) t group by {listed}"
        with self._answer(query) as (_, blocks):
            for block in blocks:
                columns = list(zip(*block, strict=True))
                count = np.array(columns[-1], dtype=np.int64) if merged else None
                yield Batch(dict(zip(wanted.columns, map(coded, columns), strict=False)), count)

    def place(self, row: int) -> str:
        return ""

    @contextmanager
    def _answer(
        self, query: str, stream: bool = True
    ) -> Iterator[tuple[tuple[str, ...], Iterator[Sequence[Sequence[object]]]]]:
        """The columns of a query and its rows, some at a time; unless `stream`, the driver reads them all."""
        import sqlalchemy as sa

        try:
            with self.engine.connect() as connection:
                options = {"stream_results": stream, "max_row_buffer": ROWS, "no_parameters": True}
                with connection.execution_options(**options).exec_driver_sql(query) as result:
                    yield tuple(result.keys()), iter(result.partitions(ROWS))
        except sa.exc.SQLAlchemyError as error:
            cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            raise InputError(f"the database says: {cause}", where=self.name) from None


def _demand_file(url: sa.URL) -> None:
    """Raise InputError where SQLite would make an empty database instead of reading one."""
    file = url.database or ":memory:"
    named = url.get_backend_name() == "sqlite" and not file.startswith((":memory:", "file:"))
    if named and not Path(file).is_file():
        raise InputError("there is no such database file", where=file, fix="Check the path in --database")
