"""Claims, runs, manifests, inputs, and the catalog."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.batch.exchange.ordering import decode_rows, encode_rows
from penstock.batch.exchange.packing import ExchangePlan, KeyRange
from penstock.batch.exchange.run_files import ByteSum, ExchangeFile, encode_counts, encode_sums
from penstock.batch.inputs import registry
from penstock.batch.inputs.formats.base import Facts
from penstock.batch.inputs.index import Index, read_index, write_index
from penstock.batch.inputs.model import (
    REGISTRATION,
    Input,
    InputFile,
    Options,
    identity_of,
    registration_of,
    schema_digest,
)
from penstock.batch.inputs.model import digest_of as digest_of_rows
from penstock.batch.inputs.replaced import outlived
from penstock.batch.runs import dropping, manifests, pacing, runs
from penstock.batch.runs.manifests import (
    CheckpointManifest,
    Exchanged,
    Fingerprint,
    OutputManifest,
    SavedTable,
    StagePrint,
)
from penstock.batch.runs.pacing import StageCost
from penstock.batch.runs.runs import PhaseRecord, Run
from penstock.control.catalog import codec as catalog_codec
from penstock.control.catalog import texts
from penstock.control.catalog.manifest import Catalog
from penstock.control.catalog.model import CatalogEntry, Head, Logged, StatementKind, digest_of
from penstock.control.claims import codec
from penstock.control.claims import geometry as board
from penstock.control.claims.done_shards import DoneShards
from penstock.control.claims.geometry import Geometry
from penstock.control.claims.model import (
    Accepted,
    CheckpointRef,
    Failure,
    Memory,
    PartitionRecord,
    PartitionState,
    Shard,
)
from penstock.core.ranges import Range
from penstock.server.relations import spec
from penstock.storage import FileRecord
from penstock.store.memory import MemoryStore
from tests.golden.kit import (
    Golden,
    document,
    listing,
    numbered,
    only,
    replaced,
    rows_of,
    storage_with,
    stored,
    text,
    with_schemas,
    without,
)

SHARD = Shard(
    Range(0, 12_800),
    100,
    (
        PartitionRecord(
            Range(0, 100), PartitionState.COMPLETED, 1, "nodé-1", digest="0123456789abcdef0123456789abcdef"
        ),
        PartitionRecord(
            Range(100, 200),
            PartitionState.CLAIMED,
            3,
            "node-2",
            "session-2",
            1,
            (Failure("node-1", 'it said "no"\nand ended'),),
            (CheckpointRef(0, 2, "aa" * 16), CheckpointRef(1, 3, "bb" * 16)),
            request="request-9",
        ),
        PartitionRecord(
            Range(200, 300), PartitionState.CLAIMED, 1, "node-2", "session-2", request="request-10"
        ),
        PartitionRecord(
            Range(300, 350),
            PartitionState.PENDING,
            2,
            attempts=2,
            errors=(Failure("node-1", "x"), Failure("", "…")),
        ),
        PartitionRecord(
            Range(400, 500),
            PartitionState.POISONED,
            5,
            attempts=5,
            errors=(Failure("node-3", "ValueError: bad"),),
        ),
    ),
    (
        Memory("request-7", Accepted(PartitionState.COMPLETED)),
        Memory("request-8", Accepted(PartitionState.PENDING)),
    ),
)
RUN_FINGERPRINT = Fingerprint(
    {"trades": "d1" * 32, "rates": "d2" * 32},
    (StagePrint("validate", "c0" * 8, "e3" * 8), StagePrint("enrich+convert", "c1" * 8, "e4" * 8)),
    "fa" * 8,
    {"positions": "5c" * 8},
    {"Penstock's way of computing": "1", "Spark": "4.2"},
)
RUN = Run(
    name="nightly",
    id="1a2b3c4d",
    pipeline="trades",
    inputs={"trades": "d1" * 32, "rates": "d2" * 32},
    registered={"trades": "nightly.trades", "rates": "rates"},
    total_rows=1_000,
    partition_rows=100,
    outputs=("positions", "trades"),
    output="/data/out",
    output_format="parquet",
    fingerprint=RUN_FINGERPRINT,
    storage="s3://bucket/penstock",
    created="2026-01-02T03:04:05+00:00",
    keeps_rows=("trades",),
    accepted=(Fingerprint({"trades": "d0" * 32}, (StagePrint("validate", "cc" * 8, "ee" * 8),)),),
    schemas={"positions": "c2NoZW1h"},
    source="trades.py:pipeline",
    registrations={"trades": "9f8e7d6c", "rates": "00112233"},
)
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("price", pa.decimal128(10, 2))])
TABLES = {
    "trades": SavedTable(SCHEMA, input="trades"),
    "positions": SavedTable(
        SCHEMA,
        (
            FileRecord("runs/nightly~1a2b3c4d/part-00000-0.arrow", 60, 1234, "ab" * 32),
            FileRecord("runs/nightly~1a2b3c4d/part-00001-0.arrow", 40, 1000, "cd" * 32),
        ),
    ),
}
CHECKPOINT = CheckpointManifest(Range(100, 200), 3, 1, RUN_FINGERPRINT.upto(1), TABLES)
OUTPUT = OutputManifest(Range(100, 200), 3, "node-2", 1, 1.25, RUN_FINGERPRINT, TABLES)
CUTS = ("rows of trades, stages 0 to 1; leaves trades(id, price) by id", "keys trades.id, stages 1 to 2")
PHASED_RUN = replace(
    RUN,
    fingerprint=replace(RUN_FINGERPRINT, phases=CUTS),
    phases=(
        PhaseRecord("rows of trades", (0, 1), (), 1_000, 100, ("trades:id",)),
        PhaseRecord("keys trades.id", (1, 2), RUN.outputs, reads={"trades": (0, "trades:id")}),
    ),
)
RUN_FILE = ExchangeFile(
    FileRecord("runs/nightly~1a2b3c4d/exchange/a/part-00000-0.arrow", 3, 640, "5e" * 32),
    16_384,
    (encode_counts(np.array([0, 2, 0, 1])),),
    encode_sums([ByteSum(0, 100, 7), ByteSum(100, 600, 8), ByteSum(600, 640, 9)]),
)
EXCHANGED = replace(
    OUTPUT,
    fingerprint=PHASED_RUN.fingerprint,
    tables={},
    exchanges={"trades:id": Exchanged(pa.schema([("id", pa.int64())]), (RUN_FILE,))},
    read={"trades": 3},
)
BOUNDARIES = pa.RecordBatch.from_pydict({"symbol": ["M"]})
EXCHANGE_PLAN = ExchangePlan(
    4, (KeyRange(0, 2, 2, 400), KeyRange(2, 4, 1, 240)), ("100-200",), "0123456789abcdef" * 2
)

ZONED = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("at", pa.timestamp("us"), metadata={"penstock.zone": "Europe/Berlin"}),
    ]
)
INPUT = Input(
    name="trades",
    format="csv",
    source="/data/trades/*.csv",
    schema=ZONED,
    declared=True,
    text_schema=pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.string())]),
    options=Options(delimiter=";", null_values=("", "NULL")),
    total_rows=150,
    partition_rows=100,
    files=(
        InputFile("/data/trades/a.csv", 2_000, 1_700_000_000_000_000_001, 100, 0, 0, 2),
        InputFile("/data/trades/b.csv", 1_000, 1_700_000_000_000_000_002, 50, 100, 2, 1, "ef" * 32),
    ),
    identity="1d" * 32,
    digest="d1" * 32,
    id="9f8e7d6c",
)
OUTLIVED = ["inputs/trades/0123-aaaaaaaa", "inputs/trades/data-bbbb"]
FACTS = (
    Facts(100, SCHEMA, np.array([0, 64]), np.array([10, 1_290])),
    Facts(50, SCHEMA, np.array([0]), np.array([10])),
)

TABLE_SQL = spec.encode(
    ("public", "tra`des"),
    spec.TableSpec("/data/it's/*.csv", "csv", {"header": "true"}, "id bigint", "0123abcd"),
)
HEAD = Head(
    3,
    (
        CatalogEntry("public.trades", StatementKind.TABLE, digest_of(TABLE_SQL), (), "2026-01-02 by änne"),
        CatalogEntry("public.totals", StatementKind.VIEW, "ab" * 32, ("public.trades",)),
    ),
    (
        Logged(2, "create table public.trades", "änne", "2026-01-02T03:04:05+00:00", "r1"),
        Logged(3, "create view public.totals", "", "2026-01-02T03:04:06+00:00", "r2"),
    ),
)


def _bits(data: bytes) -> Any:
    directory = DoneShards(
        stored("runs/nightly~1a2b3c4d/done/000000", data), "runs/nightly~1a2b3c4d/done/", 9
    )
    return sorted(set(range(9)) - set(directory.undone(0)))


def _marked() -> bytes:
    store = MemoryStore()
    directory = DoneShards(store, "runs/nightly~1a2b3c4d/done/", 9)
    for shard in (0, 3, 8):
        assert directory.mark(shard, directory.refresh(shard))
    return only(store, "runs/nightly~1a2b3c4d/done/000000")


def _input_document() -> bytes:
    with storage_with() as storage:
        made = REGISTRATION.encode(registration_of(INPUT, storage.root, OUTLIVED))
        return made.replace(storage.root.encode(), b"/data/penstock")


def _registered(data: bytes) -> Any:
    # Beside it stands the file list that it names, which is a golden file of its own.
    key = f"{INPUT.folder}/files.json"
    with storage_with({key: INPUT_FILES.data}) as storage:
        return registry.load(stored("inputs/trades", data), storage, "trades"), outlived(document(data))


def _listed(data: bytes) -> Any:
    facts = replace(registration_of(INPUT), details_sha256=hashlib.sha256(data).hexdigest())
    with storage_with({f"{INPUT.folder}/files.json": data}) as storage:
        return registry._input(storage, facts)


def _indexed(data: bytes) -> Any:
    with storage_with({f"{INPUT.folder}/index.arrow": data}) as storage:
        found = read_index(storage, INPUT)
        assert isinstance(found, Index)
        return found.rows.tolist(), found.places.tolist()


def _index() -> bytes:
    with storage_with() as storage:
        write_index(storage, "index.arrow", FACTS)
        return storage.read("index.arrow")


def _text_of(data: bytes) -> Any:
    digest = digest_of(TABLE_SQL)
    return texts.fetch(stored(f"catalog/ddl/{digest}", data), [digest])[digest]


def _text() -> bytes:
    store = MemoryStore()
    texts.put(store, TABLE_SQL)
    return only(store, f"catalog/ddl/{digest_of(TABLE_SQL)}")


def _note() -> bytes:
    store = MemoryStore()
    store.cas("runs/nightly/run", 0, runs.RUN.encode(RUN))
    dropping._forget(store, RUN)
    return only(store, "runs/nightly~1a2b3c4d/dropped")


def _digests() -> bytes:
    """What says that an input is the same as before: a run goes on with no other."""
    identity = identity_of("csv", [file.stamp for file in INPUT.files], INPUT.options, ZONED)
    own = identity_of("parquet", ["ef" * 32], Options(), None)
    return text(identity, own, digest_of_rows(identity, [100, 50], ZONED), schema_digest(ZONED))


INPUT_FILES = Golden(
    "inputs/files.json",
    INPUT,
    _listed,
    INPUT.encoded_details,
    newer=numbered("layout"),
    plain=with_schemas("schema", "text_schema"),
)

VIEW = spec.ViewSpec(
    "SELECT `id` /* all of it */ FROM `penstock`.`public`.`trades`",
    (("public", "trades"),),
    "id bigint",
    ("id",),
    "SELECT id FROM trades",
)

GOLDEN = [
    Golden(
        "claims/shard.txt",
        SHARD,
        codec.decode,
        lambda: codec.encode(SHARD),
        newer=replaced(b"[1,0,12800,100,5]", b"[99,0,12800,100,5]"),
    ),
    Golden(
        "claims/board.json",
        (Geometry(1_000, 100), 5),
        lambda data: board.read_board(stored("runs/nightly~1a2b3c4d/board", data), "nightly~1a2b3c4d"),
        lambda: board.BOARD.encode(board.BoardDocument(1_000, 100, 5)),
        newer=numbered("format"),
    ),
    Golden("claims/done.bin", [0, 3, 8], _bits, _marked),
    Golden(
        "runs/run.json",
        RUN,
        lambda data: runs.load(stored("runs/nightly/run", data), "nightly"),
        lambda: runs.RUN.encode(RUN),
        newer=numbered("format"),
    ),
    Golden(
        "runs/dropped.json",
        [RUN],
        lambda data: dropping.half_dropped(stored("runs/nightly~1a2b3c4d/dropped", data)),
        _note,
        newer=numbered("format"),
    ),
    Golden(
        "runs/checkpoint.json",
        CHECKPOINT,
        lambda data: manifests.CHECKPOINT.decode("k", data),
        lambda: manifests.CHECKPOINT.encode(CHECKPOINT),
        newer=numbered("format"),
        plain=with_schemas("schema"),
    ),
    Golden(
        "runs/output.json",
        OUTPUT,
        lambda data: manifests.OUTPUT.decode("k", data),
        lambda: manifests.OUTPUT.encode(OUTPUT),
        newer=numbered("format"),
        plain=with_schemas("schema"),
    ),
    Golden(
        "runs/run-phases.json",
        PHASED_RUN,
        lambda data: runs.load(stored("runs/nightly/run", data), "nightly"),
        lambda: runs.RUN.encode(PHASED_RUN),
        newer=numbered("format"),
    ),
    Golden(
        "runs/output-exchange.json",
        EXCHANGED,
        lambda data: manifests.OUTPUT.decode("k", data),
        lambda: manifests.OUTPUT.encode(EXCHANGED),
        newer=numbered("format"),
        plain=with_schemas("schema"),
    ),
    Golden(
        "runs/exchange-plan.json",
        EXCHANGE_PLAN,
        lambda data: ExchangePlan.decode("k", data),
        EXCHANGE_PLAN.encode,
        newer=numbered("format"),
    ),
    Golden(
        "runs/exchange-plan-sorted.json",
        BOUNDARIES,
        lambda data: decode_rows(ExchangePlan.decode("k", data).boundaries or ""),
        replace(EXCHANGE_PLAN, boundaries=encode_rows(BOUNDARIES)).encode,
        newer=numbered("format"),
        plain=without("boundaries"),
    ),
    Golden(
        "runs/costs.json",
        {0: StageCost(0, 1.5, 4_096)},
        lambda data: pacing.find(stored("runs/nightly~1a2b3c4d/costs", data), "nightly~1a2b3c4d"),
        lambda: pacing.MEASURED.encode(pacing.Measured((StageCost(0, 1.5, 4_096),))),
        newer=numbered("format"),
    ),
    INPUT_FILES,
    Golden(
        "inputs/document.json",
        (INPUT, OUTLIVED),
        _registered,
        _input_document,
        newer=numbered("layout"),
        plain=without("details_sha256"),
    ),
    listing("inputs/digests.txt", _digests),
    Golden("inputs/index.arrow", ([0, 64, 0], [10, 1_290, 10]), _indexed, _index, plain=rows_of),
    Golden(
        "catalog/head.json",
        HEAD,
        lambda data: Catalog(stored("catalog/head", data)).head(),
        lambda: catalog_codec.encode(HEAD),
        newer=numbered("format"),
    ),
    Golden("catalog/text.sql", TABLE_SQL, _text_of, _text),
    Golden(
        "catalog/table.sql",
        spec.TableSpec("/data/it's/*.csv", "csv", {"header": "true"}, "id bigint", "0123abcd"),
        lambda data: spec.decode(data.decode()),
        TABLE_SQL.encode,
    ),
    Golden(
        "catalog/view.sql",
        VIEW,
        lambda data: spec.decode(data.decode()),
        lambda: spec.encode(("public", "totals"), VIEW).encode(),
    ),
]
