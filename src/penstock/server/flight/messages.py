"""The protocol's messages in and out of their envelopes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import DecodeError, Message

from penstock.errors import SqlError
from penstock.server.flight import flightsql_pb2 as sql

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "type.googleapis.com/"
_KNOWN: Mapping[str, type[Message]] = {
    kind.DESCRIPTOR.full_name: kind
    for kind in vars(sql).values()
    if isinstance(kind, type) and issubclass(kind, Message)
}

M = TypeVar("M", bound=Message)


def opened(data: bytes) -> Message:
    """The message in an envelope. Raises `SqlError` for what is none, or is not spoken here."""
    envelope = Envelope()
    try:
        envelope.ParseFromString(data)
        name = envelope.type_url.removeprefix(_PREFIX)
        kind = _KNOWN.get(name)
        if kind is None:
            raise SqlError(f"this server does not know {name[:100] or 'an empty command'}", sqlstate="0A000")
        message = kind()
        message.ParseFromString(envelope.value)
    except DecodeError:
        raise SqlError("the command is no message of Flight SQL", sqlstate="08P01") from None
    return message


def expect(data: bytes, kind: type[M]) -> M:
    """The message of this kind in an envelope."""
    message = opened(data)
    if not isinstance(message, kind):
        raise SqlError(f"{kind.DESCRIPTOR.name} was expected", sqlstate="08P01")
    return message


def sealed(message: Message) -> bytes:
    """A message in its envelope."""
    envelope = Envelope(type_url=_PREFIX + message.DESCRIPTOR.full_name, value=message.SerializeToString())
    return bytes(envelope.SerializeToString())
