"""Hints of acknowledgements: the acks of the same transaction in other journals, or by other producers.

There are two forms, and a document says by itself which of them it has.

Ours, beside ``"_meta":{…,"ack":true}``::

    "hints": [{"j": [n, suffix], "p": [{"p": "0123456789ab", "c": 139…}, …]}, …]

A journal keeps the first n characters of the one before, beginning with none. A producer is 12 hexadecimal
digits, its clock a number.

That of Estuary's Flow, beside ``"is_ack":true``::

    "hints": [{"j": [n, suffix], "p": [{}, {"p": "ASNFZ4mr", "c": "1ee833b04afc0000"}, …]}, …]

A journal lacks the last n bytes of the one before, beginning with the ack's own; a negative n takes all of it
away. A producer is its 6 bytes in base64, its clock 16 hexadecimal digits; ``{}`` stands for those of the ack
itself.

A producer is 12 characters in one form and 8 in the other, and ``{}`` is in one only. So which form it is
need not be guessed, and what is a bit of both is refused.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from penstock.errors import BadInput
from penstock.journals.format import names
from penstock.journals.format.uuids import Stamp, decode, parse_producer, producer_text

META = "_meta"
"""Where a document has its UUID."""

_CLOCKS = 1 << 64
_HEX = re.compile(r"[0-9a-f]{1,16}", re.IGNORECASE)
_PREFIXED = re.compile(r"0x[0-9a-f]{1,16}", re.IGNORECASE)
_LONG_DECIMAL = re.compile(r"[0-9]{17,20}")
_LETTERS = re.compile(r"[a-f]", re.IGNORECASE)
_DIGITS = 16
_ENCODED = 8
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


def encode_hints(hints: Iterable[Hint]) -> list[dict[str, Any]]:
    """Hints as JSON values, in the order of the journals' names."""
    encoded, before = [], ""
    for journal, group in groupby(sorted(set(hints)), key=lambda hint: hint.journal):
        kept = _common(before, journal)
        producers = [{"p": producer_text(hint.producer), "c": hint.clock} for hint in group]
        encoded.append({"j": [kept, journal[kept:]], "p": producers})
        before = journal
    return encoded


def decode_hints(document: Mapping[str, Any], journal: str) -> list[Hint]:
    """The hints of an acknowledgement that stands in ``journal``, whichever form they have.

    Raises `BadInput` with the reason for anything malformed, and for what is of neither form or of both.
    """
    value = document.get("hints", [])
    if not isinstance(value, list):
        raise BadInput("the hints are not a list")
    entries = [(_delta(entry, number), _producers(entry, number)) for number, entry in enumerate(value)]
    if _is_flows(document, [each for _, producers in entries for each in producers]):
        return list(_decoded_flows(entries, journal, document))
    return list(_decoded(entries))


def usual_hint(line: bytes) -> tuple[tuple[bytes, bytes], int] | None:
    """The hint of an acknowledgement that is written as `documents.encode_ack` does and has one; or None.

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
    return _named(journal, 0), parse_producer(producer)


_Entries = list[tuple[tuple[int, str], list[dict[str, Any]]]]


def _is_flows(document: Mapping[str, Any], producers: list[dict[str, Any]]) -> bool:
    """Whether the hints are in Flow's form; `BadInput` if that cannot be told."""
    forms = {_form(each) for each in producers} - {None}
    if document.get("is_ack") is True:
        forms.add("Flow's")
    if len(forms) > 1:
        raise BadInput(
            "the hints are a bit of both forms that there are, Flow's and ours",
            hint="producers are 12 hexadecimal digits beside _meta.ack, or base64 beside is_ack",
        )
    return "Flow's" in forms


def _form(producer: dict[str, Any]) -> str | None:
    """The form of an entry of a producer; None if it is malformed in both."""
    if not producer:
        return "Flow's"
    text = producer.get("p")
    if not isinstance(text, str):
        return None
    return {_ENCODED: "Flow's", 12: "ours"}.get(len(text))


def _delta(entry: Any, number: int) -> tuple[int, str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("p"), list):
        raise BadInput(f"hint {number} is not an object with j and p")
    match entry.get("j"):
        case [bool(), _]:
            pass
        case [int(count), str(suffix)]:
            return count, suffix
    raise BadInput(f"the journal of hint {number} is not [count of characters, suffix]")


def _producers(entry: dict[str, Any], number: int) -> list[dict[str, Any]]:
    for each in entry["p"]:
        if not isinstance(each, dict) or (each and not {"p", "c"} <= each.keys()):
            raise BadInput(f"hint {number} has a producer that is not an object with p and c")
    return list(entry["p"])


def _decoded(entries: _Entries) -> Iterator[Hint]:
    journal = ""
    for number, ((kept, suffix), producers) in enumerate(entries):
        if not 0 <= kept <= len(journal):
            raise BadInput(
                f"the journal of hint {number} keeps {kept} characters of {journal!r}, which has not so many"
            )
        journal = _named(journal[:kept] + suffix, number)
        for each in producers:
            yield Hint(journal, parse_producer(each["p"]), _clock(each["c"], number))


def _decoded_flows(entries: _Entries, own: str, document: Mapping[str, Any]) -> Iterator[Hint]:
    before = own.encode()
    for number, ((lacking, suffix), producers) in enumerate(entries):
        if lacking > len(before):
            raise BadInput(
                f"the journal of hint {number} lacks {lacking} bytes of {before.decode()!r}, which has not "
                "so many",
                hint="names in hints are those of Flow: let the root be the one that they are relative to",
            )
        kept = before[: len(before) - lacking] if lacking >= 0 else b""
        try:
            journal = _named(kept.decode() + suffix, number)
        except UnicodeDecodeError:
            raise BadInput(f"the journal of hint {number} cuts a character of the one before") from None
        before = journal.encode()
        for each in producers:
            if each:
                yield Hint(journal, _flows_producer(each["p"], number), _flows_clock(each["c"], number))
            else:
                ack = _stamp(document)
                yield Hint(journal, ack.producer, ack.clock)


def _stamp(document: Mapping[str, Any]) -> Stamp:
    meta = document.get(META)
    return decode(meta.get("uuid") if isinstance(meta, Mapping) else None)


def _named(journal: str, number: int) -> str:
    wrong = names.problem(journal)
    if wrong is not None:
        raise BadInput(f"hint {number} names no journal, but {journal!r}: {wrong}")
    return journal


def _clock(value: Any, number: int) -> int:
    """A number. A text is taken if it can be read in one way only.

    16 digits, or letters among them, are hexadecimal, since all clocks of this age are written so; 17 digits
    or more are too many for that.
    """
    clock = value
    if isinstance(value, str):
        if _PREFIXED.fullmatch(value) or (
            _HEX.fullmatch(value) and (len(value) == _DIGITS or _LETTERS.search(value))
        ):
            clock = int(value, 16)
        elif _LONG_DECIMAL.fullmatch(value):
            clock = int(value)
        elif _HEX.fullmatch(value):
            raise BadInput(
                f"hint {number} has the clock {value!r}, which could be decimal or hexadecimal",
                hint="write it as a JSON number, or with 16 hexadecimal digits",
            )
    if isinstance(clock, bool) or not isinstance(clock, int) or not 0 <= clock < _CLOCKS:
        raise BadInput(f"hint {number} has a clock that is no number of 64 bits: {str(value)[:60]!r}")
    return clock


def _flows_clock(value: Any, number: int) -> int:
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise BadInput(
            f"hint {number} has a clock that is not 16 hexadecimal digits as a text: {str(value)[:60]!r}"
        )
    return int(value, 16)


def _flows_producer(value: Any, number: int) -> int:
    try:
        found = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        found = b""
    if len(found) != 6:
        raise BadInput(f"hint {number} has a producer that is not 6 bytes in base64: {str(value)[:60]!r}")
    return parse_producer(found.hex())


def _common(first: str, second: str) -> int:
    """How many characters two names begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
