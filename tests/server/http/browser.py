"""A client that speaks HTTP through the standard library."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


@dataclass
class Browser:
    """Asks one server; ``headers`` go with every request."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def as_user(self, name: str, password: str) -> Browser:
        text = base64.b64encode(f"{name}:{password}".encode()).decode()
        return Browser(self.port, {**self.headers, "Authorization": f"Basic {text}"})

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            sent = {**self.headers, **(headers or {})}
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            if body is not None:
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers), response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def submit(self, sql: str = "SELECT 1", **more: Any) -> str:
        reply = self.ask("POST", "/api/v1/queries", {"sql": sql, **more})
        assert reply.status == 201, reply.body
        return str(reply.json["id"])
