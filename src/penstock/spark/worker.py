"""What the Python processes that run Spark's tasks need."""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Keep what this worker has loaded out of garbage collection, from its first task on.

    PySpark collects garbage after each task. To look through all modules takes longer than a small task.
    """
    global _settled  # noqa: PLW0603
    from pyspark import TaskContext

    if not _settled and TaskContext.get() is not None:
        _settled = True
        gc.freeze()
