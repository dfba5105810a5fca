"""The rules of the control document: ``(control, command) -> (control, answer)``, without clock or store.

A refused command changes nothing. A command that was applied before, and whose answer was lost, is accepted
again and changes nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.control.cluster.rules.commands import (
    Abort,
    Acquire,
    Command,
    Lead,
    Prepare,
    Publish,
    Resign,
    Rotate,
)
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Control, Lease, Scope, Seat, Term

_ABORTED_KEPT = 64


class Why(StrEnum):
    """Why a command was refused."""

    STALE = "somebody else leads"
    HELD = "the lease is held"
    BUSY = "an epoch is open"
    CLOSED = "the epoch is not open"
    SEATS = "the members are not those of the assignment"
    VERSION = "the assignment was rotated by somebody else"
    UNDRAINED = "owners have not stopped yet"


@dataclass(frozen=True, slots=True)
class ControlAccepted:
    """The command holds."""


@dataclass(frozen=True, slots=True)
class ControlRefused:
    why: Why


Answer = ControlAccepted | ControlRefused
Result = tuple[Control, Answer]
_YES = ControlAccepted()


def apply(control: Control, command: Command) -> Result:
    """The control after ``command``, and its answer."""
    if isinstance(command, Acquire):
        return _acquire(control, command)
    if isinstance(command, Resign) and _has_resigned(control.lease, command):
        return control, _YES
    if not leads(control.lease, command):
        return control, ControlRefused(Why.STALE)
    match command:
        case Resign():
            return _with_lease(control, replace(control.lease, owner=None)), _YES
        case Prepare():
            return _prepare(control, command)
        case Publish():
            return _publish(control, command)
        case Abort():
            return _abort(control, command)
        case Rotate():
            return _rotate(control, command)


def leads(lease: Lease, command: Lead) -> bool:
    """Whether the command comes from the one who leads now: the fence in front of every write."""
    return lease.owner == command.owner and lease.token == command.token


def _has_resigned(lease: Lease, command: Resign) -> bool:
    return lease.owner is None and lease.token == command.token


def _acquire(control: Control, command: Acquire) -> Result:
    lease = control.lease
    if lease.owner == command.owner:
        return _with_lease(control, replace(lease, ttl=command.ttl)), _YES
    if lease.owner is not None and command.expired != (lease.token, lease.sequence):
        return control, ControlRefused(Why.HELD)
    token = lease.token + 1
    taken = replace(lease, owner=command.owner, member=command.member, token=token, ttl=command.ttl)
    how = "first" if token == 1 else "expired" if lease.owner else "handed over"
    terms = (*control.terms, Term(token, command.member, how, command.at))[-command.history :]
    return _with_lease(replace(control, terms=terms), taken), _YES


def _with_lease(control: Control, lease: Lease) -> Control:
    return replace(control, lease=replace(lease, sequence=control.lease.sequence + 1))


def _prepare(control: Control, command: Prepare) -> Result:
    scope = control.scope(command.scope)
    if scope.open is not None:
        return control, _YES if scope.open.request == command.request else ControlRefused(Why.BUSY)
    seats = control.assignment.seats
    if not _may_require(command, seats):
        return control, ControlRefused(Why.SEATS)
    version = control.assignment.version
    barrier = Barrier(
        scope.next, command.kind, version, command.token, command.required, command.request, command.target
    )
    opened = replace(scope, next=scope.next + 1, open=barrier)
    if command.kind is BarrierKind.EPOCH:
        opened = replace(opened, worked=version, drained=None)
    return control.with_scope(command.scope, opened), _YES


def _may_require(command: Prepare, seats: tuple[Seat, ...]) -> bool:
    """An ordinary epoch needs every owner; a drain goes without those who are gone."""
    if command.kind is BarrierKind.DRAIN:
        return set(command.required) <= set(seats)
    return bool(seats) and command.required == seats


def _publish(control: Control, command: Publish) -> Result:
    scope = control.scope(command.scope)
    if scope.committed == command.epoch:
        return control, _YES
    if scope.open is None or scope.open.epoch != command.epoch:
        return control, ControlRefused(Why.CLOSED)
    known = [mark for mark in (scope.watermark, command.watermark) if mark is not None]
    drained = scope.open.target if scope.open.kind is BarrierKind.DRAIN else scope.drained
    closed = replace(
        scope, open=None, committed=command.epoch, watermark=max(known, default=None), drained=drained
    )
    return control.with_scope(command.scope, closed), _YES


def _abort(control: Control, command: Abort) -> Result:
    scope = control.scope(command.scope)
    if scope.open is None or scope.open.epoch != command.epoch:
        gone = scope.committed < command.epoch < scope.next
        return control, _YES if gone else ControlRefused(Why.CLOSED)
    aborted = (*scope.aborted, command.epoch)[-_ABORTED_KEPT:]
    return control.with_scope(command.scope, replace(scope, open=None, aborted=aborted)), _YES


def _rotate(control: Control, command: Rotate) -> Result:
    current, wanted = control.assignment, command.snapshot
    if current == wanted:
        return control, _YES
    if wanted.version != current.version + 1:
        return control, ControlRefused(Why.VERSION)
    if any(scope.open is not None for scope in control.scopes.values()):
        return control, ControlRefused(Why.BUSY)
    if not all(stands_still(scope, current.version, wanted.seats) for scope in control.scopes.values()):
        return control, ControlRefused(Why.UNDRAINED)
    rotated = replace(control, assignment=wanted)
    for name, scope in control.scopes.items():
        rotated = rotated.with_scope(name, replace(scope, drained=None))
    return rotated, _YES


def stands_still(scope: Scope, version: int, target: tuple[Seat, ...]) -> bool:
    """Whether owners may change to ``target``: nobody began under this version, or all have stopped."""
    return scope.worked != version or scope.drained == target
