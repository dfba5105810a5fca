"""What the commands about journals do: find, read and feed them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from penstock.errors import BadInput, JournalGap, PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.journals import Appended, Chunk, Journals, JournalWriter

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a journal, with its end."""

    offset: int
    data: bytes

    def document(self) -> Any:
        """The JSON value on it, or its text if it is none."""
        try:
            return json.loads(self.data)
        except ValueError:
            return self.data.decode(errors="replace")


def find(root: str, *wanted: str) -> Journals:
    """The journals below a root, which must be there, as must be the ones that are named."""
    from penstock.journals import Journals

    journals = Journals(root)
    if journals.storage.local is not None and not Path(journals.root).is_dir():
        raise UsageError(f"there is no folder {root}", hint="name a folder with journals, or an URL")
    for journal in wanted:
        if journals.head(journal) is None:
            raise UsageError(
                f"there is no journal {journal} in {root}", hint=f"`penstock journal ls {root}` lists them"
            )
    return journals


def lines(journals: Journals, journal: str, begin: int | None, end: int | None) -> Iterator[Line]:
    """The lines that are there now and begin at ``begin`` or behind it, and before ``end``."""
    head = journals.head(journal) or 0
    stop = head if end is None else min(end, head)
    start = journals.begin(journal) or 0 if begin is None else _line_at(journals, journal, begin)
    with journals.reader(journal, start) as reader:
        while reader.offset < stop and (chunk := reader.read(_BLOCK)):
            for line in split(chunk):
                if line.offset >= stop:
                    return
                yield line


def _line_at(journals: Journals, journal: str, offset: int) -> int:
    """Where the first line begins that begins at an offset or behind it."""
    if offset <= (journals.begin(journal) or 0):
        return offset
    try:
        with journals.reader(journal, offset - 1) as reader:
            rest = reader.read(1)
    except JournalGap:
        return offset
    return offset if rest is None else rest.end


def last_lines(journals: Journals, journal: str, number: int) -> tuple[list[Line], int]:
    """The last lines, and the offset behind them."""
    head, begin = journals.head(journal) or 0, journals.begin(journal) or 0
    back = 1 << 16
    while True:
        start = max(begin, head - back)
        last: deque[Line] = deque(maxlen=number + 1)
        end = start
        with journals.reader(journal, start) as reader:
            while reader.offset < head and (chunk := reader.read(_BLOCK)):
                last.extend(split(chunk))
                end = reader.offset
        # The first line may be the end of one that begins before the place to which was gone back.
        if start == begin:
            return list(last)[-number:] if number else [], end
        if len(last) == number + 1:
            return list(last)[1:], end
        back *= 8


def split(chunk: Chunk) -> Iterator[Line]:
    """The lines of a chunk."""
    offset = chunk.begin
    for text in chunk.data.split(b"\n")[:-1]:
        yield Line(offset, text + b"\n")
        offset += len(text) + 1


def feed(
    writer: JournalWriter, journal: str, file: IO[bytes], *, transaction: bool, raw: bool
) -> tuple[Sequence[Appended], int]:
    """Append the lines of a file as they come. An error says up to which line they are appended."""
    parts: list[Appended] = []
    done = seen = 0
    with writer.transaction() if transaction else nullcontext() as open_transaction:
        try:
            for block in _blocks(file):
                if raw:
                    parts.append(writer.append_lines(journal, block))
                    done += parts[-1].documents
                    continue
                documents = [_document(line, n) for n, line in _numbered(block, seen) if line.strip()]
                seen += block.count(b"\n")
                if open_transaction is not None:
                    open_transaction.append(journal, documents)
                elif documents:
                    parts.append(writer.append(journal, documents))
                done += len(documents)
        except PenstockError as error:
            kept = "nothing" if transaction else f"the first {done:,} documents"
            raise type(error)(
                error.what, left=f"{kept} of the input were appended", hint=error.hint
            ) from error
    return parts, done


def _numbered(block: bytes, seen: int) -> Iterator[tuple[int, bytes]]:
    return enumerate(block.split(b"\n"), seen + 1)


def _document(line: bytes, number: int) -> dict[str, Any]:
    from penstock.journals.format.documents import parse

    try:
        document = parse(line)
        meta = document.get("_meta")
        if isinstance(meta, dict) and "uuid" in meta:
            raise BadInput("the document has a UUID already", hint="--raw takes such lines as they are")
    except BadInput as error:
        raise BadInput(f"line {number:,}: {error.what}", hint=error.hint) from None
    return document


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, as many as are there; the last one may lack its end."""
    read: Any = getattr(file, "read1", file.read)
    rest = b""
    while data := read(_BLOCK):
        whole, newline, after = data.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = after
        else:
            rest += data
    if rest:
        yield rest + b"\n"
