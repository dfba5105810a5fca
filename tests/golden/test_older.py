"""What was added to a format without another number: documents from before it are read as they were meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import CorruptFile
from tests.golden import batch, streaming
from tests.golden.formats import GOLDEN

BY_PATH = {golden.path: golden for golden in GOLDEN}

Change = Callable[[dict[str, Any]], object]


def lacking(*keys: str) -> Change:
    return lambda found: [found.pop(key) for key in keys]


def without_engine(found: dict[str, Any]) -> None:
    del found["fingerprint"]["engine"]
    for each in found["accepted"]:
        del each["engine"]


def without_watermarks(found: dict[str, Any]) -> None:
    for epoch in found["epochs"]:
        for brought in epoch["brought"]:
            del brought["watermarks"]


EPOCHS_WITHOUT_WATERMARKS = tuple(
    replace(epoch, brought=tuple(replace(each, watermarks={}) for each in epoch.brought))
    for epoch in streaming.EPOCHS
)


def as_floats(*keys: str) -> Change:
    """As release 0.1 wrote numbers that a program gave as 1e6 and the like."""
    return lambda found: found.update({key: float(found[key]) for key in keys})


def one_flag(found: dict[str, Any]) -> None:
    found["report"]["joint"] = True


@pytest.mark.parametrize(
    ("path", "change", "expected"),
    [
        ("runs/run.json", lacking("schemas"), replace(batch.RUN, schemas={})),
        ("runs/run.json", lacking("registrations"), replace(batch.RUN, registrations={})),
        ("runs/run.json", lacking("named_by_id"), replace(batch.RUN, named_by_id=False)),
        (
            "runs/run.json",
            without_engine,
            replace(batch.RUN, fingerprint=replace(batch.RUN_FINGERPRINT, engine={})),
        ),
        ("inputs/document.json", lacking("details_sha256"), (batch.INPUT, batch.OUTLIVED)),
        ("inputs/document.json", lacking("outlived"), (batch.INPUT, [])),
        ("streams/record.json", lacking("dropped"), streaming.RECORD),
        ("streams/states.json", lacking("queues"), (streaming.PARTS, {})),
        (
            "streams/finished.json",
            lacking("segments", "places"),
            replace(streaming.FINISHED_PARTS, segments=(), places={}),
        ),
        ("streams/standing.json", lacking("open"), replace(streaming.STANDING, open=None)),
        ("streams/brought.json", lacking("watermarks"), replace(streaming.BROUGHT, watermarks={})),
        ("streams/segment.json", without_watermarks, EPOCHS_WITHOUT_WATERMARKS),
        ("streams/position.json", lacking("output"), replace(streaming.POSITION, output=None)),
        ("streams/output-claim.json", lacking("safe"), replace(streaming.CLAIM, safe=None)),
        ("streams/output-claim.json", lacking("checkpoint"), replace(streaming.CLAIM, checkpoint=0)),
    ],
)
def test_what_lacks_a_later_member_is_read(path: str, change: Change, expected: Any) -> None:
    golden = BY_PATH[path]
    found = json.loads(golden.data)
    change(found)
    assert golden.read(json.dumps(found).encode()) == expected


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("inputs/document.json", ("partition_rows",)),
        ("runs/run.json", ("partition_rows",)),
        ("claims/board.json", ("partition_rows", "max_failures")),
    ],
)
def test_a_whole_number_that_was_written_as_a_float_is_read(path: str, keys: tuple[str, ...]) -> None:
    golden = BY_PATH[path]
    found = json.loads(golden.data)
    as_floats(*keys)(found)
    changed = json.dumps(found)
    assert changed.count(".0") >= len(keys)
    read = golden.read(changed.encode())
    # 100.0 == 100: only what is written shows the difference.
    assert (read, repr(read)) == (golden.value, repr(golden.value))


@pytest.mark.parametrize("path", ["inputs/document.json", "runs/run.json", "claims/board.json"])
def test_a_fraction_of_a_row_is_refused(path: str) -> None:
    golden = BY_PATH[path]
    found = json.loads(golden.data) | {"partition_rows": 99.5}
    with pytest.raises(CorruptFile, match="partition_rows"):
        golden.read(json.dumps(found).encode())


def test_a_report_that_only_says_that_there_are_joint_transactions() -> None:
    golden = BY_PATH["streams/report.json"]
    found = json.loads(golden.data)
    one_flag(found)
    read = golden.read(json.dumps(found).encode())
    assert len(read.progress.joint) == 1 and len(read.progress.joint[0]) == len(streaming.MARKS)
