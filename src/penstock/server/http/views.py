"""What there is to look at beside queries: tables, workers, runs, streams, the cluster, and oneself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

from aiohttp import web

from penstock import __version__
from penstock.errors import UsageError
from penstock.server.access import Access
from penstock.server.access.access import TOKEN_TTL
from penstock.server.base import Engine, TableInfo, User
from penstock.server.http.bodies import read_object
from penstock.server.http.encoding import described
from penstock.server.http.errors import HttpError, bad_request, not_found
from penstock.server.http.guard import USER
from penstock.server.http.queries import answer
from penstock.server.http.sources import Sources
from penstock.server.http.values import plain
from penstock.types import postgres

LONGEST_TOKEN = 86_400
_SYSTEM = "sys"


class Views:
    """The handlers of everything that is only looked at."""

    def __init__(self, engine: Engine, access: Access, sources: Sources, pool: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._access = access
        self._sources = sources
        self._pool = pool

    def routes(self, prefix: str) -> list[web.RouteDef]:
        sources = self._sources
        return [
            web.get(f"{prefix}/tables", self.tables, allow_head=False),
            web.get(f"{prefix}/tables/{{schema}}/{{name}}", self.table, allow_head=False),
            web.get(f"{prefix}/workers", self._all("workers", sources.workers), allow_head=False),
            web.get(f"{prefix}/runs", self._all("runs", sources.runs), allow_head=False),
            web.get(f"{prefix}/runs/{{name}}", self._one(sources.run), allow_head=False),
            web.get(f"{prefix}/streams", self._all("streams", sources.streams), allow_head=False),
            web.get(f"{prefix}/streams/{{name}}", self._one(sources.stream), allow_head=False),
            web.get(f"{prefix}/cluster", self.cluster, allow_head=False),
            web.get(f"{prefix}/me", self.me, allow_head=False),
            web.post(f"{prefix}/token", self.token),
        ]

    async def tables(self, request: web.Request) -> web.Response:
        """What the user may read; without columns, of which there may be many."""
        found = await self._ask(self._engine.tables, request[USER])
        return answer({"tables": [{"schema": t.schema, "name": t.name, "kind": t.kind} for t in found]})

    async def table(self, request: web.Request) -> web.Response:
        schema, name = request.match_info["schema"], request.match_info["name"]
        found: list[TableInfo] = await self._ask(self._engine.tables, request[USER])
        for table in found:
            if (table.schema, table.name) == (schema, name):
                columns = [postgres.column(field.name, field.type, field.nullable) for field in table.columns]
                head = {"schema": table.schema, "name": table.name, "kind": table.kind}
                return answer({**head, "columns": described(columns)})
        raise not_found(f"there is no table {schema}.{name} that you may read", "GET /api/v1/tables")

    async def cluster(self, request: web.Request) -> web.Response:
        _check_system(request[USER])
        status = plain(await self._ask(self._sources.cluster))
        why = await self._ask(self._engine.ready)
        return answer({"version": __version__, "ready": why is None, "reason": why, "status": status})

    async def me(self, request: web.Request) -> web.Response:
        user = request[USER]
        schemas = None if user.admin or user.schemas is None else sorted(user.schemas)
        told = {"name": user.name, "admin": user.admin, "writes": user.admin or user.writes}
        return answer({**told, "schemas": schemas})

    async def token(self, request: web.Request) -> web.Response:
        """A bearer token for whoever asks; ``ttl`` in seconds."""
        body = await read_object(request, {"ttl": (int, Decimal)})
        wanted = body.get("ttl", TOKEN_TTL)
        if not 1 <= wanted <= LONGEST_TOKEN:
            raise bad_request(f"'ttl' must be a number of seconds from 1 to {LONGEST_TOKEN}")
        if request.headers.get("Authorization", "").lower().startswith("bearer"):
            # Whoever finds one could keep it alive for ever.
            raise HttpError(403, "token-for-token", "a token gives no other token", "log in with a password")
        ttl = float(wanted)
        token = await self._ask(self._access.issue, request[USER], ttl)
        return answer({"token": token, "type": "Bearer", "expires_in": ttl}, status=201)

    def _all(self, name: str, read: Callable[[], Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            _check_system(request[USER])
            return answer({name: plain(await self._ask(read))})

        return handle

    def _one(self, read: Callable[[str], Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            _check_system(request[USER])
            try:
                return answer(plain(await self._ask(read, request.match_info["name"])))
            except UsageError as error:
                raise not_found(error.what, error.hint) from error

        return handle

    async def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


def _check_system(user: User) -> None:
    """Runs, streams and members are what the system tables show, and need the same right."""
    if not user.may_read(_SYSTEM):
        raise HttpError(
            403, "forbidden", f"user {user.name!r} may not read the schema {_SYSTEM}", "ask an admin for it"
        )
