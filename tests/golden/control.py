"""The control plane: control, members, acks, decisions and their pages, assignments, who owns what."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from penstock.control.cluster.documents import codec
from penstock.control.cluster.documents.codec import Pages
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Recorded, Records, joined
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules import assignment
from penstock.control.cluster.rules.assignment import part_owner
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Control,
    Decision,
    Lease,
    Member,
    Outcome,
    Scope,
    Seat,
    Snapshot,
    Term,
)
from tests.golden.kit import Golden, listing, numbered, stored, text

KEYS = Keys("stream.clicks.1a2b3c4d")
SEATS = (Seat("node-1", "session-1"), Seat("node-2", "session-2", 3))
SNAPSHOT = Snapshot(4, 7, SEATS, (0, 1, 1, 0, 1), "5eed" * 16)
CONTROL = Control(
    Lease("session-1", "node-1", 7, 123, 5.0),
    (Term(6, "node-2", "expired", "2026-01-02T03:04:05+00:00"), Term(7, "node-1", "resigned")),
    SNAPSHOT,
    {
        "rows": Scope(
            next=12,
            open=Barrier(
                11, BarrierKind.DRAIN, 4, 7, SEATS, "request-1", (SEATS[1], Seat("node-3", "session-3", 2))
            ),
            committed=10,
            watermark=-(2**63),
            worked=4,
            aborted=(8, 9),
        ),
        "cluster": Scope(next=3, committed=2, worked=3, drained=(SEATS[0],)),
    },
)
MEMBER = Member(
    "node-1",
    "session-1",
    "0.1.0",
    2,
    {"peer": "10.0.0.1:9090"},
    "node",
    serves=True,
    leaving=True,
    catalog=3,
    joined="2026-01-02T03:04:05+00:00",
)
ACK = BarrierAck("node-1", "session-1", 11, 4, {"part": "state"}, '{"format":1}', ("one", "two"), 5)
REFUSAL = BarrierAck("node-2", "session-2", 11, 4, refusal="ValueError: no")
DECISION = Decision(
    epoch=11,
    outcome=Outcome.COMMIT,
    kind=BarrierKind.EPOCH,
    assignment=4,
    token=7,
    previous=10,
    watermark=2**63 - 1,
    acked=("node-1", "node-2"),
    states={"part": "state"},
    frontiers={"node-1": '{"format":1}'},
    files=("one", "two"),
    ignored={"node-3": 2},
    seconds=0.25,
    at="2026-01-02T03:04:05+00:00",
    request="request-1",
)
ABORTED = Decision(9, Outcome.ABORT, BarrierKind.DRAIN, 4, 7, 8, reason="node-2 is gone")
BODY = codec.BODY.encode(codec.Body.of(DECISION))
PAGES = Pages(1, len(BODY), hashlib.sha256(BODY).hexdigest())


def _decided(data: bytes, epoch: int = 11) -> Any:
    return Records(stored(KEYS.epoch("rows", epoch), data), KEYS).decision("rows", epoch)


def _paged(data: bytes) -> Any:
    page = KEYS.page("rows", 11, PAGES.sha256, 0)
    return Records(stored(KEYS.epoch("rows", 11), data, {page: BODY}), KEYS).decision("rows", 11)


def _joined(data: bytes) -> Any:
    pages = Pages(1, len(data), hashlib.sha256(data).hexdigest())
    head = replace(DECISION, acked=(), states={}, frontiers={}, files=())
    return joined(Recorded("key", 1, head, pages), [data])


def _keys() -> bytes:
    return text(
        KEYS.control,
        KEYS.member("node-1"),
        KEYS.assignment(4),
        KEYS.epoch("rows", 11),
        KEYS.page("rows", 11, PAGES.sha256, 0),
        KEYS.ack("rows", "node-1"),
    )


def _owners() -> bytes:
    """Who owns what: all instances must come to the same, whatever their versions."""
    parts = [f"{name}: {part_owner(SEATS, 'clicks', name)}" for name in ("a/b.csv", "ä", "0")]
    return text(assignment.HASH, *assignment.vnode_owners(SEATS, 16), *parts)


GOLDEN = [
    Golden(
        "cluster/control.json",
        CONTROL,
        lambda data: Room(stored(KEYS.control, data), KEYS).read(),
        lambda: codec.CONTROL.encode(CONTROL),
        newer=numbered("format"),
    ),
    Golden(
        "cluster/member.json",
        MEMBER,
        lambda data: Roster(stored(KEYS.member("node-1"), data), KEYS).all()[0],
        lambda: codec.MEMBER.encode(MEMBER),
        newer=numbered("format"),
    ),
    Golden(
        "cluster/assignment.json",
        [SNAPSHOT],
        lambda data: list(Records(stored(KEYS.assignment(4), data), KEYS).assignments()),
        lambda: codec.SNAPSHOT.encode(SNAPSHOT),
        newer=numbered("format"),
    ),
    Golden(
        "cluster/ack.json",
        [ACK],
        lambda data: Records(stored(KEYS.ack("rows", "node-1"), data), KEYS).acks("rows"),
        lambda: codec.ACK.encode(ACK),
        newer=numbered("format"),
    ),
    Golden(
        "cluster/refusal.json",
        [REFUSAL],
        lambda data: Records(stored(KEYS.ack("rows", "node-2"), data), KEYS).acks("rows"),
        lambda: codec.ACK.encode(REFUSAL),
    ),
    Golden(
        "cluster/decision.json",
        DECISION,
        _decided,
        lambda: codec.DECISION.encode(DECISION),
        newer=numbered("format"),
    ),
    Golden(
        "cluster/aborted.json",
        ABORTED,
        lambda data: _decided(data, 9),
        lambda: codec.DECISION.encode(ABORTED),
    ),
    Golden(
        "cluster/decision-paged.json",
        DECISION,
        _paged,
        lambda: codec.RECORD.encode(codec.PagedDecision(DECISION, PAGES)),
        newer=numbered("format"),
    ),
    Golden("cluster/page.json", DECISION, _joined, lambda: BODY, newer=numbered("format")),
    listing("cluster/keys.txt", _keys),
    listing("cluster/owners.txt", _owners),
]
