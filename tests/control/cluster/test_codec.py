from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.cluster.documents import codec
from penstock.control.cluster.rules.assignment import successor
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
from penstock.errors import CorruptFile, UsageError

text = st.text(max_size=8)
number = st.integers(-(2**60), 2**60)
maybe_number = st.none() | number
maybe_text = st.none() | text
texts = st.lists(text, max_size=3).map(tuple)
mapping = st.dictionaries(text, text, max_size=3)
seconds = st.floats(0, 1e6)

seats = st.lists(st.builds(Seat, text, text, number), max_size=3).map(tuple)
leases = st.builds(Lease, maybe_text, text, number, number, seconds)
terms = st.lists(st.builds(Term, number, text, text, text), max_size=3).map(tuple)
snapshots = st.builds(Snapshot, number, number, seats, st.lists(number, max_size=9).map(tuple), text)
barriers = st.builds(
    Barrier, number, st.sampled_from(BarrierKind), number, number, seats, request=text, target=seats
)
scopes = st.builds(
    Scope,
    number,
    st.none() | barriers,
    number,
    maybe_number,
    number,
    st.none() | seats,
    st.lists(number, max_size=3).map(tuple),
)
controls = st.builds(Control, leases, terms, snapshots, st.dictionaries(text, scopes, max_size=3))
acks = st.builds(
    BarrierAck, text, text, number, number, mapping, maybe_text, texts, maybe_number, refusal=maybe_text
)
decisions = st.builds(
    Decision,
    number,
    st.sampled_from(Outcome),
    st.sampled_from(BarrierKind),
    number,
    number,
    number,
    watermark=maybe_number,
    reason=text,
    acked=texts,
    states=mapping,
    frontiers=mapping,
    files=texts,
    ignored=st.dictionaries(text, number, max_size=3),
    seconds=seconds,
    at=text,
    request=text,
)
members = st.builds(
    Member, text, text, text, number, mapping, text, st.booleans(), st.booleans(), number, text
)

Decode = Callable[[str, bytes], Any]
CODECS: dict[str, tuple[Any, Decode, st.SearchStrategy[Any]]] = {
    "control": (codec.CONTROL.encode, codec.CONTROL.decode, controls),
    "snapshot": (codec.SNAPSHOT.encode, codec.SNAPSHOT.decode, snapshots),
    "member": (codec.MEMBER.encode, codec.MEMBER.decode, members),
    "ack": (codec.ACK.encode, codec.ACK.decode, acks),
    "decision": (codec.DECISION.encode, codec.DECISION.decode, decisions),
}


@pytest.mark.parametrize("kind", CODECS)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_round_trips(kind: str, data: st.DataObject) -> None:
    encode, decode, values = CODECS[kind]
    value = data.draw(values)
    found = decode("k", encode(value))
    assert found == value
    assert encode(found) == encode(value)


def test_what_comes_back_has_its_types() -> None:
    seat = Seat("a", "s")
    scope = Scope(open=Barrier(1, BarrierKind.DRAIN, 1, 1, (seat,), target=(seat,)), drained=(seat,))
    control = Control(assignment=Snapshot(1, 1, (seat,), (0,)), scopes={"x": scope})
    found = codec.CONTROL.decode("k", codec.CONTROL.encode(control)).scope("x")
    assert found.open is not None
    assert found.open.kind is BarrierKind.DRAIN
    assert {type(found.drained), type(found.open.required), type(found.aborted)} == {tuple}


def test_seats_are_numbered_in_the_order_in_which_release_0_1_numbered_them() -> None:
    a, b, c, d, e = (Seat(member, "s") for member in "abcde")
    scope = Scope(open=Barrier(1, BarrierKind.DRAIN, 1, 1, (c,), target=(d, a)), drained=(b,))
    control = Control(assignment=Snapshot(1, 1, (e, a), (0,)), scopes={"x": scope})
    written = json.loads(codec.CONTROL.encode(control))
    assert [member for member, *_ in written["seats"]] == ["e", "a", "b", "c", "d"]
    assert written["assignment"]["seats"] == [0, 1]
    barrier = written["scopes"]["x"]["open"]
    assert (written["scopes"]["x"]["drained"], barrier["required"], barrier["target"]) == ([2], [3], [4, 1])


@pytest.mark.parametrize("kind", CODECS)
def test_a_later_format_is_told_apart(kind: str) -> None:
    _, decode, _ = CODECS[kind]
    with pytest.raises(UsageError, match="format 2") as caught:
        decode("cluster/x/control", b'{"format":2,"whatever":1}')
    assert "cluster/x/control" in caught.value.what
    assert "same version" in (caught.value.hint or "")


GARBAGE = [
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b"7",
    b'"text"',
    b"[]",
    b"[1, 2]",
    b"{}",
    b'{"lease": 1}',
    b'{"format": 1}',
    b'{"format": 1, "lease": [], "files": 3, "owners": {}, "outcome": "maybe"}',
    b'{"format": 1, "unheard": "of"}',
]


@pytest.mark.parametrize("value", GARBAGE)
@pytest.mark.parametrize("kind", CODECS)
def test_garbage_is_named_as_such(kind: str, value: bytes) -> None:
    _, decode, _ = CODECS[kind]
    with pytest.raises(CorruptFile, match="cluster/x/doc") as caught:
        decode("cluster/x/doc", value)
    assert caught.value.left and caught.value.hint


def test_a_seat_that_is_not_in_the_list_is_garbage() -> None:
    control = Control(assignment=Snapshot(1, 1, (Seat("a", "s"),), (0,)))
    broken = json.loads(codec.CONTROL.encode(control)) | {"seats": []}
    with pytest.raises(CorruptFile):
        codec.CONTROL.decode("k", json.dumps(broken).encode())


@pytest.mark.parametrize("wrong", [{"pages": None}, {"acked": ["ann"]}])
def test_a_head_without_pages_or_with_a_body_is_garbage(wrong: dict[str, object]) -> None:
    decision = Decision(2, Outcome.COMMIT, BarrierKind.EPOCH, 1, 1, 1)
    head = codec.PagedDecision(decision, codec.Pages(1, 10, "ab"))
    broken = json.loads(codec.RECORD.encode(head)) | wrong
    with pytest.raises(CorruptFile):
        codec.RECORD.decode("k", json.dumps(broken).encode())


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(control=controls, cut=st.floats(0, 1))
def test_half_a_document_is_garbage(control: Control, cut: float) -> None:
    value = codec.CONTROL.encode(control)
    with pytest.raises(CorruptFile):
        codec.CONTROL.decode("k", value[: int(cut * (len(value) - 1))])


# sizes

KIB = 1024
TEAM = tuple(sorted(Seat(f"instance-{i:03}.example.internal", f"{i:016x}", 64) for i in range(64)))
IDLE = Scope(100_001, None, 99_999, 1_700_000_000_000, 77, None, tuple(range(99_000, 99_064)))
BUSY = Barrier(100_000, BarrierKind.DRAIN, 77, 64, TEAM, "0123456789abcdef", TEAM)


@pytest.mark.parametrize(
    "scope",
    [IDLE, replace(IDLE, drained=TEAM), replace(IDLE, open=BUSY)],
    ids=["idle", "drained", "draining"],
)
def test_the_control_of_a_large_cluster_is_small(scope: Scope) -> None:
    owner = "instance-000.example.internal"
    small = tuple(replace(seat, capacity=1) for seat in TEAM)
    assignment = replace(successor(Snapshot(77), small, 4096, 64), seats=TEAM)
    history = tuple(Term(i, owner, "handed over", "2025-01-01T00:00:00.000+00:00") for i in range(64))
    scopes = {f"stream-{i:03}": scope for i in range(100)}
    control = Control(Lease(f"{owner}#{0:016x}", owner, 64, 9_999_999), history, assignment, scopes)
    value = codec.CONTROL.encode(control)
    assert len(value) < 128 * KIB
    assert codec.CONTROL.decode("k", value) == control


def test_the_other_documents_of_a_large_cluster_are_small() -> None:
    small = tuple(replace(seat, capacity=1) for seat in TEAM)
    assert len(codec.SNAPSHOT.encode(successor(Snapshot(), small, 4096, 1))) < 32 * KIB
    addresses = {"peer": "instance-000.example.internal:7077", "sql": "instance-000.example.internal:5432"}
    assert len(codec.MEMBER.encode(Member(TEAM[0].member, "s" * 16, "1.0", addresses=addresses))) < KIB
