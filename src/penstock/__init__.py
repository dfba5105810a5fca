"""Penstock: durable data pipelines on Spark.

Everything public is importable from here. Names are loaded when they are first used, so that
``import penstock`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config import SparkConfig
    from penstock.errors import FencedError, PenstockError, TerminalError, TransientError
    from penstock.inputs import register
    from penstock.pipeline import Dataset, Pipeline, Resource, Retry, arrow_transform, transform
    from penstock.ranges import Range
    from penstock.runner import EveryNStages, EveryStage, Never, Output, Report, Runner, RunnerConfig, verify
    from penstock.spark.session import start as start_spark
    from penstock.storage import Storage
    from penstock.store import open_store
    from penstock.streams.handle import StreamHandle
    from penstock.streams.stream import Stream
    from penstock.tables import Precision, Table, derived

__version__ = "0.1.0"

_HOMES = {
    "Dataset": "penstock.pipeline",
    "EveryNStages": "penstock.runner",
    "EveryStage": "penstock.runner",
    "FencedError": "penstock.errors",
    "Never": "penstock.runner",
    "Output": "penstock.runner",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.pipeline",
    "Precision": "penstock.tables",
    "Range": "penstock.ranges",
    "Report": "penstock.runner",
    "Resource": "penstock.pipeline",
    "Retry": "penstock.pipeline",
    "Runner": "penstock.runner",
    "RunnerConfig": "penstock.runner",
    "SparkConfig": "penstock.config",
    "Storage": "penstock.storage",
    "Stream": "penstock.streams.stream",
    "StreamHandle": "penstock.streams.handle",
    "Table": "penstock.tables",
    "TerminalError": "penstock.errors",
    "TransientError": "penstock.errors",
    "arrow_transform": "penstock.pipeline",
    "derived": "penstock.tables",
    "open_store": "penstock.store",
    "register": "penstock.inputs",
    "start_spark": "penstock.spark.session:start",
    "transform": "penstock.pipeline",
    "verify": "penstock.runner",
}

__all__ = [
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
    "Stream",
    "StreamHandle",
    "Table",
    "TerminalError",
    "TransientError",
    "arrow_transform",
    "derived",
    "open_store",
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
