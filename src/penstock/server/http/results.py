"""Results that wait for their reader: pulled from the engine ahead of it, but not far.

One thread pulls each query, so that it goes on whether somebody reads or not, until `AHEAD` bytes wait.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, SqlError
from penstock.server.base import Connection, Execution, User
from penstock.server.http.errors import HttpError, not_found

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD = 8 << 20
"""Bytes of one result that may wait for a reader."""
KEPT = 300.0
"""Seconds for which a result that is ready waits for its reader; then it is dropped, and later forgotten."""
MOST = 100
"""Results that a server holds, and half as many for one user."""


class HeldResult:
    """One query and what has come of it. Its event loop reads; any thread may close it."""

    def __init__(
        self,
        execution: Execution,
        connection: Connection,
        user: User,
        loop: asyncio.AbstractEventLoop,
        *,
        ahead: int = AHEAD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = execution.id
        self.user = user
        self.execution = execution
        self.read = False
        """Whether a reader has come; there is one only."""
        self._connection = connection
        self._loop = loop
        self._ahead = ahead
        self._clock = clock
        self._room = threading.Condition()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._size = 0
        self._done = False
        self._closed = False
        self._error: PenstockError | None = None
        self._news = asyncio.Event()
        self._since: float | None = None
        threading.Thread(target=self._pull, name=f"http-{self.id}", daemon=True).start()

    @property
    def ready(self) -> bool:
        """Whether a reader would get something now: rows, the end, or an error."""
        return self._since is not None

    @property
    def closed(self) -> bool:
        return self._closed

    def idle(self, now: float) -> float:
        """For how many seconds it has been ready, or gone, without a reader."""
        reading = self.read and not self._closed
        return 0.0 if self._since is None or reading else now - self._since

    async def wait(self, seconds: float) -> bool:
        """Wait until it is ready; whether it is."""
        try:
            async with asyncio.timeout(seconds):
                while not self.ready:
                    await self._next_news()
        except TimeoutError:
            return False
        return True

    async def take(self) -> pa.RecordBatch | None:
        """The next batch, None after the last. Raises what the query failed with."""
        while True:
            with self._room:
                if self._waiting:
                    batch = self._waiting.popleft()
                    self._size -= batch.nbytes
                    self._room.notify()
                    return batch
                if self._error is not None:
                    raise self._error
                if self._closed:
                    # Before the end is looked at: what is left of it must not be taken for the whole.
                    raise SqlError("canceling statement due to user request", sqlstate="57014")
                if self._done:
                    return None
            await self._next_news()

    def close(self) -> None:
        """Let go of the rows, and cancel the query if it runs. Harmless when repeated."""
        with self._room:
            if self._closed:
                return
            # Seen now: the puller may be through with it in a moment.
            running = not self._done
            self._closed = True
            self._waiting.clear()
            self._size = 0
            self._room.notify_all()
        self._since = self._clock()
        self._tell()
        if running:
            self.execution.cancel()

    def _pull(self) -> None:
        try:
            for batch in self.execution.batches():
                if not self._put(batch):
                    break
        except PenstockError as error:
            self._error = error
        except Exception as error:
            # Whatever it was, the reader must be told that no more rows come.
            self._error = SqlError(f"the result broke off: {type(error).__name__}", sqlstate="XX000")
        finally:
            self._done = True
            if self._since is None:
                self._since = self._clock()
            self._tell()
            # The engine is done with it: a result that waits for its reader takes no place there.
            self.execution.close()
            self._connection.close()

    def _put(self, batch: pa.RecordBatch) -> bool:
        """Hand a batch over when there is room; whether it is still wanted."""
        with self._room:
            while self._size > self._ahead and not self._closed:
                self._room.wait()
            if self._closed:
                return False
            self._waiting.append(batch)
            # A slice counts for what it shows: what it keeps alive belongs to the engine's batch.
            self._size += batch.nbytes
        if self._since is None:
            self._since = self._clock()
        self._tell()
        return True

    def _tell(self) -> None:
        # The server may have been stopped: then nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)

    async def _next_news(self) -> None:
        await self._news.wait()
        self._news.clear()


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """How much is held, for how long."""

    results: int = MOST
    ahead: int = AHEAD
    kept: float = KEPT


class Results:
    """The results of a server, by query id. Used by its event loop alone."""

    def __init__(self, limits: ResultLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._held: dict[str, HeldResult] = {}
        self._coming: list[str] = []

    @contextmanager
    def place(self, user: User) -> Iterator[None]:
        """A place for one more, until it is added. Raises if this user, or all together, have too many."""
        taken = [held.user.name for held in self._held.values() if not held.closed] + self._coming
        own = taken.count(user.name)
        if len(taken) >= self.limits.results or own >= max(1, self.limits.results // 2):
            raise HttpError(
                429,
                "too-many-results",
                f"{own} of your queries run or have results that were not read, and {len(taken)} in all",
                "read their results, or cancel them with DELETE /api/v1/queries/{id}",
            )
        self._coming.append(user.name)
        try:
            yield
        finally:
            self._coming.remove(user.name)

    def add(self, held: HeldResult) -> None:
        self._held[held.id] = held

    def find(self, query: str, user: User) -> HeldResult | None:
        """The result of a query, if it is this user's; an admin's are all."""
        held = self._held.get(query)
        return held if held is not None and (user.admin or held.user.name == user.name) else None

    def claim(self, query: str, user: User) -> HeldResult:
        """The result for its one reader; `HttpError` if there is none, or was one."""
        held = self.find(query, user)
        if held is None:
            raise not_found(f"there is no result of a query {query}", "GET /api/v1/queries lists queries")
        if held.closed:
            raise _gone(query)
        if held.read:
            raise HttpError(409, "being-read", "the result is being read by another request")
        held.read = True
        return held

    def expired(self) -> list[HeldResult]:
        """Those that nobody came for; they are to be closed. What was closed long ago is forgotten."""
        now = self._clock()
        stale = [held for held in self._held.values() if held.idle(now) > self.limits.kept]
        for held in stale:
            if held.closed:
                del self._held[held.id]
        return [held for held in stale if not held.closed]

    def all(self) -> list[HeldResult]:
        return list(self._held.values())


def _gone(query: str) -> HttpError:
    return HttpError(
        410, "gone", f"the result of query {query} is not kept any more", "a result can be read once"
    )
