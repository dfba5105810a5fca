"""The OpenAPI document, written by hand; a test compares it with the routes and with real answers."""

from __future__ import annotations

from typing import Any

from penstock.server.base import QueryState

_Json = dict[str, Any]


def document(version: str) -> _Json:
    """The description of the whole interface."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version,
            "description": "Queries, tables, runs and streams of a Penstock server.",
        },
        "security": [{"basic": []}, {"bearer": []}, {"certificate": []}, {}],
        "paths": {**_queries(), **_views(), **_probes()},
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "certificate": {"type": "mutualTLS"},
            },
            "schemas": _schemas(),
        },
    }


def _queries() -> _Json:
    identifier = _parameter("id", "path", {"type": "string"})
    wait = _parameter("wait", "query", {"type": "number", "minimum": 0, "maximum": 60})
    return {
        "/api/v1/queries": {
            "get": _operation(
                "Queries that wait or run, and the last that ended: one's own, an admin's all.",
                {"200": _answer("QueryList")},
                parameters=[
                    _parameter("state", "query", {"$ref": "#/components/schemas/State"}),
                    _parameter("limit", "query", {"type": "integer", "default": 100, "maximum": 1000}),
                ],
            ),
            "post": _operation(
                "Begin a query.",
                {"201": _answer("Query"), "415": _error(), "429": _error()},
                body="Submission",
            ),
        },
        "/api/v1/queries/{id}": {
            "get": _operation(
                "One query. With `wait`, when its result is ready or so many seconds have passed.",
                {"200": _answer("Query"), "404": _error()},
                parameters=[identifier, wait],
            ),
            "delete": _operation(
                "Cancel a query, and let go of its result.",
                {"200": _answer("Cancelled"), "404": _error()},
                parameters=[identifier],
            ),
        },
        "/api/v1/queries/{id}/result": {
            "get": _operation(
                "The rows, once, as they come. What the query failed with has a status of its own if no row "
                "was sent before it.",
                {
                    "200": {
                        "description": "The rows.",
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Result"}},
                            "application/vnd.apache.arrow.stream": {"schema": {"type": "string"}},
                            "text/csv": {"schema": {"type": "string"}},
                        },
                    },
                    "404": _error(),
                    "409": _error(),
                    "410": _error(),
                },
                parameters=[
                    identifier,
                    _parameter("format", "query", {"type": "string", "enum": ["json", "arrow", "csv"]}),
                    _parameter("limit", "query", {"type": "integer", "minimum": 0}),
                ],
            )
        },
    }


def _views() -> _Json:
    name = _parameter("name", "path", {"type": "string"})
    schema = _parameter("schema", "path", {"type": "string"})
    return {
        "/api/v1/tables": {"get": _operation("The tables one may read.", {"200": _answer("TableList")})},
        "/api/v1/tables/{schema}/{name}": {
            "get": _operation(
                "One table with its columns.",
                {"200": _answer("Table"), "404": _error()},
                parameters=[schema, name],
            )
        },
        "/api/v1/workers": {"get": _listing("The workers of this coordinator.", "workers")},
        "/api/v1/runs": {"get": _listing("All runs, as `penstock runs ls --json` tells them.", "runs")},
        "/api/v1/runs/{name}": {"get": _single("One run.", name)},
        "/api/v1/streams": {
            "get": _listing("All streams, as `penstock stream list --json` tells them.", "streams")
        },
        "/api/v1/streams/{name}": {"get": _single("One stream.", name)},
        "/api/v1/cluster": {
            "get": _operation(
                "Whether statements are answered, and who leads.",
                {"200": _answer("Cluster"), "403": _error()},
            )
        },
        "/api/v1/me": {"get": _operation("Who asks, and what that user may do.", {"200": _answer("Me")})},
        "/api/v1/token": {
            "post": _operation(
                "A bearer token for whoever asks.",
                {"201": _answer("Token"), "415": _error()},
                body="TokenRequest",
            )
        },
        "/api/v1/openapi.json": {
            "get": _operation("This document.", {"200": {"description": "This document."}})
        },
    }


def _probes() -> _Json:
    text = {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    root = _operation("Where the interface is.", {"200": _answer("Root")})
    alive = _operation("Whether the process lives.", {"200": _answer("Status")})
    ready = _operation(
        "Whether statements are answered.", {"200": _answer("Status"), "503": _answer("Status")}
    )
    for operation in (root, alive, ready):
        operation["security"] = []
        del operation["responses"]["401"]
    return {
        "/": {"get": root},
        "/healthz": {"get": alive},
        "/readyz": {"get": ready},
        "/metrics": {"get": _operation("Metrics for Prometheus.", {"200": text})},
    }


def _schemas() -> _Json:
    text, number, flag = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
    maybe_text, maybe_number = {"type": ["string", "null"]}, {"type": ["number", "null"]}
    column = _object({"name": text, "type": text, "nullable": flag})
    columns = {"type": "array", "items": {"$ref": "#/components/schemas/Column"}}
    table = {"schema": text, "name": text, "kind": {"type": "string", "enum": ["table", "view", "system"]}}
    failure = _object({"sqlstate": maybe_text, "message": text})
    query = {
        "id": text,
        "user": text,
        "protocol": text,
        "address": text,
        "application": text,
        "sql": text,
        "state": {"$ref": "#/components/schemas/State"},
        "submitted": {"type": "number", "description": "Seconds since 1970, as all times."},
        "started": maybe_number,
        "ended": maybe_number,
        "rows": {"type": "integer"},
        "bytes": {"type": "integer"},
        "error": {"anyOf": [failure, {"type": "null"}]},
    }
    result = {"type": "string", "enum": ["coming", "ready", "gone"]}
    return {
        "Cancelled": _object({"id": text, "canceled": flag}),
        "Cluster": _object(
            {"version": text, "ready": flag, "reason": maybe_text, "status": {"type": ["object", "null"]}}
        ),
        "Column": column,
        "Error": _object(
            {
                "error": _object(
                    {
                        "code": text,
                        "sqlstate": maybe_text,
                        "message": text,
                        "hint": maybe_text,
                        "position": {"type": ["integer", "null"]},
                    }
                )
            }
        ),
        "Me": _object({"name": text, "admin": flag, "writes": flag, "schemas": {"type": ["array", "null"]}}),
        "Query": _object(
            {**query, "result": result, "columns": {"anyOf": [columns, {"type": "null"}]}},
            optional=("result", "columns"),
        ),
        "QueryList": _object({"queries": _array("Query")}),
        "Result": _object(
            {
                "columns": columns,
                "rows": {"type": "array", "items": {"type": "array"}},
                "row_count": {"type": "integer"},
                "tag": text,
                "notices": {"type": "array", "items": text},
                "truncated": flag,
                "error": {"type": "object"},
            },
            optional=("truncated", "error"),
        ),
        "Root": _object({"penstock": text, "api": text, "openapi": text}),
        "State": {"type": "string", "enum": [state.value for state in QueryState]},
        "Status": _object({"status": text, "reason": text}, optional=("reason",)),
        "Submission": _object(
            {
                "sql": text,
                "parameters": {"type": "array"},
                "settings": {"type": "object"},
                "wait": {**number, "minimum": 0, "maximum": 60},
            },
            optional=("parameters", "settings", "wait"),
        ),
        "Table": _object({**table, "columns": columns}),
        "TableList": _object({"tables": {"type": "array", "items": _object(table)}}),
        "Token": _object({"token": text, "type": text, "expires_in": number}),
        "TokenRequest": _object({"ttl": {**number, "minimum": 1, "maximum": 86400}}, optional=("ttl",)),
    }


def _object(properties: _Json, optional: tuple[str, ...] = ()) -> _Json:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _array(name: str) -> _Json:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


def _answer(name: str) -> _Json:
    return {
        "description": name,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}},
    }


def _error() -> _Json:
    return _answer("Error")


def _parameter(name: str, place: str, schema: _Json) -> _Json:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _operation(
    summary: str, responses: _Json, *, parameters: list[_Json] | None = None, body: str | None = None
) -> _Json:
    made: _Json = {
        "summary": summary,
        "responses": {**responses, "400": _error(), "401": _error(), "503": responses.get("503", _error())},
    }
    if parameters:
        made["parameters"] = parameters
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body}"}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


def _listing(summary: str, name: str) -> _Json:
    schema = _object({name: {"type": "array", "items": {"type": "object"}}})
    found = {"description": name, "content": {"application/json": {"schema": schema}}}
    return _operation(summary, {"200": found, "403": _error()})


def _single(summary: str, name: _Json) -> _Json:
    found = {"description": summary, "content": {"application/json": {"schema": {"type": "object"}}}}
    return _operation(summary, {"200": found, "403": _error(), "404": _error()}, parameters=[name])
