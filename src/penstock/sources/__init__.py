"""Stateful, partitioned sources of streams.

The ready-made sources are loaded when they are first used: importing this package costs next to nothing, and
one that needs a client of its own asks for it only then. Other packages bring more (`penstock.core.plugins`).
`penstock.sources.conformance` tests sources.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.core.plugins import SOURCES, attribute
from penstock.sources.base import Part, Rows, Source, StatefulSource
from penstock.sources.state import State

if TYPE_CHECKING:
    from penstock.sources.files.directory import DirectorySource
    from penstock.sources.files.tail import Lines, TailSource
    from penstock.sources.journals import JournalSource
    from penstock.sources.kafka.source import KafkaSource
    from penstock.sources.postgres.source import PostgresSource
    from penstock.sources.rate import RateSource, Ticks

_HOMES = {
    "DirectorySource": "penstock.sources.files.directory",
    "JournalSource": "penstock.sources.journals",
    "KafkaSource": "penstock.sources.kafka.source",
    "Lines": "penstock.sources.files.tail",
    "PostgresSource": "penstock.sources.postgres.source",
    "RateSource": "penstock.sources.rate",
    "TailSource": "penstock.sources.files.tail",
    "Ticks": "penstock.sources.rate",
}

__all__ = [
    "DirectorySource",
    "JournalSource",
    "KafkaSource",
    "Lines",
    "Part",
    "PostgresSource",
    "RateSource",
    "Rows",
    "Source",
    "State",
    "StatefulSource",
    "TailSource",
    "Ticks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return attribute(__name__, SOURCES, name)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
