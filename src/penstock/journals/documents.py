"""Documents as lines of a journal: ``{"_meta":{"uuid":"…"},…}``, compact JSON in UTF-8.

An acknowledgement is a document too: ``{"_meta":{"uuid":"…","ack":true},"hints":[…]}``. Its hints name, for
the other journals of the transaction, the acknowledgements that must have been read there as well. Names of
journals in hints are delta-encoded: ``{"j":[n,suffix],"p":[{"p":producer,"c":clock},…]}`` keeps the first n
characters of the name before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, NoReturn

from penstock.errors import BadInput
from penstock.journals import names
from penstock.journals.uuids import Stamp, decode, encode, parse_producer, producer_text

META = "_meta"
"""Where a document has its UUID."""
_CLOCKS = 1 << 64
_DECIMAL = re.compile(r"[0-9]{1,20}")
_HEX = re.compile(r"(?:0x)?([0-9a-f]{1,16})", re.IGNORECASE)
_ONE_HINT = re.compile(
    rb'\{"_meta":\{"uuid":"[^"\\]*","ack":true\},"hints":'
    rb'\[\{"j":\[0,"([^"\\]*)"\],"p":\[\{"p":"([0-9a-f]{12})","c":([0-9]{1,19})\}\]\}\]\}\s*'
)


@dataclass(frozen=True, slots=True, order=True)
class Hint:
    """In ``journal``, the acknowledgement of ``producer`` with ``clock`` belongs to the same transaction."""

    journal: str
    producer: int
    clock: int


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


def encode_hints(hints: Iterable[Hint]) -> list[dict[str, Any]]:
    """Hints as JSON values, in the order of the journals' names."""
    encoded, before = [], ""
    for journal, group in groupby(sorted(set(hints)), key=lambda hint: hint.journal):
        kept = _common(before, journal)
        producers = [{"p": producer_text(hint.producer), "c": hint.clock} for hint in group]
        encoded.append({"j": [kept, journal[kept:]], "p": producers})
        before = journal
    return encoded


def decode_hints(value: Any) -> list[Hint]:
    """Hints from JSON values. Raises `BadInput` with the reason for anything malformed."""
    if not isinstance(value, list):
        raise BadInput("the hints are not a list")
    return list(_decoded(value))


def usual_hint(line: bytes) -> tuple[tuple[bytes, bytes], int] | None:
    """The hint of an acknowledgement that is written as `encode_ack` does and has one; otherwise None.

    That is journal and producer, which `hinted` checks, and the clock. It takes a tenth of the time of
    `decode_hints`.
    """
    found = _ONE_HINT.fullmatch(line)
    return None if found is None else ((found[1], found[2]), int(found[3]))


@lru_cache(maxsize=1 << 14)
def hinted(key: tuple[bytes, bytes]) -> tuple[str, int]:
    """Journal and producer that `usual_hint` found. Raises `BadInput` as `decode_hints` does."""
    try:
        journal, producer = (each.decode() for each in key)
    except UnicodeDecodeError:
        raise BadInput("a hint names no journal: its name is not UTF-8") from None
    hint = decode_hints([{"j": [0, journal], "p": [{"p": producer, "c": 0}]}])[0]
    return hint.journal, hint.producer


def _decoded(value: list[Any]) -> Iterator[Hint]:
    journal = ""
    for number, entry in enumerate(value):
        if not isinstance(entry, dict) or not isinstance(entry.get("p"), list):
            raise BadInput(f"hint {number} is not an object with j and p")
        journal = _journal(entry.get("j"), journal, number)
        for each in entry["p"]:
            if not isinstance(each, dict) or not {"p", "c"} <= each.keys():
                raise BadInput(f"hint {number} has a producer that is not an object with p and c")
            yield Hint(journal, parse_producer(each["p"]), _clock(each["c"], number))


def _journal(delta: Any, before: str, number: int) -> str:
    match delta:
        case [bool(), _]:
            pass
        case [int(kept), str(suffix)] if 0 <= kept <= len(before):
            journal = before[:kept] + suffix
            wrong = names.problem(journal)
            if wrong is None:
                return journal
            raise BadInput(f"hint {number} names no journal, but {journal!r}: {wrong}")
    raise BadInput(f"the journal of hint {number} is not [characters to keep of the one before, suffix]")


def _clock(value: Any, number: int) -> int:
    """A number, or a text: decimal if it has nothing but decimal digits, else hexadecimal."""
    clock = value
    if isinstance(value, str):
        digits = _HEX.fullmatch(value)
        clock = int(value) if _DECIMAL.fullmatch(value) else int(digits[1], 16) if digits else None
    if isinstance(clock, bool) or not isinstance(clock, int) or not 0 <= clock < _CLOCKS:
        raise BadInput(f"hint {number} has a clock that is no number of 64 bits: {str(value)[:60]!r}")
    return clock


def _common(first: str, second: str) -> int:
    """How many characters two names begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _line(value: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the document cannot be written as JSON: {error}") from error


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
