"""One client at the engine."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.server.base import Client, Connection, Execution, Prepared

if TYPE_CHECKING:
    from penstock.server.engine.engine import SparkEngine
    from penstock.server.session_settings import Settings
    from penstock.sql.statements.commands import Command


class SparkConnection(Connection):
    """One client. What it has begun and not closed is cancelled when it goes."""

    def __init__(self, engine: SparkEngine, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self._engine = engine
        self._begun: weakref.WeakSet[Execution] = weakref.WeakSet()

    def prepare(
        self,
        sql: str,
        parameters: Sequence[int] = (),
        *,
        exact: bool = False,
        command: Command | None = None,
    ) -> Prepared:
        client = self._engine.now(self.client)
        return self._engine.prepare(sql, parameters, client, self.settings, exact=exact, command=command)

    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:
        execution = self._engine.execute(prepared, parameters, self._engine.now(self.client), self.settings)
        self._begun.add(execution)
        return execution

    def close(self) -> None:
        for execution in list(self._begun):
            execution.close()
