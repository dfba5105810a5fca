"""What a request brings: JSON of a known shape, or an error that says what is wrong with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.server.http.errors import HttpError, bad_request

if TYPE_CHECKING:
    from aiohttp import web

LARGEST = 1 << 20
"""Bytes of a request."""
SLOWEST = 30.0
"""Seconds that a request may take to arrive."""


async def read_object(request: web.Request, known: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The JSON object of a request, with only the ``known`` members, each of its types; none is null."""
    if request.content_type != "application/json":
        raise HttpError(415, "not-json", "the request must be JSON", "send Content-Type: application/json")
    try:
        async with asyncio.timeout(SLOWEST):
            data = await request.read()
    except TimeoutError:
        raise HttpError(408, "too-slow", f"the request did not arrive within {SLOWEST:g} s") from None
    try:
        value = json.loads(data, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the request is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("the request must be a JSON object")
    for key, item in value.items():
        if key not in known:
            raise bad_request(f"unknown member {key!r}", f"known are {', '.join(known)}")
        wrong = not isinstance(item, known[key]) or (isinstance(item, bool) and bool not in known[key])
        if item is not None and wrong:
            raise bad_request(f"{key!r} is of the wrong type")
    return {key: item for key, item in value.items() if item is not None}


def number(request: web.Request, name: str, default: float, most: float) -> float:
    """A number of a request's query string."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise bad_request(f"{name} must be a number from 0 to {most:g}")
    return value


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
