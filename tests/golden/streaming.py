"""Streams: records, logs, files of epochs, claims of outputs, tables of sinks, states of parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.config.tls import Tls
from penstock.core.codec import schema_to_text
from penstock.journals.shuffle.queues.keys import clock_queues, key_queues
from penstock.journals.shuffle.queues.run_files import (
    QueueRun,
    RunFile,
    RunWriter,
    Settled,
    clocks,
    group_id,
    without_hidden,
)
from penstock.journals.shuffle.sequencing.sequencing import Sequence
from penstock.journals.shuffle.slices.positions import Held, JournalPosition, Track
from penstock.journals.shuffle.visibility.coordinator import ShuffleState, SliceReport
from penstock.journals.shuffle.visibility.cuts import Cuts
from penstock.journals.shuffle.visibility.frontier import Frontier, Mark
from penstock.journals.shuffle.visibility.joint import Acks
from penstock.sinks.base import application
from penstock.sinks.parquet import document as parquet_document
from penstock.sinks.parquet.document import TablePlace, TableShape, TableState, document_key
from penstock.sinks.parquet.manifests import BatchEntry, Folded, ManifestNode, Manifests
from penstock.sources import state
from penstock.sources.base import PartName
from penstock.storage import FileRecord, Storage
from penstock.store.memory import MemoryStore
from penstock.streams import registry, supervisors
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest import shuffle_files
from penstock.streams.ingest.absent_journals import read_absent
from penstock.streams.ingest.epoch_files import EpochFiles
from penstock.streams.ingest.finished_parts import (
    FINISHED,
    STATES,
    FinishedParts,
    FinishedSegment,
    StatesFile,
    read_stated,
    read_states,
)
from penstock.streams.ingest.jobs.intake import Intake
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_states import position_of, state_of
from penstock.streams.ingest.part_lists import announced
from penstock.streams.layout import Layout, document
from penstock.streams.log import readers, schemas, segments
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.segments import LogDocument, LogSegment, read_segment
from penstock.streams.log.source_options import ReadOptions
from penstock.streams.model import Brought, Epoch, PartState, Pointer, RowFile, Standing
from penstock.streams.outputs import claims
from penstock.streams.outputs.claims import OutputClaim, OutputClaims
from penstock.streams.place import Place
from penstock.streams.registry import StreamRecord
from penstock.streams.supervisors import SupervisorEntry
from penstock.types.tables import Table
from tests.golden.kit import (
    Golden,
    as_json,
    listing,
    numbered,
    replaced,
    rows_of,
    storage_with,
    stored,
    text,
    with_schemas,
)

LAYOUT = Layout("clicks", "1a2b3c4d")
LIFE = "5eed0001"
EPOCH = 300
MEMBER = "node-1"
AT = "2026-01-02T03:04:05+00:00"


class Clicks(Table):
    page: str
    at: datetime


FILE = FileRecord("streams/clicks-1a2b3c4d/rows/0000000001/0000000000000300/a.arrow", 10, 1_000, "ab" * 32)
LATE = FileRecord("streams/clicks-1a2b3c4d/rows/0000000001/0000000000000300/b.arrow", 2, 500, "cd" * 32)
ROW_FILES = (RowFile("clicks", FILE, newest=1_700_000_000_000_000), RowFile("clicks", LATE, late=True))
PORTION = Pointer(LAYOUT.portion(EPOCH, MEMBER, LIFE), "ef" * 32)
BROUGHT = Brought(MEMBER, PORTION, 10, 1_500, 2, {"clicks": 1_600_000_000_000_000})
STANDING = Standing(
    states=Pointer("states.json", "01" * 32),
    listing=Pointer("listing.json", "02" * 32),
    newest={"clicks": 5},
    finished=Pointer("finished.json", "03" * 32),
    report=Pointer("report.json", "04" * 32),
    session=Pointer("session.json", "05" * 32),
    low={"clicks": 3},
    watermark={"clicks": 2},
    open=7,
    problems={"orders": "no folder"},
)
PARTS = {
    PartName("clicks", "a/b.csv"): PartState('1:{"row":3}', newest=5, idle=True),
    PartName("clicks", "c"): PartState(),
    PartName("orders", "x"): PartState("1:7"),
}
QUEUES = {PartName("orders", "0"): PartState(newest=9)}
DONE = {
    PartName("clicks", "old.csv"): PartState("1:10", finished=True),
    PartName("clicks", "older.csv"): PartState("1:null", finished=True, newest=1),
}
FINISHED_PARTS = FinishedParts(
    DONE,
    (FinishedSegment(Pointer("segment.json", "06" * 32), 1_024),),
    {"clicks": {"files": "/data", "format": "csv"}},
)
EPOCHS = (Epoch(299, (BROUGHT,), at=AT), Epoch(300, (), ended=True))
LOG = LogDocument(
    floor=3,
    cleared=2,
    swept=1,
    taken=300,
    ended=300,
    rows=10,
    late=2,
    turn=4,
    segments=(LogSegment(Pointer("segment.json", "07" * 32), 3, 300, 2, 10, 1_500),),
)
RECORD = StreamRecord(
    "clicks",
    "1a2b3c4d",
    {"sources": {"clicks": {"kind": "penstock.sources.files.DirectorySource"}}, "outputs": {}},
    AT,
    "suspended",
    3,
    5,
)
CLAIM = OutputClaim(
    MEMBER, "session-1", 4, 17, 300, {"clicks": 300}, ("clicks",), True, "the disk is full", 3, 16
)
POSITION = readers.ReaderPosition("counts.clicks", 299, AT, output="counts")
HOLD = readers.ReaderPosition("a batch read", 2, AT, session="session-9")
SUPERVISOR = SupervisorEntry("sup-1", "session-3", "host", 4_711, 2, AT)
PLACE = Place(
    "etcd://host:2379/penstock", "s3://bucket/penstock", "clicks", "1a2b3c4d", Tls("ca", "cert", "key")
)
OPTIONS = ReadOptions(
    PLACE,
    "clicks",
    late=None,
    reader="mine",
    ranges="/tmp/ranges.json",
    tasks=2,
    rows=7,
    epochs=8,
    wait=0.25,
    at_epoch=9,
    hold_for=60.0,
    from_oldest=True,
    output="counts",
    counted=("page", "a, b"),
    watermarks=True,
)
STATE = {
    "none": None,
    "yes": True,
    "int": 2**70,
    "float": 0.1,
    "nan": float("inf"),
    "str": 'ä"\n',
    "bytes": b"\x00\xff",
    "date": date(2026, 1, 2),
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2))),
    "naive": datetime(2026, 1, 2),
    "decimal": Decimal("1.20"),
    "uuid": UUID(int=1),
    "list": [1, [2, {"$bytes": "escaped"}]],
    "$dollar": {"$$": 1},
}

# journals

RUN_RECORD = FileRecord("streams/clicks-1a2b3c4d/runs/r.arrow", 3, 900, "de" * 32)
RUN_FILE = RunFile(
    "orders", EPOCH, RUN_RECORD, (QueueRun(0, 0, 2, 10, 12), QueueRun(1, 7, 1, 2**64 - 1, 2**64 - 1))
)
JOURNAL = JournalPosition(
    4_096,
    {
        1: Track(Sequence(100), 4_000),
        0xFEDC_BA98_7654: Track(Sequence(50, 90, 3_000), 3_500),
    },
    left_out=2,
    lost=64,
    held={0xFEDC_BA98_7654: Held(3_400, 70, (RUN_FILE,))},
    forgotten=40,
)
MARKS = (
    ("orders/eu/pivot=00", Mark(1, 100, 0, -4_000)),
    ("orders/eu/pivot=00", Mark(2, 50, 90, 3_000)),
    ("orders/us/pivot=00", Mark(1, 0, 110, 0)),
)
JOINT = ((Acks("orders/eu/pivot=00", 1, 100, 100), Acks("orders/us/pivot=00", 2, 90, 95)),)
FRONTIER = Frontier.of(MARKS, joint=JOINT)
REPORT = SliceReport(EPOCH, FRONTIER, (RUN_FILE,), (replace(RUN_FILE, epoch=299),))
SESSION = ShuffleState(
    EPOCH,
    {
        "0 0.0": Cuts(FRONTIER, Frontier.of(MARKS), 298, 299, 300, 12.5, {("orders/eu/pivot=00", 1): 99}),
        "1 0.5": Cuts(),
    },
    (RUN_FILE,),
    ("streams/clicks-1a2b3c4d/runs/old.arrow",),
)

ORDERS = pa.schema([pa.field("order", pa.string(), False), pa.field("_clock", pa.int64())])
SHAPE = TableShape(schema_to_text(ORDERS), "update", ("order",), "s3://elsewhere")
NODES = (
    ManifestNode(0, 15, 15, 290, 299, 2, "08" * 32),
    ManifestNode(0, 16, 16, 300, 300, 1, "09" * 32),
)
TABLE = TableState(SHAPE, 4, 16, 300, 12, True, (NODES, (ManifestNode(1, 0, 14, 12, 289, 40, "0a" * 32),)))
ENTRY = BatchEntry(16, 300, 4, (FILE, LATE))


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _pointed(read: Callable[[Storage, Pointer], Any]) -> Callable[[bytes], Any]:
    """Reads bytes as the file that a pointer points to."""

    def reading(data: bytes) -> Any:
        with storage_with({"a/file.json": data}) as storage:
            return read(storage, Pointer("a/file.json", _sha(data)))

    return reading


def _written(path: str, write: Callable[[EpochFiles], object]) -> Callable[[], bytes]:
    """What `EpochFiles` of an instance writes at this path."""

    def writing() -> bytes:
        with storage_with() as storage:
            files = EpochFiles(storage, LAYOUT, MEMBER)
            files._life = LIFE
            write(files)
            assert [each for each, _ in storage.list()] == [path]
            return storage.read(path)

    return writing


def _polled() -> Polled:
    return Polled(states={}, files=ROW_FILES)


def _log_of(data: bytes) -> Any:
    with storage_with() as storage:
        return EpochLog(stored(LAYOUT.log_key, data), storage, LAYOUT)._document()[0]


def _holds_of(key: str, data: bytes) -> ReaderPositions:
    with storage_with() as storage:
        return ReaderPositions(EpochLog(stored(key, data), storage, LAYOUT))


def _held_in(data: bytes) -> Any:
    key = f"{LAYOUT.holds}session-9"
    return [readers._decode(each) for each in stored(key, data).scan(LAYOUT.holds)]


def _table(data: bytes) -> Any:
    with storage_with() as storage:
        key = "streams/clicks/1a2b3c4d/outputs/counts/table"
        place = TablePlace.of(stored(key, data), storage, LAYOUT, "counts", "/elsewhere")
        found = place.read()
        return found.state if found else None


def _manifest_of(level: int, nodes: bool) -> Callable[[bytes], Any]:
    def reading(data: bytes) -> Any:
        with storage_with() as storage:
            manifests = Manifests(storage, "manifests")
            node = ManifestNode(level, 15, 16, 290, 300, 3, _sha(data))
            storage.write(manifests.path(node), data)
            found = manifests._open(node)
            return tuple(found) if nodes else manifests.read([node]).entries

    return reading


def _manifest(write: Callable[[Manifests], Any]) -> Callable[[], bytes]:
    def writing() -> bytes:
        with storage_with() as storage:
            manifests = Manifests(storage, "manifests")
            made = write(manifests)
            node = made.node if isinstance(made, Folded) else made
            return storage.read(manifests.path(node))

    return writing


def _rows_of(data: bytes) -> Any:
    with storage_with({"rows.arrow": data}) as storage, storage.open("rows.arrow") as file:
        return pa.ipc.open_file(file).read_all().to_pylist()


def _rows() -> bytes:
    from penstock.sources.base import Source

    class Here(Source):
        table = Clicks

        def list_parts(self) -> list[str]:
            return []

    spec = SourceSpec("clicks", Here())
    with storage_with() as storage:
        with Intake(storage, "rows/0-node-1", None, {}) as intake:
            intake.take(spec, "a", pa.RecordBatch.from_pylist(CLICKS, schema=Clicks.input_schema()))
        return storage.read("rows/0-node-1-clicks.arrow")


CLICKS = [
    {"page": "/", "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)},
    {"page": "/ä", "at": datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)},
]
ORDER_ROWS = [
    {"order": "one", "_clock": 1},
    {"order": "two", "_clock": None},
    {"order": "three", "_clock": 3},
]
GROUP = group_id("orders/eu/pivot=00", 1)


def _run_rows(data: bytes) -> Any:
    with storage_with({"run.arrow": data}) as storage, storage.open("run.arrow") as source:
        file = pa.ipc.open_file(source)
        batches = [file.get_batch(n) for n in range(file.num_record_batches)]
        return [
            (
                without_hidden(b).to_pylist(),
                clocks(b).tolist(),
                b.columns[-2].to_pylist(),
                b.columns[-1].to_pylist(),
            )
            for b in batches
        ]


def _run_file() -> bytes:
    clock, group = np.array([10, 12, 2**64 - 1], np.uint64), np.array([GROUP] * 3, np.uint64)
    commit = np.array([12, 12, 2**64 - 1], np.uint64)
    with storage_with() as storage:
        with RunWriter(storage, "runs/node-1", EPOCH, None) as writer:
            rows = pa.RecordBatch.from_pylist(ORDER_ROWS, schema=ORDERS)
            writer.add("orders", Settled(rows, clock, group, commit, np.array([0, 0, 7])))
        (path, _), *_ = storage.list()
        return storage.read(path)


def _queues() -> bytes:
    """Which queue a document belongs to: those of a key must stay together."""
    rows = pa.RecordBatch.from_pydict(
        {"t": ["", "ä", "a" * 40, None], "n": [0, -1, 2**62, None], "b": [True, False, None, True]}
    )
    found = {name: key_queues(rows, [f"/{name}"], 1_000).tolist() for name in rows.schema.names} | {
        "all": key_queues(rows, ["/t", "/n", "/b"], 1_000).tolist()
    }
    clock = clock_queues(np.array([0, 1, 2**64 - 1], np.uint64), 1_000).tolist()
    return text(*(f"{name}: {each}" for name, each in found.items()), f"clock: {clock}", GROUP)


def _layout() -> bytes:
    """Where everything of a stream stands: a file that is not found is as good as lost."""
    each = (MEMBER, LIFE)
    return text(
        LAYOUT.cluster,
        document("clicks"),
        LAYOUT.log_key,
        LAYOUT.readers,
        LAYOUT.holds,
        LAYOUT.output_key("counts"),
        document_key(LAYOUT, "counts"),
        LAYOUT.supervisors,
        LAYOUT.epoch_rows(EPOCH),
        LAYOUT.portion(EPOCH, *each),
        LAYOUT.states_file(EPOCH, *each),
        LAYOUT.finished_file(EPOCH, *each),
        LAYOUT.finished_segment(EPOCH, *each, 0),
        LAYOUT.report_file(EPOCH, *each),
        LAYOUT.session_file(EPOCH, *each),
        LAYOUT.epoch_runs(EPOCH),
        LAYOUT.listing(EPOCH, *each),
        LAYOUT.segment(3, 300, "00112233"),
        LAYOUT.output("counts"),
        Manifests(Storage("/nowhere"), f"{LAYOUT.output('counts')}/manifests").path(NODES[0]),
        TablePlace.of(MemoryStore(), Storage("/nowhere"), LAYOUT, "counts", None).attempt(16, 4, "00112233"),
        TablePlace.of(MemoryStore(), Storage("/nowhere"), LAYOUT, "counts", "/elsewhere").folder,
        readers.reader_name("counts", "clicks", None),
        readers.reader_name("counts", "clicks", True),
        application("clicks", "1a2b3c4d", "counts"),
    )


def _in_spark() -> bytes:
    """What stands in Spark's own checkpoints: names of columns and of states."""
    from penstock.streams.operators import stateful

    return text(
        schemas.WATERMARK, schemas.COUNT, schemas.END_MICROS, schemas.SHIFT, stateful._NAME, stateful._SCHEMA
    )


def _in_postgres() -> bytes:
    """The table in which a `PostgresSink` remembers its batches, and a table that it makes."""
    from psycopg.sql import Identifier

    from penstock.sinks.postgres import table as postgres_table
    from penstock.sinks.postgres.writer import PROGRESS

    connection = MagicMock()
    postgres_table.create_progress(connection, Identifier("public", PROGRESS))
    postgres_table.create(connection, "totals", ORDERS, ["order"])
    return text(*(call.args[0].as_string(None) for call in connection.execute.call_args_list))


def _options(data: bytes) -> Any:
    return ReadOptions.parse(json.loads(data))


GOLDEN = [
    Golden(
        "streams/record.json",
        RECORD,
        lambda data: registry.load(stored(document("clicks"), data), "clicks"),
        lambda: registry.RECORD.encode(RECORD),
        newer=numbered("format"),
    ),
    Golden("streams/log.json", LOG, _log_of, lambda: segments.LOG.encode(LOG), newer=numbered("format")),
    Golden(
        "streams/segment.json",
        EPOCHS,
        _pointed(read_segment),
        lambda: segments.SEGMENT.encode(segments.SegmentFile(EPOCHS)),
        newer=numbered("format"),
    ),
    Golden(
        "streams/portion.json",
        ROW_FILES,
        _pointed(lambda storage, pointer: replace(BROUGHT, portion=pointer).files(storage)),
        _written(PORTION.path, lambda files: files.portion(EPOCH, _polled(), {}, tell=False)),
        newer=numbered("format"),
    ),
    Golden(
        "streams/states.json",
        (PARTS, QUEUES),
        _pointed(read_stated),
        _written(
            LAYOUT.states_file(EPOCH, MEMBER, LIFE),
            lambda files: files.states(EPOCH, None, ({}, {}), (PARTS, QUEUES)),
        ),
        newer=numbered("format"),
    ),
    Golden(
        "streams/finished.json",
        FINISHED_PARTS,
        _pointed(FinishedParts.read),
        lambda: FINISHED.encode(FINISHED_PARTS.index()),
        newer=numbered("format"),
    ),
    Golden(
        "streams/finished-segment.json",
        DONE,
        _pointed(read_states),
        lambda: STATES.encode(StatesFile.of(DONE)),
        newer=numbered("format"),
    ),
    Golden(
        "streams/listing.json",
        ({"clicks": frozenset({"a", "b/ä"}), "orders": frozenset({"x"})}, frozenset()),
        _pointed(lambda storage, pointer: announced(storage, [Standing(listing=pointer)])),
        _written(
            LAYOUT.listing(EPOCH, MEMBER, LIFE),
            lambda files: files.listing(
                EPOCH, {"clicks": frozenset({"b/ä", "a"}), "none": frozenset(), "orders": frozenset({"x"})}
            ),
        ),
        newer=numbered("format"),
    ),
    Golden(
        "streams/absent.json",
        {"orders": {"eu/pivot=00": 30, "us/pivot=00": 0}},
        _pointed(read_absent),
        _written(
            LAYOUT.absent_file(EPOCH, MEMBER, LIFE),
            lambda files: files.absent(EPOCH, None, {}, {"orders": {"eu/pivot=00": 30, "us/pivot=00": 0}}),
        ),
        newer=numbered("format"),
    ),
    Golden(
        "streams/report.json",
        REPORT,
        _pointed(
            lambda storage, pointer: SliceReport.from_json(pointer.read(storage, shuffle_files.REPORT).report)
        ),
        _written(LAYOUT.report_file(EPOCH, MEMBER, LIFE), lambda files: files.report(EPOCH, REPORT)),
        newer=numbered("report", "version"),
    ),
    Golden(
        "streams/session.json",
        SESSION,
        _pointed(
            lambda storage, pointer: ShuffleState.from_json(
                pointer.read(storage, shuffle_files.SESSION).session
            )
        ),
        _written(LAYOUT.session_file(EPOCH, MEMBER, LIFE), lambda files: files.session(EPOCH, SESSION)),
        newer=numbered("session", "version"),
    ),
    Golden(
        "streams/brought.json",
        BROUGHT,
        lambda data: Brought.decode(data.decode()),
        lambda: BROUGHT.encode().encode(),
        newer=numbered("format"),
    ),
    Golden(
        "streams/standing.json",
        STANDING,
        lambda data: Standing.decode(data.decode()),
        lambda: STANDING.encode().encode(),
        newer=numbered("format"),
    ),
    Golden(
        "streams/standing-empty.json",
        Standing(),
        lambda data: Standing.decode(data.decode()),
        lambda: Standing().encode().encode(),
    ),
    Golden(
        "streams/output-claim.json",
        CLAIM,
        lambda data: OutputClaims(stored(LAYOUT.output_key("counts"), data), LAYOUT).read("counts"),
        lambda: claims.CLAIM.encode(CLAIM),
        newer=numbered("format"),
    ),
    Golden(
        "streams/position.json",
        POSITION,
        lambda data: _holds_of(f"{LAYOUT.readers}counts.clicks", data).find("counts.clicks"),
        lambda: readers.POSITION.encode(POSITION),
        newer=numbered("format"),
    ),
    Golden(
        "streams/hold.json", [HOLD], _held_in, lambda: readers.POSITION.encode(HOLD), newer=numbered("format")
    ),
    Golden(
        "streams/supervisor.json",
        SUPERVISOR,
        lambda data: supervisors.SUPERVISOR.decode(f"{LAYOUT.supervisors}sup-1", data),
        lambda: supervisors.SUPERVISOR.encode(SUPERVISOR),
        newer=numbered("format"),
    ),
    Golden(
        "streams/place.json", PLACE, lambda data: Place.decode(data.decode()), lambda: PLACE.encode().encode()
    ),
    Golden("streams/options.json", OPTIONS, _options, lambda: as_json(OPTIONS.to_options())),
    Golden("streams/rows.arrow", CLICKS, _rows_of, _rows, plain=rows_of),
    Golden(
        "streams/run.arrow",
        [
            (ORDER_ROWS[:2], [10, 12], [GROUP] * 2, [12, 12]),
            (ORDER_ROWS[2:], [2**64 - 1], [GROUP], [2**64 - 1]),
        ],
        _run_rows,
        _run_file,
        plain=lambda data: str(_run_rows(data)),
    ),
    listing("streams/queues.txt", _queues),
    listing("streams/layout.txt", _layout),
    listing("streams/in-spark.txt", _in_spark),
    listing("sinks/in-postgres.sql", _in_postgres),
    Golden(
        "sinks/table.json",
        TABLE,
        _table,
        lambda: parquet_document.TABLE.encode(TABLE),
        newer=numbered("format"),
        plain=with_schemas("schema"),
    ),
    Golden(
        "sinks/manifest.json",
        (ENTRY,),
        _manifest_of(0, nodes=False),
        _manifest(lambda manifests: manifests.add(ENTRY)),
        newer=numbered("format"),
    ),
    Golden(
        "sinks/manifest-of-nodes.json",
        NODES,
        _manifest_of(1, nodes=True),
        _manifest(lambda manifests: manifests._write(1, (15, 16), (290, 300), nodes=NODES)),
        newer=numbered("format"),
    ),
    Golden(
        "sources/state.txt",
        STATE,
        lambda data: state.decode("a", data.decode()),
        lambda: state.encode("a", STATE).encode(),
        newer=lambda data: data.replace(b"1:", b"99:", 1),
    ),
    Golden(
        "sources/journal.txt",
        JOURNAL,
        lambda data: position_of("orders/eu", data.decode()),
        lambda: str(state_of(PartName("orders", "eu"), JOURNAL).state).encode(),
        newer=replaced(b'{\\"version\\":1,\\"offset\\"', b'{\\"version\\":99,\\"offset\\"'),
    ),
]
