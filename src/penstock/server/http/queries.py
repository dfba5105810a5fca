"""``/api/v1/queries``: submit a statement, see how it goes, read its rows once, cancel it."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

from aiohttp import web

from penstock.errors import PenstockError, SqlError
from penstock.server.base import Client, Connection, Engine, Execution, QueryInfo, User
from penstock.server.http.bodies import number, read_object
from penstock.server.http.encoding import ENCODERS, Encoder, described
from penstock.server.http.errors import bad_request, error_json, not_found
from penstock.server.http.guard import USER
from penstock.server.http.parameters import convert
from penstock.server.http.results import HeldResult, ResultLimits, Results
from penstock.server.http.values import plain
from penstock.server.session_settings import Settings
from penstock.sql.statements.classify import StatementText, classify, split
from penstock.sql.statements.commands import FOR_ENGINE, Command, Unsupported

LONGEST_WAIT = 60.0
_PLANNING = 32
_PIECE = 256 << 10
_STALLED = 300.0
"""Seconds after which a reader that takes nothing is given up."""
_MEMBERS: dict[str, tuple[type, ...]] = {
    "sql": (str,),
    "parameters": (list,),
    "settings": (dict,),
    "wait": (int, Decimal),
}


class Queries:
    """The handlers of queries. Engine and Spark block, so they are asked from ``pool``."""

    def __init__(self, engine: Engine, pool: ThreadPoolExecutor, limits: ResultLimits) -> None:
        self._engine = engine
        self._pool = pool
        # Planning may wait for Spark for long, and must not keep others from being answered.
        self._planning = ThreadPoolExecutor(_PLANNING, thread_name_prefix="http-plan")
        self.results = Results(limits)

    def close(self) -> None:
        """Begin nothing any more, and let go of all results."""
        self._planning.shutdown(wait=False, cancel_futures=True)
        for held in self.results.all():
            held.close()

    def routes(self, prefix: str) -> list[web.RouteDef]:
        return [
            web.post(f"{prefix}/queries", self.submit),
            web.get(f"{prefix}/queries", self.list, allow_head=False),
            web.get(f"{prefix}/queries/{{id}}", self.show, allow_head=False),
            web.delete(f"{prefix}/queries/{{id}}", self.cancel),
            web.get(f"{prefix}/queries/{{id}}/result", self.result, allow_head=False),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        """Begin a query; the answer comes when it was understood, or after ``wait`` seconds if it runs."""
        body = await read_object(request, _MEMBERS)
        user = request[USER]
        if "sql" not in body:
            raise bad_request("'sql' is missing", 'send {"sql": "SELECT …"}')
        wait = float(body.get("wait", 0))
        if not 0 <= wait <= LONGEST_WAIT:
            raise bad_request(f"'wait' must be a number from 0 to {LONGEST_WAIT:g}")
        settings = _settings(body.get("settings", {}), user)
        application = settings.application_name or request.headers.get("User-Agent", "")[:64]
        client = Client(user, "http", request.remote or "", application)
        with self.results.place(user):
            held = await self._begin(client, settings, body["sql"], body.get("parameters", []))
            self.results.add(held)
        await held.wait(wait)
        told = await self._told(held.id, user)
        return answer(told, status=201, headers={"Location": f"{request.path}/{held.id}"})

    async def list(self, request: web.Request) -> web.Response:
        """Queries that wait or run, and the last that ended."""
        infos = await self._ask(self._engine.queries, request[USER])
        limit = int(number(request, "limit", 100, 1000))
        state = request.query.get("state")
        chosen = [info for info in infos if state is None or info.state == state.upper()]
        return answer({"queries": [query_json(info) for info in chosen[:limit]]})

    async def show(self, request: web.Request) -> web.Response:
        """One query; ``wait`` seconds are waited for its result."""
        query, user = request.match_info["id"], request[USER]
        held = self.results.find(query, user)
        if held is not None:
            await held.wait(number(request, "wait", 0, LONGEST_WAIT))
        return answer(await self._told(query, user))

    async def cancel(self, request: web.Request) -> web.Response:
        """Stop a query, and let go of its result."""
        query, user = request.match_info["id"], request[USER]
        held = self.results.find(query, user)
        stopped = await self._ask(self._engine.cancel, query, user)
        if held is not None:
            await self._ask(held.close)
        elif not stopped and not await self._info(query, user):
            raise _unknown(query)
        return answer({"id": query, "canceled": stopped})

    async def result(self, request: web.Request) -> web.StreamResponse:
        """The rows, as they come. The answer begins when there are any, or none is certain to come."""
        kind = _format(request)
        limit = int(number(request, "limit", 2**53, 2**53))
        held = self.results.claim(request.match_info["id"], request[USER])
        try:
            # The first batch first: until then an error still has a status of its own.
            first = await held.take()
            encoder = ENCODERS[kind](held.execution.columns or ())
            response = web.StreamResponse(headers={"Content-Type": encoder.content_type})
            response.headers["Content-Disposition"] = f'inline; filename="{held.id}.{encoder.suffix}"'
            await response.prepare(request)
            await self._stream(request, response, held, encoder, first, limit)
        finally:
            await asyncio.shield(self._ask(held.close))
        return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        held: HeldResult,
        encoder: Encoder,
        batch: Any,
        limit: int,
    ) -> None:
        await self._write(response, await self._ask(encoder.begin))
        rows = 0
        tail: dict[str, Any] = {}
        try:
            while batch is not None:
                part = batch.slice(0, limit - rows)
                pieces = encoder.encode(part)
                while (piece := await self._ask(next, pieces, None)) is not None:
                    await self._write(response, piece)
                rows += part.num_rows
                if part.num_rows < batch.num_rows:
                    tail["truncated"] = True
                    break
                batch = await held.take()
        except PenstockError as error:
            if encoder.suffix != "json":
                # A reader must see that this is not all: the stream ends without its end.
                if request.transport is not None:
                    request.transport.abort()
                return
            tail |= error_json(error)
        tail = {"row_count": rows, "tag": held.execution.tag, "notices": [*held.execution.notices], **tail}
        await self._write(response, await self._ask(encoder.end, tail))
        await response.write_eof()

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            async with asyncio.timeout(_STALLED):
                await response.write(view[start : start + _PIECE])

    async def _begin(self, client: Client, settings: Settings, sql: str, parameters: Any) -> HeldResult:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._planning, _start, self._engine, client, settings, sql, parameters)
        try:
            connection, execution = await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_discard)
            raise
        return HeldResult(execution, connection, client.user, loop, ahead=self.results.limits.ahead)

    async def _told(self, query: str, user: User) -> dict[str, Any]:
        info = await self._info(query, user)
        if info is None:
            raise _unknown(query)
        held = self.results.find(query, user)
        told = query_json(info)
        told["result"] = "gone" if held is None or held.closed else "ready" if held.ready else "coming"
        if held is not None:
            columns = held.execution.columns
            told["columns"] = None if columns is None else described(columns)
        return told

    async def _info(self, query: str, user: User) -> QueryInfo | None:
        infos = await self._ask(self._engine.queries, user)
        return next((info for info in infos if info.id == query), None)

    async def _ask(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


def query_json(info: QueryInfo) -> dict[str, Any]:
    """A query as it is told."""
    told: dict[str, Any] = plain(info)
    message, sqlstate = told.pop("error"), told.pop("sqlstate")
    told["error"] = None if message is None else {"sqlstate": sqlstate, "message": message}
    return told


def answer(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    text = json.dumps(value, ensure_ascii=False)
    return web.Response(text=text, status=status, content_type="application/json", headers=headers)


def _single(sql: str) -> StatementText:
    """The one statement of a text."""
    pieces = [piece for piece in split(sql) if piece.text.strip()]
    if len(pieces) != 1:
        raise SqlError(
            f"the text holds {len(pieces)} statements", sqlstate="42601", hint="send one in each request"
        )
    return pieces[0]


def _command(sql: str, dialect: str) -> Command:
    """What the statement asks for. Raises for a kind that needs a session, or is not known at all."""
    command = classify(sql, dialect)
    if isinstance(command, Unsupported):
        raise command.error()
    if not isinstance(command, FOR_ENGINE):
        raise SqlError(
            f"{command.tag or 'an empty statement'} makes no sense over HTTP, which has no sessions",
            sqlstate="0A000",
            hint="give settings with the query, as 'settings'",
        )
    return command


def _start(
    engine: Engine, client: Client, settings: Settings, sql: str, parameters: Any
) -> tuple[Connection, Execution]:
    piece = _single(sql)
    connection = engine.connect(client, settings)
    try:
        command = _command(piece.text, settings.dialect)
        prepared = connection.prepare(piece.text, command=command)
        return connection, connection.execute(prepared, convert(prepared.parameters, parameters))
    except SqlError as error:
        connection.close()
        if error.position is not None:
            error.position += piece.offset
        raise
    except BaseException:
        connection.close()
        raise


def _discard(future: Any) -> None:
    """The client went away before it knew of its query."""
    if future.cancelled() or future.exception() is not None:
        return
    connection, execution = future.result()
    execution.cancel()
    execution.close()
    connection.close()


def _settings(given: dict[str, Any], user: User) -> Settings:
    texts = {}
    for name, value in given.items():
        if isinstance(value, bool):
            texts[name] = "on" if value else "off"
        elif isinstance(value, str | int | Decimal):
            texts[name] = str(value)
        else:
            raise bad_request(f"setting {name!r} must be a text or a number")
    fixed = {"session_authorization": user.name, "is_superuser": "on" if user.admin else "off"}
    return Settings(texts, fixed=fixed)


def _format(request: web.Request) -> str:
    kind = request.query.get("format")
    if kind is None:
        accepted = request.headers.get("Accept", "")
        named = {"arrow": "vnd.apache.arrow.stream", "csv": "text/csv"}
        kind = next((name for name, mark in named.items() if mark in accepted), "json")
    if kind not in ENCODERS:
        raise bad_request(f"there is no format {kind!r}", f"known are {', '.join(ENCODERS)}")
    return kind


def _unknown(query: str) -> Any:
    return not_found(f"there is no query {query}", "GET /api/v1/queries lists queries")
