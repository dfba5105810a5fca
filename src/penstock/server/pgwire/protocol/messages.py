"""What the server says in PostgreSQL's protocol: each builder gives one whole message as bytes.

What clients say is read by `penstock.server.pgwire.protocol.frontend`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from penstock.errors import SqlError
from penstock.server.pgwire.protocol.requests import ProtocolError
from penstock.types.postgres import Column, type_size


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def _text(value: str) -> bytes:
    # A NUL ends a text in the protocol: one inside would shift all that follows.
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


AUTHENTICATION_OK = _message(b"R", struct.pack(">i", 0))
PARSE_COMPLETE = _message(b"1")
BIND_COMPLETE = _message(b"2")
CLOSE_COMPLETE = _message(b"3")
NO_DATA = _message(b"n")
EMPTY_QUERY_RESPONSE = _message(b"I")
PORTAL_SUSPENDED = _message(b"s")
COPY_DONE = _message(b"c")


def authentication_cleartext() -> bytes:
    return _message(b"R", struct.pack(">i", 3))


def authentication_sasl(mechanisms: Sequence[str]) -> bytes:
    return _message(b"R", struct.pack(">i", 10) + b"".join(_text(name) for name in mechanisms) + b"\0")


def authentication_sasl_continue(data: bytes) -> bytes:
    return _message(b"R", struct.pack(">i", 11) + data)


def authentication_sasl_final(data: bytes) -> bytes:
    return _message(b"R", struct.pack(">i", 12) + data)


def parameter_status(name: str, value: str) -> bytes:
    return _message(b"S", _text(name) + _text(value))


def backend_key_data(process: int, key: bytes) -> bytes:
    """``key`` has 4 bytes in protocol 3.0, and up to 256 in 3.2."""
    return _message(b"K", struct.pack(">I", process) + key)


def negotiate_protocol_version(minor: int, unrecognized: Sequence[str] = ()) -> bytes:
    """Tell the newest minor version of 3 that is spoken here, and which ``_pq_.`` options are not known."""
    head = struct.pack(">ii", (3 << 16) | minor, len(unrecognized))
    return _message(b"v", head + b"".join(_text(name) for name in unrecognized))


def ready_for_query(status: str) -> bytes:
    """``status`` is I (idle), T (in a transaction) or E (in a failed one)."""
    return _message(b"Z", status.encode("ascii"))


def row_description(columns: Sequence[Column], formats: Sequence[int] = ()) -> bytes:
    """``formats`` is empty (all text), one for all columns, or one for each."""
    parts = [struct.pack(">h", len(columns))]
    for column, code in zip(columns, spread(formats, len(columns)), strict=True):
        place = (column.table, column.attribute)
        kind = struct.pack(">IhIhih", *place, column.oid, type_size(column.oid), column.typmod, code)
        parts.append(_text(column.name) + kind)
    return _message(b"T", b"".join(parts))


def spread(formats: Sequence[int], count: int) -> Sequence[int]:
    """One format for each column from what a Bind message says."""
    if len(formats) > 1 and len(formats) != count:
        raise ProtocolError(f"bind message has {len(formats)} result formats but query has {count} columns")
    for code in formats:
        if code not in {0, 1}:
            raise ProtocolError(f"unsupported format code: {code}", sqlstate="22023")
    if len(formats) == count:
        return formats
    return [formats[0] if formats else 0] * count


def parameter_description(oids: Sequence[int]) -> bytes:
    return _message(b"t", struct.pack(f">H{len(oids)}I", len(oids), *oids))


def data_row(fields: Sequence[bytes | None]) -> bytes:
    """One row whose fields are encoded already; for many rows there is `RowEncoder`."""
    parts = [struct.pack(">h", len(fields))]
    for field in fields:
        parts.append(b"\xff\xff\xff\xff" if field is None else struct.pack(">i", len(field)) + field)
    return _message(b"D", b"".join(parts))


def command_complete(tag: str) -> bytes:
    return _message(b"C", _text(tag))


def error_response(error: SqlError, *, severity: str = "ERROR", where: str | None = None) -> bytes:
    """``severity`` is ERROR, or FATAL if the connection is closed after it."""
    fields = _fields(severity, error.sqlstate, error.what, error.left, error.hint, error.position, where)
    return _message(b"E", fields)


def notice_response(
    what: str,
    *,
    severity: str = "NOTICE",
    sqlstate: str = "00000",
    detail: str | None = None,
    hint: str | None = None,
    position: int | None = None,
    where: str | None = None,
) -> bytes:
    """``severity`` is NOTICE, WARNING, INFO, LOG or DEBUG; ``position`` counts characters from 0."""
    return _message(b"N", _fields(severity, sqlstate, what, detail, hint, position, where))


def _fields(
    severity: str,
    sqlstate: str,
    what: str,
    detail: str | None,
    hint: str | None,
    position: int | None,
    where: str | None,
) -> bytes:
    fields = {
        "S": severity,
        "V": severity,
        "C": sqlstate,
        "M": what,
        "D": detail,
        "H": hint,
        "P": None if position is None else str(position + 1),
        "W": where,
    }
    return b"".join(name.encode() + _text(text) for name, text in fields.items() if text is not None) + b"\0"


def copy_out_response(binary: bool, columns: int) -> bytes:
    return _copy_response(b"H", binary, columns)


def copy_in_response(binary: bool, columns: int) -> bytes:
    return _copy_response(b"G", binary, columns)


def _copy_response(kind: bytes, binary: bool, columns: int) -> bytes:
    return _message(kind, struct.pack(f">bh{columns}h", binary, columns, *[int(binary)] * columns))


def copy_data(data: bytes) -> bytes:
    return _message(b"d", data)


def notification_response(process: int, channel: str, payload: str) -> bytes:
    return _message(b"A", struct.pack(">I", process) + _text(channel) + _text(payload))
