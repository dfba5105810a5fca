"""The documents of the control plane, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from operator import itemgetter
from typing import Any

from penstock.control.cluster.rules.model import BarrierAck, Control, Decision, Member, Seat, Snapshot
from penstock.core.codec import DocumentFormat, Members, Older, from_rows, to_rows, typed

_HINT = "restore the store from a backup, or choose another cluster.name to start anew"
_FACTS = itemgetter(*(each.name for each in fields(Seat)))
_Seats = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Pages:
    """Where the rest of a decision stands: on so many pages, of so many bytes with this digest."""

    count: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PagedDecision:
    """A decision, and the pages that it lacks, if it has any."""

    decision: Decision
    pages: Pages | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """What of a decision grows with members and parts, and stands on its pages."""

    acked: tuple[str, ...]
    states: Mapping[str, str]
    frontiers: Mapping[str, str]
    files: tuple[str, ...]

    @classmethod
    def of(cls, decision: Decision) -> Body:
        return cls(decision.acked, decision.states, decision.frontiers, decision.files)

    def members(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


_NOTHING: Members = {"acked": [], "states": {}, "frontiers": {}, "files": []}


def _numbered(found: Members) -> Members:
    """Each seat is written once and referred to by its number: every scope may list all of them."""
    numbers: dict[tuple[Any, ...], int] = {}

    def refer(seats: list[Any]) -> list[Any]:
        return [numbers.setdefault(each, len(numbers)) for each in map(_FACTS, seats)]

    return {**_with_seats(found, refer), "seats": list(numbers)}


def _resolved(found: Members) -> Members:
    # Each is made once, and not for every scope that lists it.
    seats = typed(tuple[Seat, ...], from_rows(Seat, found.pop("seats")))
    return _with_seats(found, lambda numbers: [seats[number] for number in numbers])


def _with_seats(found: Members, change: _Seats) -> Members:
    """The members of a control with every list of seats changed.

    Seats are numbered in this order: the assignment, and of each scope what was drained, then the barrier.
    So the same control has the same bytes in every version.
    """
    assignment = _snapshot(found["assignment"], change)
    scopes = {name: _scope(scope, change) for name, scope in found["scopes"].items()}
    return {**found, "assignment": assignment, "scopes": scopes}


def _snapshot(found: Members, change: _Seats) -> Members:
    return {**found, "seats": change(found["seats"])}


def _scope(found: Members, change: _Seats) -> Members:
    barrier, drained = found["open"], found["drained"]
    if drained is not None:
        drained = change(drained)
    if barrier is not None:
        barrier = {**barrier, **{name: change(barrier[name]) for name in ("required", "target")}}
    return {**found, "open": barrier, "drained": drained}


def _without_body(found: Members) -> Members:
    small = {name: each for name, each in found["decision"].items() if name not in _NOTHING}
    return {**small, "pages": found["pages"]}


def _with_empty_body(found: Members) -> Members:
    if found["pages"] is None or found.keys() & _NOTHING.keys():
        raise ValueError("it has no pages, or has what stands on them")
    return {"pages": found.pop("pages"), "decision": {**found, **_NOTHING}}


CONTROL = DocumentFormat(Control, "the control of a cluster", pack=_numbered, unpack=_resolved, hint=_HINT)
SNAPSHOT = DocumentFormat(
    Snapshot,
    "an assignment of a cluster",
    pack=lambda found: _snapshot(found, to_rows),
    unpack=lambda found: _snapshot(found, partial(from_rows, Seat)),
    hint=_HINT,
)
MEMBER = DocumentFormat(Member, "a member of a cluster", hint=_HINT)
ACK = DocumentFormat(BarrierAck, "an answer to a barrier", hint=_HINT)
DECISION = DocumentFormat(Decision, "a decision about an epoch", hint=_HINT)
BODY = DocumentFormat(Body, "the pages of a decision", hint=_HINT)
RECORD = DocumentFormat(
    PagedDecision,
    "a decision about an epoch",
    # Another number than that of a whole decision, which it must not be taken for.
    number=2,
    older=Older(DECISION, PagedDecision),
    pack=_without_body,
    unpack=_with_empty_body,
    hint=_HINT,
)
