"""What is kept of code: definitions of streams, fingerprints of pipelines, states of the sources of Penstock.

Names of modules of Penstock stand in these. They are those that the modules had in the first release,
wherever the code is now.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import penstock
import penstock.errors
import penstock.sinks
import penstock.sources
from penstock.batch.pipeline.fingerprint.digests import _digest, _value
from penstock.batch.runner.bench import fingerprint
from penstock.batch.runs.manifests import Fingerprint, brief, complete
from penstock.core.codec import plain, typed
from penstock.core.moved import first_home
from penstock.journals import Journals
from penstock.sources import DirectorySource, KafkaSource, PostgresSource, RateSource, TailSource, state
from penstock.sources import conformance as source_conformance
from penstock.sources.files.tail import Lines
from penstock.store import conformance as store_conformance
from penstock.streams import registry
from penstock.streams.views.changes import changes
from penstock.types import tables
from tests.golden.kit import Golden, as_json, listing, text

INPUTS = {"trades": "d1" * 32}
MTIME = 1_767_323_045_000_000_000


def current_fingerprint() -> Fingerprint:
    from tests.golden import fixture_pipeline as fixture

    values = {name: each.load() for name in ("rates", "rules") if (each := getattr(fixture, name)).load}
    stages = fixture.pipeline.stages
    return fingerprint(fixture.pipeline, stages, (), INPUTS, [values] * len(stages), fixture.make, "4.2.7")


def current_definition() -> dict[str, Any]:
    from tests.golden import fixture_stream as fixture

    return registry._as_stored(fixture.stream.describe())


def _fits(data: bytes) -> Any:
    return typed(Fingerprint, complete(json.loads(data))).differences(current_fingerprint())


def _goes_on(data: bytes) -> Any:
    return changes(json.loads(data), current_definition())


_ADDED = {
    "penstock.Auto",
    "penstock.Store",
    "penstock.everything",
    "penstock.partition",
    "penstock.errors.DiskLimit",
    "penstock.errors.ExchangeDamaged",
    "penstock.streams.sinks.repeats",
}
"""Names that were exported after ``public-names.txt`` was made. They have a file of their own."""


def _public() -> bytes:
    """How code of users that refers to something of Penstock has it in its digest."""
    lines = [line for line in _names() if line.partition("=")[0] not in _ADDED]
    for module in (store_conformance, source_conformance, penstock.journals, tables):
        lines += _value("module", module, {})
    return text(*lines)


def _public_added() -> bytes:
    return text(*(line for line in _names() if line.partition("=")[0] in _ADDED))


def _names() -> list[str]:
    lines: list[str] = []
    for module in (penstock, penstock.errors, penstock.sources, penstock.sinks):
        place = first_home(module.__name__)
        names = getattr(module, "__all__", None) or sorted(n for n in vars(module) if n[0].isupper())
        for name in names:
            value = getattr(module, name)
            if getattr(value, "__module__", "").startswith("penstock"):
                lines += _value(f"{place}.{name}", value, {})
    return lines


def _values() -> bytes:
    """The same for values of ours that they hold: by their content, in which classes are named too."""
    from tests.golden.fixture_pipeline import QUEUE, Trades, enrich

    held = {
        "field": Trades.price,
        "table": Trades,
        "transform": enrich,
        "range": penstock.Range(0, 7),
        "retry": penstock.Retry(times=2),
        "precision": penstock.Precision(10, 2),
        "storage": penstock.Storage("/data"),
        "journals": Journals("/data/journals"),
        "source": RateSource(rows=7),
        "sink": penstock.sinks.ParquetSink("/data/out"),
        "ranges": deque([penstock.Range(0, 7), penstock.Storage("/data")]),
        "numbers": QUEUE,
        "method": penstock.Storage("/data").location,
    }
    found = {name: _digest(_value(name, value, {})) for name, value in held.items()}
    return text(*(f"{name} {digest}" for name, digest in found.items()))


def _source_state(name: str) -> str:
    """The state of a part after two rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_text("line\none\ntwo\nthree\n")
        os.utime(path, ns=(MTIME, MTIME))
        part: Any
        if name == "directory":
            part = DirectorySource(folder, Lines).build_part("a.csv", None)
        elif name == "tail":
            part = TailSource(f"{folder}/a.csv").build_part("a.csv", None)
        elif name == "rate":
            part = RateSource(rows=5).build_part("1", None)
        else:
            source = RateSource(rows=5, per_second=2.0)
            source._clock = lambda: 1_767_323_045.0
            part = source.build_part("1", {"number": 0, "due": 1_767_323_040.0})
        assert part.poll(2).num_rows == 2
        found = part.snapshot()
        part.close()
        if name == "tail":
            found["inode"] = 4_711
    return state.encode(name, found)


def _resumed(name: str, found: Any) -> Any:
    """What comes next after a state that an earlier release has written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_text("line\none\ntwo\nthree\n")
        os.utime(path, ns=(MTIME, MTIME))
        part: Any
        if name == "directory":
            part = DirectorySource(folder, Lines).build_part("a.csv", found)
        elif name == "tail":
            part = TailSource(f"{folder}/a.csv").build_part("a.csv", {**found, "inode": path.stat().st_ino})
        else:
            per_second = None if name == "rate" else 2.0
            part = RateSource(rows=5, per_second=per_second).build_part("1", found)
        batch = part.poll(1)
        part.close()
        return batch.to_pylist()[0]


def _state_golden(name: str, after: Any) -> Golden:
    return Golden(
        f"sources/{name}.txt",
        after,
        lambda data: _resumed(name, state.decode(name, data.decode())),
        lambda: _source_state(name).encode(),
    )


def _tick(number: int, at: datetime) -> dict[str, Any]:
    part: Any = RateSource(rows=5, per_second=2.0 if at.microsecond == 0 else None).build_part("1", number)
    row: dict[str, Any] = part.poll(1).to_pylist()[0]
    assert (row["number"], row["at"]) == (number, at)
    return row


KAFKA = {"offset": 17, "skipped": 2, "last": [16, "ab" * 8]}


def _kafka(data: bytes) -> Any:
    from tests.golden.fixture_stream import Orders

    found = state.decode("orders[3]", data.decode())
    return KafkaSource("a:9092", "orders", Orders).build_part("orders[3]", found).snapshot()


def _postgres(data: bytes) -> Any:
    from tests.golden.fixture_stream import Orders

    one, two = (state.decode("1/2", line) for line in data.decode().splitlines())
    source = PostgresSource("postgresql://host/db", "orders", Orders, key=["order", "total"], parts=2)
    single = PostgresSource("postgresql://host/db", "orders", Orders, key="order", parts=2)
    return single.build_part("1/2", one).snapshot(), source.build_part("1/2", two).snapshot()


GOLDEN = [
    Golden("pipeline/fingerprint.json", [], _fits, lambda: as_json(brief(plain(current_fingerprint())))),
    Golden("streams/definition.json", [], _goes_on, lambda: as_json(current_definition())),
    listing("pipeline/public-names.txt", _public),
    listing("pipeline/public-names-added.txt", _public_added),
    listing("pipeline/values.txt", _values),
    _state_golden("directory", {"line": "three"}),
    _state_golden("tail", {"line": "two"}),
    _state_golden("rate", _tick(2, datetime(2026, 1, 1, 0, 0, 0, 2_000, tzinfo=UTC))),
    _state_golden("rate-with-pace", _tick(2, datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))),
    Golden("sources/kafka.txt", KAFKA, _kafka, lambda: state.encode("orders[3]", KAFKA).encode()),
    Golden(
        "sources/postgres.txt",
        ("o-7", ["o-7", 12]),
        _postgres,
        lambda: text(state.encode("1/2", "o-7"), state.encode("1/2", ["o-7", 12])),
    ),
]
