"""An output at work: one Structured Streaming query and its sink, under one claim."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.failpoints import reach
from penstock.errors import PenstockError, SessionLost
from penstock.sinks.base import Batch, Writer
from penstock.spark.faults import WorkerFault, decode, encode
from penstock.streams.log.progress import EpochRange, OutputProgress
from penstock.streams.operators.query import ReadSource
from penstock.streams.outputs.claims import OutputClaim
from penstock.streams.outputs.task_threads import background

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.streams.api.stream import Output
    from penstock.streams.outputs.running_outputs import RunningOutputs

_STOP_WITHIN = 10.0
_IDLE = 1.0

Reading = Callable[["SparkSession", str, Path], ReadSource]
"""Gives the function that reads sources for an output; ranges of batches are told in the file."""


class RunningOutput:
    """One query and its sink, under one claim."""

    def __init__(self, outputs: RunningOutputs, output: Output, claim: OutputClaim, session: str) -> None:
        self._outputs = outputs
        self._output = output
        self.claim = claim
        self.session = session
        self.epoch = claim.epoch
        self._reached = claim.reached
        self.told = False
        self.works = False
        self._took_at = 0.0
        self._needless = claim.epoch
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-output-")
        self._ranges = Path(self._folder.name)
        self._writer: Writer | None = None
        self._query: StreamingQuery | None = None
        self._stopped = threading.Event()
        self._checkpoint = outputs.checkpoint(output.name, claim.token)
        # Positions are told by two threads.
        self._readers, self._idle_readers = outputs.readers(), outputs.readers()

    def start(self, spark: SparkSession, reading: Reading) -> None:
        """Open the sink, which fences whoever had it before, and let the query go on from its checkpoint."""
        name = self._output.name
        self._writer = self._output.sink.open(self._outputs.target(self._output, self.claim))
        self._take_over()
        if self._stopped.is_set():
            raise SessionLost(f"output {name} was let go while it started")
        try:
            with self._outputs.starting:
                self._outputs.set_up(self._output)
                frame = self._output.frame(spark, reading(spark, name, self._ranges))
                self._query = (
                    frame.writeStream.outputMode(self._output.mode)
                    .option("checkpointLocation", self._outputs.located(self._checkpoint.folder))
                    .foreachBatch(self._take)
                    .start()
                )
        except PenstockError:
            raise
        except Exception as error:
            raise decode(error) from error
        if self._stopped.is_set():
            # It was fenced while the query was on its way.
            self.stop()
            raise SessionLost(f"output {name} was let go while it started")

    def _take_over(self) -> None:
        """Make the checkpoint ours, after the sink has fenced: it has all that was ever published."""
        claim = self.claim
        if claim.checkpoint != claim.token:
            self._checkpoint.take_over(claim.checkpoint, claim.synced)
            self.claim = self._outputs.claims.update(self._output.name, claim.token, checkpoint=claim.token)
        self._checkpoint.remove_others()

    def failure(self) -> PenstockError | None:
        """What ended the query, if it has ended."""
        query = self._query
        if query is None or query.isActive or self._stopped.is_set():
            return None
        error = query.exception()
        return decode(error) if error is not None else PenstockError("the query ended by itself")

    def is_up(self) -> bool:
        """Whether the query has its sources, and takes in what comes: that is seconds after its start."""
        if self._query is None:
            return False
        message: str = self._query.status["message"]
        return not message.startswith(("Initializing", "Terminated")) and self._query.isActive

    def let_go(self) -> None:
        """Let the epochs of the last batch go, once Spark has noted that it is done, and that is on disk.

        With the next batch that would happen anyway. But it never comes while a queue that is full of these
        very epochs waits for room.
        """
        if self._query is None or self._needless >= self.epoch or time.monotonic() < self._took_at + _IDLE:
            return
        progress = self._query.lastProgress
        ends = _ends(progress)
        if progress is None or not ends:
            return
        self._settle(progress)
        for file in self._ranges.glob("*.json"):
            self._idle_readers.advance(f"{self._output.name}.{file.stem}", min(ends))
        self._needless = min(ends)

    def settle(self) -> None:
        """After the query has ended: see that the next owner need not repeat its last batch."""
        if self._query is not None and not self._query.isActive and (progress := self._query.lastProgress):
            self._settle(progress)

    def _settle(self, progress: StreamingQueryProgress) -> None:
        """Sync what Spark wrote up to the last batch that it noted as done, and say so."""
        # A batch that was never ours is not done, whatever an idle query tells.
        done = min(progress.batchId, self._reached.batch)
        self._checkpoint.sync()
        self._outputs.claims.update(self._output.name, self.claim.token, safe=done)

    def drained(self) -> bool:
        """Wait until the query has nothing more to do.

        Closing the last windows takes batches without rows. False if it was stopped, or failed, before it was
        done: waiting ends then as well.
        """
        if self._query is None:
            return False
        try:
            self._query.processAllAvailable()
        except Exception as error:
            raise decode(error) from error
        return self._query.isActive and not self._stopped.is_set()

    def stop(self) -> None:
        """End the query and close the sink. Harmless when repeated."""
        self._stopped.set()
        if self._query is not None:
            background(self._stop_query).join(_STOP_WITHIN)
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        with suppress(OSError):
            self._folder.cleanup()

    def _stop_query(self) -> None:
        with suppress(Exception):
            if self._query is not None:
                self._query.stop()

    def _take(self, frame: DataFrame, number: int) -> None:
        """What Spark calls with each batch, in a thread of its own.

        Spark searches the text of an error by a pattern that overflows its stack where the text is long, and
        so would a traceback with all of Java's: what leaves here is short.
        """
        fault = None
        try:
            self._write(frame, number)
        except Exception as error:
            fault = PenstockError("the output was stopped") if self._stopped.is_set() else decode(error)
        if fault is not None:
            raise WorkerFault(f"{fault.what}\n{encode(fault)}")

    def _write(self, frame: DataFrame, number: int) -> None:
        if self._stopped.is_set() or self._writer is None:
            raise PenstockError("the output was stopped")
        began = time.monotonic()
        sources = self._output.reads
        reached = self._reached.after(number, self._ranges_of_batch(), self._output.name)
        batch = Batch(number, reached.epoch(sources), reached.is_final(sources))
        reach("output.batch")
        self._secure(number)
        self._writer.write(frame, batch)
        reach("output.written")
        seconds = time.monotonic() - began
        self._outputs.took(self._output.name, self.claim.token, batch, reached, seconds)
        if number > self._reached.batch:
            self._advance(self._reached)
        self._reached, self.epoch, self.works = reached, batch.epoch, True
        self._took_at = time.monotonic()

    def _secure(self, number: int) -> None:
        """Before the sink gets a batch: see that whoever is next would repeat this very one.

        Its plan, and all of the batches before it, are synced: the sink must never know more than Spark does
        after a power failure. And the claim says so while it is ours: the next owner, which reads it, goes
        back no further, and finds the plan. Were it said after the sink has the batch, an owner that dies in
        between would leave a batch there that the next one plans anew, with other rows.
        """
        self._checkpoint.sync()
        reach("output.synced")
        self._outputs.claims.update(self._output.name, self.claim.token, safe=number - 1)
        reach("output.secured")

    def _advance(self, before: OutputProgress) -> None:
        """The epochs of all batches before this one are not needed any more."""
        for source, epoch in before.ends.items():
            self._readers.advance(f"{self._output.name}.{source}", epoch)

    def _ranges_of_batch(self) -> dict[str, EpochRange]:
        """What the reader of each source planned last."""
        return {file.stem: EpochRange(**json.loads(file.read_text())) for file in self._ranges.glob("*.json")}


def _ends(progress: StreamingQueryProgress | None) -> list[int]:
    """Up to where the last batch that is done took in each source."""
    offsets = [json.loads(source.endOffset or "null") for source in progress.sources] if progress else []
    return [offset["epoch"] for offset in offsets if offset]
