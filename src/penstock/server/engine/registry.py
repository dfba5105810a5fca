"""Every query that waits or runs, and the last that ended."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from penstock.errors import SqlError
from penstock.server.base import Client, QueryInfo, QueryState, User

KEPT = 1_000
_LONGEST = 10_000
"""Longer statements are told by their beginning: many are remembered."""
_FINAL = frozenset({QueryState.FINISHED, QueryState.FAILED, QueryState.CANCELED})


def new_id() -> str:
    """A short name that no other query has; later ones sort after earlier ones."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(4)}"


def made_at(query: str) -> float | None:
    """When an id was made, in seconds since 1970; None for what is no id (old ones are shorter)."""
    return int(query[:11], 16) / 1_000 if re.fullmatch(r"[0-9a-f]{17}(?:[0-9a-f]{2})?", query) else None


class TrackedQuery:
    """One query on its way through the states. Any thread may look; a final state never changes again."""

    def __init__(self, client: Client, sql: str, ended: Callable[[TrackedQuery], None]) -> None:
        self._lock = threading.Lock()
        self._ended = ended
        self._info = QueryInfo(
            id=new_id(),
            user=client.user.name,
            protocol=client.protocol,
            address=client.address,
            application=client.application,
            sql=sql if len(sql) <= _LONGEST else f"{sql[:_LONGEST]}…",
            state=QueryState.QUEUED,
            submitted=time.time(),
        )

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def info(self) -> QueryInfo:
        return self._info

    def move(self, state: QueryState, error: SqlError | None = None) -> None:
        """Enter the next state."""
        now = time.time()
        with self._lock:
            if self._info.state in _FINAL:
                return
            started = self._info.started or (now if state is QueryState.PLANNING else None)
            self._info = replace(self._info, state=state, started=started)
            if state in _FINAL:
                what, sqlstate = (error.what, error.sqlstate) if error else (None, None)
                self._info = replace(self._info, ended=now, error=what, sqlstate=sqlstate)
        if state in _FINAL:
            self._ended(self)

    def sent(self, rows: int, size: int) -> None:
        """Count what the client was given."""
        with self._lock:
            self._info = replace(self._info, rows=self._info.rows + rows, bytes=self._info.bytes + size)


class Registry:
    """All queries of an engine."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._live: dict[str, tuple[TrackedQuery, Callable[[], None]]] = {}
        self._ended: deque[TrackedQuery] = deque(maxlen=kept)

    def open(self, client: Client, sql: str, cancel: Callable[[], None]) -> TrackedQuery:
        """A new query. ``cancel`` is how it is stopped."""
        query = TrackedQuery(client, sql, self._close)
        with self._lock:
            self._live[query.id] = (query, cancel)
        return query

    def _close(self, query: TrackedQuery) -> None:
        with self._lock:
            if self._live.pop(query.id, None):
                self._ended.appendleft(query)

    def infos(self, user: User) -> list[QueryInfo]:
        """What this user may see, newest first."""
        with self._lock:
            queries = [query for query, _ in self._live.values()] + list(self._ended)
        infos = [query.info for query in queries]
        mine = [info for info in infos if user.admin or info.user == user.name]
        return sorted(mine, key=lambda info: info.submitted, reverse=True)

    def cancel(self, query: str, user: User) -> bool:
        """Stop a query that waits or runs, if this user may."""
        with self._lock:
            found = self._live.get(query)
        if found is None or not (user.admin or found[0].info.user == user.name):
            return False
        found[1]()
        return True
