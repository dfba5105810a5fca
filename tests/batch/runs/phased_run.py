"""A run with an exchange in a store in memory: its documents, without anything that is computed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.batch.exchange.run_files import ExchangeFile
from penstock.batch.runs import layout, manifests, runs
from penstock.batch.runs.manifests import (
    CHECKPOINT,
    CheckpointManifest,
    Exchanged,
    Fingerprint,
    OutputManifest,
    SavedTable,
    StagePrint,
)
from penstock.batch.runs.runs import PhaseRecord, Run
from penstock.control.claims import Board, CheckpointRef
from penstock.storage import FileRecord, Storage
from penstock.store import Session
from penstock.store.memory import MemoryStore

NARROW = pa.schema([("symbol", pa.string())])
WIDE = pa.schema([("symbol", pa.string()), ("price", pa.float64())])
PHASES = (
    PhaseRecord("rows of trades", (0, 2), (), 2000, 1000, ("trades:symbol",)),
    PhaseRecord("keys trades.symbol", (2, 4), ("positions",), reads={"trades": (0, "trades:symbol")}),
)


class PhasedRun:
    """A run with two phases: two partitions of rows, and two key ranges."""

    def __init__(self, folder: Path) -> None:
        self.store, self.storage = MemoryStore(), Storage(folder)
        stages = tuple(StagePrint(name, "c0de", "") for name in ("validate", "price+check", "sum", "rank"))
        self.fingerprint = Fingerprint({"trades": "d"}, stages, phases=("rows", "keys"))
        self.run = Run(
            name="trades",
            id="0",
            pipeline="trades",
            inputs={"trades": "d"},
            registered={"trades": "trades"},
            total_rows=2000,
            partition_rows=1000,
            outputs=("positions",),
            output=str(folder / "output"),
            output_format="parquet",
            fingerprint=self.fingerprint,
            storage=self.storage.root,
            created="2026-11-18T12:00:00Z",
            phases=PHASES,
        )
        _, self.rows = runs.start(self.store, self.run, max_failures=5, accept_changed_code=False)
        self.session: Session = self.store.session(60)

    def ack(self, board: Board, phase: int) -> None:
        """Publish a partition, which leaves rows of a table by two keys."""
        [claim] = board.claim(self.session, "here")
        found = {
            name: Exchanged(schema, (ExchangeFile(self._file(f"{phase}/{claim.range}/{name}"), 0, ()),))
            for name, schema in (("trades:symbol", WIDE), ("trades:a,b", NARROW))
        }
        made = OutputManifest(claim.range, claim.token, "here", 0, 0.0, self.fingerprint, {}, found)
        data = made.encode()
        digest = manifests.digest(data)
        path = layout.output_manifest(self.run.place(phase), claim.range, claim.token, digest)
        self.storage.write(path, data)
        board.ack(claim, digest)

    def save(self, board: Board, phase: int, stage: int) -> None:
        """A partition that is not done, with a checkpoint."""
        [claim] = board.claim(self.session, "here")
        saved = {"positions": SavedTable(NARROW, (self._file("saved"),))}
        data = CHECKPOINT.encode(
            CheckpointManifest(claim.range, claim.token, stage + 1, self.fingerprint, saved)
        )
        digest = manifests.digest(data)
        place = self.run.place(phase)
        self.storage.write(layout.checkpoint_manifest(place, claim.range, claim.token, stage, digest), data)
        board.save_checkpoint(claim, CheckpointRef(stage, claim.token, digest))

    def _file(self, path: str) -> FileRecord:
        return FileRecord(path, 7, 70, "")
