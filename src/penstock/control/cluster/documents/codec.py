"""Documents of the control plane as JSON, with a format number that a later version can tell apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

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

_FORMAT = 1
_PAGED = 2
"""The format of a decision that has pages: a version that does not know them must not take it for a whole."""
_GROWS = ("acked", "states", "frontiers", "files")
"""What of a decision grows with members and parts."""
T = TypeVar("T")
_SeatsOut = Callable[[Iterable[Seat]], list[Any]]
_SeatsIn = Callable[[list[Any]], tuple[Seat, ...]]


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the rest of a decision stands: on so many pages, of so many bytes with this digest."""

    count: int
    size: int
    sha256: str


def encode_control(control: Control) -> bytes:
    """Each seat is written once and referred to by its number: every scope may list all of them."""
    numbers: dict[Seat, int] = {}

    def refer(seats: Iterable[Seat]) -> list[int]:
        return [numbers.setdefault(seat, len(numbers)) for seat in seats]

    return _dump(
        lease=_fields(control.lease),
        terms=[_fields(term) for term in control.terms],
        assignment=_snapshot_out(control.assignment, refer),
        scopes={name: _scope_out(scope, refer) for name, scope in control.scopes.items()},
        seats=_seats_out(numbers),
    )


def decode_control(key: str, value: bytes) -> Control:
    return _load(key, value, _control_in)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return _dump(**_snapshot_out(snapshot, _seats_out))


def decode_snapshot(key: str, value: bytes) -> Snapshot:
    return _load(key, value, lambda found: _snapshot_in(found, _seats_in))


def encode_member(member: Member) -> bytes:
    return _dump(**_fields(member))


def decode_member(key: str, value: bytes) -> Member:
    return _load(key, value, lambda found: Member(**found))


def encode_ack(ack: BarrierAck) -> bytes:
    return _dump(**_fields(ack))


def decode_ack(key: str, value: bytes) -> BarrierAck:
    return _load(key, value, lambda found: BarrierAck(**{**found, "files": tuple(found["files"])}))


def encode_decision(decision: Decision) -> bytes:
    return _dump(**_fields(decision))


def decode_decision(key: str, value: bytes) -> Decision:
    return _load(key, value, _decision_in)


def encode_head(decision: Decision, pages: Pages) -> bytes:
    """The record of a decision that has pages: everything of it that does not grow."""
    small = {name: value for name, value in _fields(decision).items() if name not in _GROWS}
    return _dump_as(_PAGED, **small, pages=_fields(pages))


def encode_body(decision: Decision) -> bytes:
    """What stands on the pages of a decision."""
    return _dump(**{name: getattr(decision, name) for name in _GROWS})


def decode_body(key: str, value: bytes) -> dict[str, Any]:
    return _load(key, value, _body_in)


def decode_record(key: str, value: bytes) -> tuple[Decision, Pages | None]:
    """A decision, and the pages that it lacks, if it has any."""
    return _load(key, value, _record_in, (_FORMAT, _PAGED))


def _control_in(found: dict[str, Any]) -> Control:
    seats = _seats_in(found["seats"])

    def resolve(numbers: list[Any]) -> tuple[Seat, ...]:
        return tuple(seats[number] for number in numbers)

    return Control(
        Lease(**found["lease"]),
        tuple(Term(**term) for term in found["terms"]),
        _snapshot_in(found["assignment"], resolve),
        {name: _scope_in(scope, resolve) for name, scope in found["scopes"].items()},
    )


def _snapshot_out(snapshot: Snapshot, seats: _SeatsOut) -> dict[str, Any]:
    return _fields(snapshot) | {"seats": seats(snapshot.seats)}


def _snapshot_in(found: dict[str, Any], seats: _SeatsIn) -> Snapshot:
    return Snapshot(**{**found, "seats": seats(found["seats"]), "owners": tuple(found["owners"])})


def _scope_out(scope: Scope, seats: _SeatsOut) -> dict[str, Any]:
    drained = None if scope.drained is None else seats(scope.drained)
    return _fields(scope) | {"open": scope.open and _barrier_out(scope.open, seats), "drained": drained}


def _scope_in(found: dict[str, Any], seats: _SeatsIn) -> Scope:
    drained = None if found["drained"] is None else seats(found["drained"])
    opened = found["open"] and _barrier_in(found["open"], seats)
    return Scope(**{**found, "open": opened, "drained": drained, "aborted": tuple(found["aborted"])})


def _barrier_out(barrier: Barrier, seats: _SeatsOut) -> dict[str, Any]:
    return _fields(barrier) | {"required": seats(barrier.required), "target": seats(barrier.target)}


def _barrier_in(found: dict[str, Any], seats: _SeatsIn) -> Barrier:
    lists = {"required": seats(found["required"]), "target": seats(found["target"])}
    return Barrier(**{**found, **lists, "kind": BarrierKind(found["kind"])})


def _decision_in(found: dict[str, Any]) -> Decision:
    kinds = {"outcome": Outcome(found["outcome"]), "kind": BarrierKind(found["kind"])}
    return Decision(**{**found, **_body_in(found), **kinds})


def _body_in(found: dict[str, Any]) -> dict[str, Any]:
    grown = {name: found[name] for name in _GROWS}
    return grown | {"acked": tuple(found["acked"]), "files": tuple(found["files"])}


def _record_in(found: dict[str, Any]) -> tuple[Decision, Pages | None]:
    pages = found.pop("pages", None)
    if pages is None:
        return _decision_in(found), None
    nothing: dict[str, Any] = {"acked": (), "states": {}, "frontiers": {}, "files": ()}
    return _decision_in({**found, **nothing}), Pages(**pages)


def _seats_out(seats: Iterable[Seat]) -> list[Any]:
    return [[seat.member, seat.session, seat.capacity] for seat in seats]


def _seats_in(found: list[Any]) -> tuple[Seat, ...]:
    return tuple(Seat(*seat) for seat in found)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _dump(**values: Any) -> bytes:
    return _dump_as(_FORMAT, **values)


def _dump_as(number: int, **values: Any) -> bytes:
    return json.dumps({"format": number, **values}, separators=(",", ":")).encode()


def _load(
    key: str, value: bytes, build: Callable[[dict[str, Any]], T], known: tuple[int, ...] = (_FORMAT,)
) -> T:
    try:
        found = json.loads(value)
        written = found.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(key, error) from error
    if written not in known:
        raise UsageError(
            f"{key} has format {written!r}, and this version of Penstock knows format {known[-1]}",
            hint="upgrade Penstock: run the same version on all instances, not an older one than before",
        )
    try:
        return build(found)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _unreadable(key, error) from error


def _unreadable(key: str, error: Exception) -> CorruptFile:
    return CorruptFile(
        f"the document {key} cannot be read: {type(error).__name__}: {error}",
        left="it was not changed",
        hint="restore the store from a backup, or choose another cluster.name to start anew",
    )
