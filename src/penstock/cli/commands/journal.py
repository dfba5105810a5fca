"""``penstock journal``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from penstock.cli import exits
from penstock.cli.actions.journals import Line, feed, find, last_lines, lines, split
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, JsonOutput, amount, count, size
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.journals import Appended, JournalReader, Summary
    from penstock.journals.reader.verify import JournalReport
    from penstock.streams.views.frontiers import FrontierView

_POLL = 0.2
_VERIFY_EXITS = f"""\b
Exit codes:
  {exits.COMPLETE:>2}  every journal is right
  {exits.FAILED:>2}  problems were found"""


@dataclass(frozen=True, slots=True)
class Listing:
    """Journals below a root."""

    journals: Sequence[Summary]

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "journal": s.journal,
                "fragments": s.fragments,
                "bytes": s.bytes,
                "begin": s.begin,
                "head": s.head,
                "written": _time(s.written),
            }
            for s in self.journals
        ]

    def blocks(self) -> list[Block]:
        rows = [
            (s.journal, amount(s.fragments), size(s.bytes), amount(s.head), _time(s.written) or "")
            for s in self.journals
        ]
        right = ("fragments", "bytes", "head")
        return [Grid(("journal", "fragments", "bytes", "head", "written"), rows, right)]


@dataclass(frozen=True, slots=True)
class DocumentListing:
    """Documents with their offsets."""

    lines: Sequence[Line]

    def to_json(self) -> list[dict[str, Any]]:
        return [{"offset": line.offset, "document": line.document()} for line in self.lines]

    def blocks(self) -> list[Block]:
        return [line.data.decode(errors="replace").rstrip("\n") for line in self.lines]


@dataclass(frozen=True, slots=True)
class Done:
    """What was appended."""

    journal: str
    producer: str
    parts: Sequence[Appended]
    documents: int

    def to_json(self) -> dict[str, Any]:
        return {
            "journal": self.journal,
            "producer": self.producer,
            "documents": self.documents,
            "begin": self.parts[0].begin if self.parts else None,
            "end": self.parts[-1].end if self.parts else None,
        }

    def blocks(self) -> list[Block]:
        return [f"{count(self.documents, 'document')} appended to {self.journal} by producer {self.producer}"]


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in some journals."""

    reports: Sequence[JournalReport]

    def to_json(self) -> list[JournalReport]:
        return list(self.reports)

    def blocks(self) -> Iterator[Block]:
        for report in self.reports:
            for problem in report.problems:
                yield f"{report.journal}: {problem.file}: offset {problem.offset}: {problem.what}"
            if report.more:
                yield f"{report.journal}: {count(report.more, 'more problem')}"
        rows = [
            (r.journal, amount(r.fragments), size(r.bytes), amount(r.documents), _problems(r))
            for r in self.reports
        ]
        right = ("fragments", "bytes", "documents", "problems")
        yield Grid(("journal", "fragments", "bytes", "documents", "problems"), rows, right)


@dataclass(frozen=True, slots=True)
class FrontierTable:
    """How far a stream has read its journals."""

    view: FrontierView

    def to_json(self) -> dict[str, Any]:
        view = self.view
        return {
            "stream": view.stream,
            "epoch": view.epoch,
            "behind_bytes": view.behind,
            "waiting_bytes": view.waiting,
            "journals": [
                {
                    "source": each.source,
                    "journal": each.journal,
                    "offset": each.position.offset,
                    "head": each.head,
                    "behind_bytes": each.behind,
                    "open_transactions": each.open,
                    "left_out": each.position.left_out,
                    "lost_bytes": each.position.lost,
                }
                for each in view.journals
            ],
            "awaited": [
                {"journal": journal, "producer": f"{producer:012x}", "clock": clock}
                for journal, producer, clock in view.awaited
            ],
            "frontier": view.frontier.to_json(),
        }

    def blocks(self) -> Iterator[Block]:
        view = self.view
        yield Facts(
            [
                ("stream", f"{view.stream}, after epoch {view.epoch}"),
                ("behind", f"{size(view.behind)} in {count(len(view.journals), 'journal')}"),
                ("read, not visible yet", size(view.waiting)),
            ]
        )
        rows = [
            (
                each.source,
                each.journal,
                amount(each.position.offset),
                "gone" if each.head is None else amount(each.head),
                size(each.behind),
                amount(len(each.position.producers)),
                amount(each.open),
            )
            for each in view.journals
        ]
        titles = ("source", "journal", "read to", "head", "behind", "producers", "open")
        yield Grid(titles, rows, titles[2:])
        for journal, producer, clock in view.awaited:
            yield f"waits for the ack of producer {producer:012x} with clock {clock} in {journal}"


@click.group()
def command() -> None:
    """Look at journals, read, check and append to them."""


@command.command()
@click.argument("root", default=".")
@click.option("--prefix", default="", help="Only journals whose names begin with this.")
@with_context
def ls(context: CommandContext, root: str, prefix: str) -> None:
    """List the journals below ROOT, a folder or an object-store URL."""
    found = find(root).summaries(prefix)
    if not found:
        context.output.say(f"there are no journals in {root}")
    context.output.show(Listing(found))


@command.command()
@click.argument("root")
@click.argument("journal")
@click.option("--from", "begin", type=click.IntRange(min=0), metavar="OFFSET", help="Begin with this line.")
@click.option("--to", "end", type=click.IntRange(min=0), metavar="OFFSET", help="End before this line.")
@click.option("--offsets", is_flag=True, help="Print the offset of each line before it.")
@with_context
def cat(
    context: CommandContext, root: str, journal: str, begin: int | None, end: int | None, offsets: bool
) -> None:
    """Print the documents of a journal as they are, committed or not."""
    found = lines(find(root, journal), journal, begin, end)
    if isinstance(context.output, JsonOutput):
        context.output.show(DocumentListing(list(found)))
        return
    for line in found:
        _print(line, offsets)
    sys.stdout.buffer.flush()


@command.command()
@click.argument("root")
@click.argument("journal")
@click.option("-n", "number", type=click.IntRange(min=0), default=10, show_default=True, help="How many.")
@click.option("-f", "follow", is_flag=True, help="Go on with what is appended, until Ctrl-C.")
@click.option("--offsets", is_flag=True, help="Print the offset of each line before it.")
@with_context
def tail(context: CommandContext, root: str, journal: str, number: int, follow: bool, offsets: bool) -> None:
    """Print the last documents of a journal."""
    if follow and isinstance(context.output, JsonOutput):
        raise UsageError("-f has no end, and --json is one value", hint="leave one of them out")
    journals = find(root, journal)
    last, end = last_lines(journals, journal, number)
    if isinstance(context.output, JsonOutput):
        context.output.show(DocumentListing(last))
        return
    for line in last:
        _print(line, offsets)
    sys.stdout.buffer.flush()
    if follow:
        _follow(journals.reader(journal, end), offsets)


@command.command()
@click.argument("root")
@click.argument("journal")
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--producer", metavar="HEX", help="12 hexadecimal digits; a new one if it is left out.")
@click.option("--transaction", is_flag=True, help="Commit all documents together, at the end of the input.")
@click.option("--raw", is_flag=True, help="Take lines with their UUIDs as they are, after checking them.")
@with_context
def append(
    context: CommandContext,
    root: str,
    journal: str,
    source: IO[bytes],
    producer: str | None,
    transaction: bool,
    raw: bool,
) -> None:
    """Append JSON lines from FILE, or from stdin, to a journal below the folder ROOT."""
    from penstock.journals import JournalWriter
    from penstock.journals.format import names
    from penstock.journals.format.uuids import parse_producer, producer_text

    names.check(journal)
    if raw and (transaction or producer is not None):
        raise UsageError("lines of --raw carry their producers and transactions themselves")
    number = None if producer is None else parse_producer(producer)
    with JournalWriter(root, producer=number) as writer:
        if number is not None:
            # Whoever used this producer before may have been killed in a transaction.
            writer.roll_back(journal)
        parts, documents = feed(writer, journal, source, transaction=transaction, raw=raw)
        context.output.show(Done(journal, producer_text(writer.producer), parts, documents))


@command.command()
@click.argument("root")
@click.argument("journal")
@click.option("--producer", metavar="HEX", required=True, help="12 hexadecimal digits.")
@click.option("--clock", type=click.IntRange(min=1), required=True, help="That of the acknowledgement.")
@click.option("--create", is_flag=True, help="Also if the journal is gone, with what was in it.")
@click.option(
    "--at",
    metavar="OFFSET",
    type=click.IntRange(min=0),
    help="With --create: where the journal begins; 0 if it is left out.",
)
@with_context
def ack(
    context: CommandContext,
    root: str,
    journal: str,
    producer: str,
    clock: int,
    create: bool,
    at: int | None,
) -> None:
    """Write the acknowledgement that a producer owes to a journal, since it was killed before it could.

    It commits what the producer has left open there up to this clock. Streams name producer and clock when a
    transaction waits for it.

    A stream that has read a journal up to some offset goes on from there. If the journal is gone, let it
    begin at this offset, which `penstock journal frontier` shows.
    """
    from penstock.journals import Ack, JournalWriter, Stamp
    from penstock.journals.format.documents import encode_ack
    from penstock.journals.format.uuids import Flag, parse_producer

    if at is not None and not create:
        raise UsageError(
            "--at says where a journal begins that is gone", hint="add --create, or leave it out"
        )
    number = parse_producer(producer)
    document = encode_ack(Stamp(number, clock, Flag.ACK)).decode().rstrip("\n")
    find(root, *(() if create else (journal,)))
    with JournalWriter(root) as writer:
        if at is not None:
            writer.begin(journal, at)
        writer.recover([Ack(journal, document)])
    context.output.say(f"producer {producer} is acknowledged in {journal} up to clock {clock}")


@command.command(epilog=_VERIFY_EXITS)
@click.argument("root")
@click.argument("journals", nargs=-1, metavar="[JOURNAL]...")
@with_context
def verify(context: CommandContext, root: str, journals: tuple[str, ...]) -> int:
    """Read journals, or all of them, and tell every problem: what is missing, damaged or no document."""
    from penstock.journals.reader.verify import verify as verified
    from penstock.journals.reader.verify import verify_all

    found = find(root, *journals)
    reports = [verified(found, journal) for journal in journals] if journals else list(verify_all(found))
    context.output.show(Verified(reports))
    return exits.COMPLETE if all(report.is_right for report in reports) else exits.FAILED


@command.command()
@click.argument("stream")
@with_context
def frontier(context: CommandContext, stream: str) -> None:
    """Show how far STREAM has read its journals, and how many bytes it is behind."""
    from penstock.streams.views import frontiers

    context.output.show(FrontierTable(frontiers.look(context.known, context.storage, stream)))


def _follow(reader: JournalReader, offsets: bool) -> None:
    """Print what comes, until Ctrl-C."""
    try:
        while True:
            chunk = reader.read(1 << 20)
            if chunk is None:
                time.sleep(_POLL)
                continue
            for line in split(chunk):
                _print(line, offsets)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        return
    finally:
        reader.close()


def _print(line: Line, offsets: bool) -> None:
    out = sys.stdout.buffer
    out.write(b"%d\t%s" % (line.offset, line.data) if offsets else line.data)


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _problems(report: JournalReport) -> str:
    return amount(len(report.problems) + report.more)
