"""Where the records of a text begin and end, found without a loop over bytes or rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Offsets: TypeAlias = npt.NDArray[np.int64]

_NEWLINE, _RETURN = 10, 13
_BLANK = np.frombuffer(b" \t\r\n", dtype=np.uint8)


class LoneReturnError(ValueError):
    """A line ends with a carriage return alone, which no two CSV readers agree about."""


@dataclass(frozen=True, slots=True)
class TextRecords:
    """The records of a text: each is ``text[starts[i]:ends[i]]``, its line end included.

    ``consumed`` is where the first incomplete record begins.
    """

    starts: Offsets
    ends: Offsets
    consumed: int


def csv_records(text: bytes, delimiter: str, quote: str, *, final: bool) -> TextRecords:
    """Records of CSV text that begins at a record; a quoted line break does not end one.

    Blank lines are not records, and a quote inside an unquoted field is an ordinary character:
    both as pyarrow's parser has it. ``final`` says that no text follows, so that a record need
    not end with a line break.
    """
    data = np.frombuffer(text, dtype=np.uint8)
    quotes = _quotes(text, data, ord(delimiter), ord(quote)) if quote and quote.encode() in text else None
    ends = _outside(np.flatnonzero(data == _NEWLINE), quotes)
    if b"\r" in text:
        returns = np.flatnonzero(data[:-1] == _RETURN)
        lone = returns[data[returns + 1] != _NEWLINE]
        if len(_outside(lone, quotes)):
            raise LoneReturnError
    inside = quotes is not None and len(quotes) % 2 == 1
    return _records(data, ends + 1, final=final and not inside, blank_spaces=False)


def json_records(text: bytes, *, final: bool) -> TextRecords:
    """Records of JSON-lines text that begins at a record; lines of white space are not records."""
    data = np.frombuffer(text, dtype=np.uint8)
    return _records(data, np.flatnonzero(data == _NEWLINE) + 1, final=final, blank_spaces=True)


def _records(data: npt.NDArray[np.uint8], ends: Offsets, *, final: bool, blank_spaces: bool) -> TextRecords:
    if final and len(data) and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    if not len(ends):
        return TextRecords(ends, ends, 0)
    starts = np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1]))
    first = data[starts]
    second = data[np.minimum(starts + 1, ends - 1)]
    blank = (first == _NEWLINE) | ((first == _RETURN) & ((second == _NEWLINE) | (ends - starts == 1)))
    if blank_spaces:
        # Few lines begin with white space, so that looking at each of them costs nothing.
        for i in np.flatnonzero(np.isin(first, _BLANK) & ~blank):
            blank[i] = bool(np.isin(data[starts[i] : ends[i]], _BLANK).all())
    return TextRecords(starts[~blank], ends[~blank], int(ends[-1]))


def _outside(positions: Offsets, quotes: Offsets | None) -> Offsets:
    """Those of the positions that an even number of quotes precedes."""
    if quotes is None:
        return positions
    outside: Offsets = positions[(np.searchsorted(quotes, positions) & 1) == 0]
    return outside


def _quotes(text: bytes, data: npt.NDArray[np.uint8], delimiter: int, quote: int) -> Offsets:
    """The quotes that open or close a field, in turn."""
    quotes = np.flatnonzero(data == quote)
    opening = quotes[::2]
    before = data[opening - 1]
    # A quote right after a closing one opens the field again: that is how a quote is written in a field.
    good = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN) | (before == quote)
    if bool((good | (opening == 0)).all()):
        return quotes
    return _telling_quotes(text, quotes, delimiter)


def _telling_quotes(text: bytes, quotes: Offsets, delimiter: int) -> Offsets:
    """As `_quotes`, for text where some quotes are ordinary characters: one step per quote."""
    telling: list[int] = []
    inside, closed = False, -2
    for at in quotes.tolist():
        if inside:
            inside, closed = False, at
            telling.append(at)
        elif at == 0 or closed == at - 1 or text[at - 1] in (delimiter, _NEWLINE, _RETURN):
            inside = True
            telling.append(at)
    return np.array(telling, dtype=np.int64)
