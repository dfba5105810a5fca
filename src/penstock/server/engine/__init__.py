"""The engine behind all protocols: what a statement asks for, who answers it, and its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.server.engine.connection import SparkConnection
    from penstock.server.engine.engine import SparkEngine

__all__ = ["SparkConnection", "SparkEngine"]


def __getattr__(name: str) -> Any:
    # Workers on executors come through here to write results: they shall not load the dialects for that.
    if name not in __all__:
        raise AttributeError(name)
    from penstock.server.engine import engine

    return getattr(engine, name)
