"""What was added to a format without another number: documents from before it are read as they were meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

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


def test_a_report_that_only_says_that_there_are_joint_transactions() -> None:
    golden = BY_PATH["streams/report.json"]
    found = json.loads(golden.data)
    one_flag(found)
    read = golden.read(json.dumps(found).encode())
    assert len(read.progress.joint) == 1 and len(read.progress.joint[0]) == len(streaming.MARKS)
