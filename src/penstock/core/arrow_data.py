"""Arrow data that somebody else has made: from a file, or from a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

_Rows = TypeVar("_Rows", "pa.RecordBatch", "pa.Table")


def sound(batch: _Rows) -> _Rows:
    """The batch or table, if its buffers are what they claim to be; raises `pyarrow.ArrowInvalid`.

    Arrow's readers believe offsets and lengths. One that points elsewhere shows other memory of the process,
    or ends the process. Looking at all of them takes less than a second for a gigabyte.
    """
    batch.validate(full=True)
    return batch
