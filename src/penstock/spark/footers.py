"""What the footer of a Parquet file tells without reading its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def has_nulls(metadata: pq.FileMetaData, column: str) -> bool | None:
    """Whether a column that is not nested has nulls; None where the footer does not tell.

    Writers leave the count out with the other statistics, for example when values are very long.
    """
    answer: bool | None = False
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(i) for i in range(group.num_columns))
        statistics = next(c for c in chunks if c.path_in_schema == column).statistics
        if statistics is None or not statistics.has_null_count:
            answer = None
        elif statistics.null_count:
            return True
    return answer
