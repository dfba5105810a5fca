"""Documents as lines of a journal: ``{"_meta":{"uuid":"…"},…}``, compact JSON in UTF-8.

An acknowledgement is a document too: ``{"_meta":{"uuid":"…","ack":true},"hints":[…]}``. Its hints name, for
the other journals of the transaction, the acknowledgements that must have been read there as well: see
`penstock.journals.format.hints`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from penstock.errors import BadInput
from penstock.journals.format.hints import META, Hint, encode_hints
from penstock.journals.format.uuids import Stamp, decode, encode


def encode_document(stamp: Stamp, document: Mapping[str, Any]) -> bytes:
    """A document as a line. Members of its ``_meta`` other than ``uuid`` are kept."""
    if not isinstance(document, Mapping):
        raise BadInput(f"a document must be a JSON object, not {type(document).__name__}")
    meta = document.get(META, {})
    if not isinstance(meta, Mapping):
        raise BadInput("the _meta of a document must be a JSON object")
    kept = {key: value for key, value in meta.items() if key != "uuid"}
    rest = {key: value for key, value in document.items() if key != META}
    return _line({META: {"uuid": encode(stamp), **kept}, **rest})


def encode_ack(stamp: Stamp, hints: Iterable[Hint] = ()) -> bytes:
    """An acknowledgement as a line."""
    return _line({META: {"uuid": encode(stamp), "ack": True}, "hints": encode_hints(hints)})


def parse(line: bytes) -> dict[str, Any]:
    """The document on a line. Raises `BadInput` if it is no JSON object in UTF-8."""
    try:
        # Decoded here: json guesses other encodings from bytes.
        document = json.loads(line.decode(), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise BadInput(f"the line is not UTF-8 at its byte {error.start:,}") from None
    except RecursionError:
        raise BadInput("the line is not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"the line is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadInput("the line is JSON, but not an object")
    return document


def stamp_of(document: Mapping[str, Any]) -> Stamp:
    """What the UUID of a document says. Raises `BadInput` if it has none, or a wrong one."""
    meta = document.get(META)
    if not isinstance(meta, Mapping) or "uuid" not in meta:
        raise BadInput("the document has no _meta.uuid")
    return decode(meta["uuid"])


def _line(value: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the document cannot be written as JSON: {error}") from error


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
