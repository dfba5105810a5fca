"""Where the rows of a stream go.

Names are loaded when they are first used: each sink needs a library of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.streams.sinks.base import Batch, Mode, Sink, Target, Writer, pass_over
    from penstock.streams.sinks.delta import DeltaSink
    from penstock.streams.sinks.function import FunctionSink
    from penstock.streams.sinks.kafka import KafkaSink
    from penstock.streams.sinks.parquet import ParquetSink
    from penstock.streams.sinks.postgres import PostgresSink
    from penstock.streams.sinks.table import StreamTable

_HOMES = {
    "Batch": "base",
    "DeltaSink": "delta",
    "FunctionSink": "function",
    "KafkaSink": "kafka",
    "Mode": "base",
    "ParquetSink": "parquet",
    "PostgresSink": "postgres",
    "Sink": "base",
    "StreamTable": "table",
    "Target": "base",
    "Writer": "base",
    "pass_over": "base",
}

__all__ = [
    "Batch",
    "DeltaSink",
    "FunctionSink",
    "KafkaSink",
    "Mode",
    "ParquetSink",
    "PostgresSink",
    "Sink",
    "StreamTable",
    "Target",
    "Writer",
    "pass_over",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
