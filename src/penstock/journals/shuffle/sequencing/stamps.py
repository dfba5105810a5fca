"""Many UUIDs of documents at once: producers, clocks and flags as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Array: TypeAlias = "np.ndarray[Any, Any]"

_LENGTH = 36
_BAD = 0xFF
_HYPHENS = (8, 13, 18, 23)
_DIGITS = [n for n in range(_LENGTH) if n not in _HYPHENS]


def _nibbles() -> Array:
    table = np.full(256, _BAD, np.uint8)
    for value, digit in enumerate("0123456789abcdef"):
        table[ord(digit)] = table[ord(digit.upper())] = value
    return table


_NIBBLES = _nibbles()


@dataclass(frozen=True, slots=True)
class Stamps:
    """One entry for each document. ``flag`` has the low two bits; ``bad`` marks those that are no stamps."""

    producer: Array
    clock: Array
    flag: Array
    bad: Array

    @classmethod
    def parse(cls, texts: pa.Array) -> Stamps:
        """The stamps in an array of texts; what is null or malformed is bad, and its numbers mean nothing."""
        digits, bad = _digits(texts)
        low = _word(digits, 0, 8)
        middle = _word(digits, 8, 12)
        high = _word(digits, 12, 16)
        sequence = _word(digits, 16, 20)
        producer = _word(digits, 20, 32)
        counter = (sequence >> np.uint64(10)) & np.uint64(15)
        clock = (low << np.uint64(4)) | (middle << np.uint64(36))
        clock |= ((high & np.uint64(0xFFF)) << np.uint64(52)) | counter
        flag = (sequence & np.uint64(3)).astype(np.uint8)
        bad = bad | (high >> np.uint64(12) != 1) | (sequence >> np.uint64(14) != 2) | (flag == 3)
        bad |= (producer >> np.uint64(40)) & np.uint64(1) == 0
        return cls(producer, clock, flag, bad)


def _digits(texts: pa.Array) -> tuple[Array, Array]:
    """The 32 digits of each text as numbers, and which texts are not of this form."""
    count = len(texts)
    lengths = texts.is_null().to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + count + 1]
    bad = lengths | (np.diff(offsets) != _LENGTH)
    if bad.any():
        filled = pa.array(
            ["0" * _LENGTH if wrong else text for wrong, text in zip(bad, texts.to_pylist(), strict=True)]
        )
        digits, _ = _digits(filled)
        return digits, bad | _misfits(digits, filled)
    content = _content(texts, offsets)
    digits = _NIBBLES[content[:, _DIGITS]]
    return digits, _misfits(digits, texts)


def _content(texts: pa.Array, offsets: Array) -> Array:
    if not len(texts):
        return np.zeros((0, _LENGTH), np.uint8)
    found: Array = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, _LENGTH)
    return found


def _misfits(digits: Array, texts: pa.Array) -> Array:
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    hyphens = _content(texts, offsets)[:, _HYPHENS] != ord("-")
    found: Array = (digits == _BAD).any(axis=1) | hyphens.any(axis=1)
    return found


def _word(digits: Array, begin: int, end: int) -> Array:
    word = np.zeros(len(digits), np.uint64)
    for place in range(begin, end):
        word = (word << np.uint64(4)) | (digits[:, place] & 0xF).astype(np.uint64)
    return word
