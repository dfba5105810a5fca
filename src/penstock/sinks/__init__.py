"""Where the rows of a stream go.

Names are loaded when they are first used: each sink needs a library of its own.
Other packages bring more (`penstock.core.plugins`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.core.plugins import SINKS, attribute

if TYPE_CHECKING:
    from penstock.sinks.base import Batch, Mode, Sink, Target, Writer, pass_over, repeats
    from penstock.sinks.delta.sink import DeltaSink
    from penstock.sinks.function import FunctionSink
    from penstock.sinks.kafka import KafkaSink
    from penstock.sinks.parquet.sink import ParquetSink
    from penstock.sinks.parquet.table import StreamTable
    from penstock.sinks.postgres.sink import PostgresSink

_HOMES = {
    "Batch": "base",
    "DeltaSink": "delta.sink",
    "FunctionSink": "function",
    "KafkaSink": "kafka",
    "Mode": "base",
    "ParquetSink": "parquet.sink",
    "PostgresSink": "postgres.sink",
    "Sink": "base",
    "StreamTable": "parquet.table",
    "Target": "base",
    "Writer": "base",
    "pass_over": "base",
    "repeats": "base",
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
    "repeats",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return attribute(__name__, SINKS, name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
