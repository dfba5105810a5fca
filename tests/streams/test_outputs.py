"""Outputs of a running stream: one that is stuck holds up no other, and a power failure loses nothing."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Stream, Table
from penstock.errors import StreamError
from penstock.sinks import FunctionSink, ParquetSink
from penstock.sinks.base import Batch, Target, Writer
from penstock.sources import DirectorySource
from penstock.streams import registry
from penstock.streams.outputs.claims import OutputClaim, OutputClaims
from penstock.streams.outputs.spark_checkpoints import folder_of
from penstock.streams.views.events import StreamEvent
from tests.streams.fleet import with_settings
from tests.streams.station import Station

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


OUTPUTS = ("counts", "calls")


class Words(Table):
    word: str


class Counts(Table):
    word: str
    count: int


class Feed:
    """Files of words, and how often each word was in them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.counts = folder, Counter[str]()
        self.source = DirectorySource(str(folder), Words, format="jsonl")

    def add(self, *words: str) -> None:
        self.counts.update(words)
        new = self.folder / f".{len(self.counts)}-{self.counts.total()}"
        new.write_text("".join(json.dumps({"word": word}) + "\n" for word in words))
        new.rename(new.with_name(f"{self.counts.total()}.jsonl"))


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    yield Feed(tmp_path / "in")
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def totals(station: Station) -> dict[str, int]:
    """What the sink has."""
    try:
        # Oldest first: later rows replace those of their word.
        return {row["word"]: row["count"] for row in station.output("counts").to_pylist()}
    except StreamError:
        return {}


class Owners:
    """One instance after the other, which count words."""

    def __init__(self, spark: SparkSession, folder: Path, feed: Feed) -> None:
        stream = Stream("words")
        words = stream.source("words", feed.source)
        stream.output("counts", words.key_by(Words.word).count(to=Counts), ParquetSink())
        self.feed = feed
        # What an output does not need any more is gone at once.
        settings = with_settings(retain_for=0.0, retain_bytes=0)
        self.station = Station(spark, stream, folder, settings)
        self.claims = OutputClaims(self.station.store, self.station.layout)
        self.output = self.station.layout.output("counts")

    @property
    def claim(self) -> OutputClaim:
        return self.claims.read("counts")

    def rewrite(self, **changes: object) -> None:
        """Let the claim say what it never would again."""
        store, key = self.station.store, self.station.layout.output_key("counts")
        document = store.get(key)
        assert document is not None
        value = json.dumps({**json.loads(document.value), **changes}).encode()
        assert store.cas(key, document.version, value) is not None

    def run(self, name: str, *files: tuple[str, ...]) -> None:
        """An instance that takes in the files in a batch each, and leaves."""
        self.station.start(name)
        for words in files:
            self.feed.add(*words)
            self.station.until(lambda: self.counts() == self.feed.counts, f"all words for {name}", 120)
        self.station.leave()

    def counts(self) -> dict[str, int]:
        return totals(self.station)

    def folder(self, token: int) -> Path:
        assert self.station.storage.local is not None
        return self.station.storage.local / folder_of(self.output, token)


@pytest.fixture
def owners(spark: SparkSession, tmp_path: Path, feed: Feed) -> Iterator[Owners]:
    made = Owners(spark, tmp_path, feed)
    yield made
    made.station.close()


def test_an_output_goes_on_whatever_was_not_synced_is_lost(owners: Owners) -> None:
    owners.run("i1", ("a", "b"), ("a",), ("b", "c"))
    batch = owners.claim.batch
    # The sink has a batch before Spark notes it: one that is stopped in between is not known to be synced.
    assert owners.claim.safe in {batch - 1, batch}
    # As it is when the power fails after a batch went to its sink, and before anything more was synced.
    owners.rewrite(safe=batch - 1)
    lose_after(owners.folder(1), batch - 1)
    assert partitions(owners.folder(1)) == ["0", "1", "2", "3"]
    owners.run("i2", ("a", "d"))
    # As it was written before each owner had a folder of its own, and was not known to be synced.
    owners.folder(2).rename(owners.folder(0))
    owners.rewrite(checkpoint=0, safe=None)
    owners.run("i3", ("a", "e"))
    assert (owners.claim.token, owners.claim.checkpoint) == (3, 3)
    assert owners.folder(3).exists() and not owners.folder(0).exists()
    assert [event.text for event in owners.station.told("problem")] == []


def partitions(folder: Path) -> list[str]:
    """Those of the state, which is in RocksDB: the settings of the query are ours."""
    return sorted({file.parent.name for file in folder.glob("state/0/*/*.changelog")})


def lose_after(folder: Path, safe: int) -> None:
    """Files that were renamed are there after a power failure, but what was in them need not be."""
    lost = [folder / "commits" / str(safe + 1), *folder.glob(f"state/*/*/{safe + 2}.changelog")]
    assert len(lost) > 1
    for file in lost:
        file.write_bytes(b"")
    for part in folder.glob("state/*/*"):
        (part / f"{safe + 1}.zip").write_bytes(b"")
    (folder / "offsets" / str(safe + 2)).write_bytes(b"")


def have_reached(claims: OutputClaims, batch: int) -> bool:
    return all(claims.read(name).batch == batch for name in OUTPUTS)


def deaths(station: Station) -> list[StreamEvent]:
    return [event for event in station.told("problem") if "died with batch" in event.text]


def dies_after(batch: int) -> None:
    """The end of an owner that no instance tries again with."""
    raise StreamError(f"died with batch {batch} in the sink")


@dataclass(frozen=True)
class Deadly(ParquetSink):
    """A sink that has a batch when its first owner dies."""

    batch: int = 0

    def open(self, target: Target) -> Writer:
        writer = ParquetSink.open(self, target)
        return Last(writer, self.batch) if target.token == 1 else writer


class Last(Writer):
    def __init__(self, writer: Writer, batch: int) -> None:
        self._writer, self._batch = writer, batch

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self._writer.write(frame, batch)
        if batch.number == self._batch:
            dies_after(batch.number)


class Calls:
    """What a function got by batch; its first owner dies after it has got a certain one."""

    def __init__(self, batch: int) -> None:
        self.batch, self.got = batch, dict[int, list[list[tuple[Any, ...]]]]()

    def __call__(self, frame: DataFrame, batch: Batch) -> None:
        got = self.got.setdefault(batch.number, [])
        got.append(sorted(map(tuple, frame.collect())))
        if batch.number == self.batch and len(got) == 1:
            dies_after(batch.number)


def test_a_batch_that_only_the_sink_knows_of_comes_again_as_it_was(
    spark: SparkSession, tmp_path: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Batches come one right after the other: nothing is settled in between.
    monkeypatch.setattr("penstock.streams.outputs.output_query._IDLE", float("inf"))
    stream, calls = Stream("words"), Calls(2)
    counted = stream.source("words", feed.source).key_by(Words.word).count(to=Counts)
    stream.output("counts", counted, Deadly(batch=2))
    stream.output("calls", counted, FunctionSink(calls))
    station = Station(spark, stream, tmp_path, with_settings())
    claims = OutputClaims(station.store, station.layout)
    try:
        station.start("i1")
        for batch in range(2):
            feed.add("a", "b")
            station.until(partial(have_reached, claims, batch), f"batch {batch}", 120)
        feed.add("a", "c")
        station.until(lambda: len(deaths(station)) == len(OUTPUTS), "the death of both")
        assert have_reached(claims, 1)
        # What comes now must not become part of the batch that is repeated.
        feed.add("a", "d")
        station.until(lambda: station.queue().num_rows == feed.counts.total(), "the next epoch")
        station.leave()
        station.start("i2")
        station.until(lambda: totals(station) == feed.counts, "all words", 120)
        station.until(partial(have_reached, claims, 3), "all words for the function")
    finally:
        station.close()
    assert len(calls.got[2]) > 1
    assert all(rows == [("a", 3), ("c", 1)] for rows in calls.got[2])
    assert all(rows == [("a", 4), ("d", 1)] for rows in calls.got[3])


@dataclass(frozen=True)
class Closed(FunctionSink):
    """A sink that cannot be opened yet: it waits, or says that a person must mend something."""

    waits: bool = False
    opened: threading.Event = field(default_factory=threading.Event)
    tries: list[int] = field(default_factory=list)

    def open(self, target: Target) -> Writer:
        self.tries.append(target.token)
        if self.waits:
            self.opened.wait()
        elif not self.opened.is_set():
            raise StreamError("there is no such table", hint="create it")
        return FunctionSink.open(self, target)


def test_a_sink_that_is_stuck_or_refused_holds_up_no_other(
    spark: SparkSession, tmp_path: Path, feed: Feed
) -> None:
    stuck = Closed(lambda frame, _: frame.collect(), waits=True)
    refused = Closed(lambda frame, _: frame.collect())
    stream = Stream("words")
    words = stream.source("words", feed.source)
    for name, sink in {"a": stuck, "b": refused, "c": ParquetSink()}.items():
        stream.output(name, words, sink)
    station = Station(spark, stream, tmp_path, with_settings())
    claims = OutputClaims(station.store, station.layout)
    feed.add("a", "b")
    station.start()
    try:
        station.until(lambda: claims.read("c").batch >= 0 and station.output("c").num_rows == 2, "rows")
        told = station.until(lambda: station.told("problem"), "word about the refusal")
        feed.add("c")
        station.until(lambda: station.output("c").num_rows == 3, "more rows")
        # What cannot help is not tried again and again, until somebody says so.
        assert len(refused.tries) == 1
        assert "there is no such table (create it)" in told[0].text
        assert "penstock stream resume words" in claims.read("b").problem
        refused.opened.set()
        registry.wish(station.store, "words", wanted="running", again=True)
        station.until(lambda: claims.read("b").batch >= 0, "rows of the one that was refused")
        assert claims.read("b").problem == ""
        stuck.opened.set()
        station.until(lambda: claims.read("a").batch >= 0, "rows of the one that was stuck")
    finally:
        stuck.opened.set()
        station.close()
