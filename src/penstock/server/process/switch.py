"""An engine that is not there yet, or not any more.

Servers listen from the first moment to the last; what stands behind them comes when Spark has started, and
goes when another coordinator leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import SqlError
from penstock.server.base import Client, Connection, Engine, QueryInfo, TableInfo, User
from penstock.server.session_settings import Settings


class EngineSwitch(Engine):
    """Hands everything on to the engine behind it, while there is one. Safe for many threads."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._engine: Engine | None = None
        self.dismiss: Callable[[str], None] = lambda _: None
        """What sends away the clients that are in, when the engine that they talk to goes."""

    def open(self, engine: Engine) -> None:
        """From now on statements go to this engine."""
        self._engine = engine

    def shut(self, why: str) -> None:
        """From now on clients are told why nobody answers."""
        self._why = why
        had, self._engine = self._engine is not None, None
        if had:
            self.dismiss(why)

    def connect(self, client: Client, settings: Settings) -> Connection:
        return self._behind().connect(client, settings)

    def tables(self, user: User) -> Sequence[TableInfo]:
        return self._behind().tables(user)

    def queries(self, user: User) -> Sequence[QueryInfo]:
        return self._behind().queries(user)

    def cancel(self, query: str, user: User) -> bool:
        return self._behind().cancel(query, user)

    def ready(self) -> str | None:
        engine = self._engine
        return self._why if engine is None else engine.ready()

    def _behind(self) -> Engine:
        engine = self._engine
        if engine is None:
            # What libpq takes as a reason to try the next of several hosts.
            raise SqlError(self._why, sqlstate="57P03", hint="try again in a moment, or another coordinator")
        return engine
