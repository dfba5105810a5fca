"""A server in front of an engine without Spark, for clients of all kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.server.base import User
from penstock.server.pgwire.server import PgServer
from tests.server.stand_in import StandIn


class Trusting:
    """Lets everybody in, the user ``admin`` as one."""

    def trust(self, address: str) -> bool:
        return True

    def trusted(self, name: str) -> User:
        return User(name, admin=name == "admin", writes=True)

    def scram(self, name: str, address: str = "", *, binding: bytes | None = None) -> Any:
        raise AssertionError

    def by_certificate(self, common_name: str) -> User | None:
        return User(common_name)


@dataclass
class Serving:
    """A server that runs in a thread of its own."""

    server: PgServer
    engine: StandIn
    loop: asyncio.AbstractEventLoop = field(repr=False)

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return (
            f"host=127.0.0.1 port={self.port} user=someone dbname=penstock sslmode=disable gssencmode=disable"
        )

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(20)


@contextmanager
def serving(engine: StandIn | None = None, access: Any = None, **options: Any) -> Iterator[Serving]:
    """A server on a free port of loopback."""
    engine = engine or StandIn()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pgwire-test")
    thread.start()
    server = PgServer(engine, access or Trusting(), host="127.0.0.1", port=0, **options)
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    running = Serving(server, engine, loop)
    try:
        yield running
    finally:
        running.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
