"""What the footer of a Parquet file tells without reading its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def may_have_nulls(metadata: pq.FileMetaData, column: str) -> bool:
    """Whether a column that is not nested has nulls, or could: who wrote the file need not count them."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(i) for i in range(group.num_columns))
        chunk = next(c for c in chunks if c.path_in_schema == column)
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count:
            return True
    return False
