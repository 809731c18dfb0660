"""Arrow's columns as cells. Requires PyArrow, which ``bestarm[data]`` installs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bestarm.problem.tables.batches import Cells, Coded, Wanted

if TYPE_CHECKING:
    import pyarrow as pa


def cells_of(batch: pa.RecordBatch, wanted: Wanted) -> Mapping[str, Cells]:
    """The wanted columns, which are the first ones of a batch, in their order."""
    return {name: _cells(batch.column(k), name in wanted.numbers) for k, name in enumerate(wanted.columns)}


def _cells(column: pa.Array, number: bool) -> Cells:
    import pyarrow as pa

    if number and pa.types.is_floating(column.type):
        numbers: Cells = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return numbers
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    distinct = column.dictionary.to_pylist()
    indices = column.indices.fill_null(len(distinct)) if column.null_count else column.indices
    code = indices.to_numpy(zero_copy_only=False)
    return Coded([*distinct, None], code.astype(np.int64, copy=False))
