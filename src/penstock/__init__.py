"""Penstock: durable data pipelines on Spark.

Everything public is importable from here. Names are loaded when they are first used, so that
``import penstock`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.batch.inputs import register
    from penstock.batch.pipeline import (
        Dataset,
        Pipeline,
        Resource,
        Retry,
        arrow_transform,
        everything,
        partition,
        transform,
    )
    from penstock.batch.runner import (
        Auto,
        EveryNStages,
        EveryStage,
        Never,
        Output,
        Report,
        Runner,
        RunnerConfig,
        verify,
    )
    from penstock.config import SparkConfig
    from penstock.core.ranges import Range
    from penstock.errors import FencedError, PenstockError, TerminalError, TransientError
    from penstock.spark.session import start as start_spark
    from penstock.storage import Storage
    from penstock.store import Store, open_store
    from penstock.streams.api.handle import StreamHandle
    from penstock.streams.api.stream import Stream
    from penstock.types.tables import Precision, Table, Timestamp, derived

__version__ = "0.1.0"

_HOMES = {
    "Auto": "penstock.batch.runner",
    "Dataset": "penstock.batch.pipeline",
    "EveryNStages": "penstock.batch.runner",
    "EveryStage": "penstock.batch.runner",
    "FencedError": "penstock.errors",
    "Never": "penstock.batch.runner",
    "Output": "penstock.batch.runner",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.batch.pipeline",
    "Precision": "penstock.types.tables",
    "Range": "penstock.core.ranges",
    "Report": "penstock.batch.runner",
    "Resource": "penstock.batch.pipeline",
    "Retry": "penstock.batch.pipeline",
    "Runner": "penstock.batch.runner",
    "RunnerConfig": "penstock.batch.runner",
    "SparkConfig": "penstock.config",
    "Storage": "penstock.storage",
    "Store": "penstock.store",
    "Stream": "penstock.streams.api.stream",
    "StreamHandle": "penstock.streams.api.handle",
    "Table": "penstock.types.tables",
    "TerminalError": "penstock.errors",
    "Timestamp": "penstock.types.tables",
    "TransientError": "penstock.errors",
    "arrow_transform": "penstock.batch.pipeline",
    "derived": "penstock.types.tables",
    "everything": "penstock.batch.pipeline",
    "open_store": "penstock.store",
    "partition": "penstock.batch.pipeline",
    "register": "penstock.batch.inputs",
    "start_spark": "penstock.spark.session:start",
    "transform": "penstock.batch.pipeline",
    "verify": "penstock.batch.runner",
}

__all__ = [
    "Auto",
    "Dataset",
    "EveryNStages",
    "EveryStage",
    "FencedError",
    "Never",
    "Output",
    "PenstockError",
    "Pipeline",
    "Precision",
    "Range",
    "Report",
    "Resource",
    "Retry",
    "Runner",
    "RunnerConfig",
    "SparkConfig",
    "Storage",
    "Store",
    "Stream",
    "StreamHandle",
    "Table",
    "TerminalError",
    "Timestamp",
    "TransientError",
    "arrow_transform",
    "derived",
    "everything",
    "open_store",
    "partition",
    "register",
    "start_spark",
    "transform",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
