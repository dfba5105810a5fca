"""Documents of the control plane as JSON, with a format number that a later version can tell apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.cluster.model import (
    Ack,
    Barrier,
    Control,
    Decision,
    Kind,
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
T = TypeVar("T")
_SeatsOut = Callable[[Iterable[Seat]], list[Any]]
_SeatsIn = Callable[[list[Any]], tuple[Seat, ...]]


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


def encode_ack(ack: Ack) -> bytes:
    return _dump(**_fields(ack))


def decode_ack(key: str, value: bytes) -> Ack:
    return _load(key, value, lambda found: Ack(**{**found, "files": tuple(found["files"])}))


def encode_decision(decision: Decision) -> bytes:
    return _dump(**_fields(decision))


def decode_decision(key: str, value: bytes) -> Decision:
    return _load(key, value, _decision_in)


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
    return Barrier(**{**found, **lists, "kind": Kind(found["kind"])})


def _decision_in(found: dict[str, Any]) -> Decision:
    lists = {"acked": tuple(found["acked"]), "files": tuple(found["files"])}
    kinds = {"outcome": Outcome(found["outcome"]), "kind": Kind(found["kind"])}
    return Decision(**{**found, **lists, **kinds})


def _seats_out(seats: Iterable[Seat]) -> list[Any]:
    return [[seat.member, seat.session, seat.capacity] for seat in seats]


def _seats_in(found: list[Any]) -> tuple[Seat, ...]:
    return tuple(Seat(*seat) for seat in found)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _dump(**values: Any) -> bytes:
    return json.dumps({"format": _FORMAT, **values}, separators=(",", ":")).encode()


def _load(key: str, value: bytes, build: Callable[[dict[str, Any]], T]) -> T:
    try:
        found = json.loads(value)
        written = found.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(key, error) from error
    if written != _FORMAT:
        raise UsageError(
            f"{key} has format {written!r}, and this version of Penstock knows format {_FORMAT}",
            hint="run the same version of Penstock on all instances",
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
