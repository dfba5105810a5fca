"""The rules of the catalog, as pure functions: what a change makes of it, or why it is refused."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.control.catalog.model import (
    HISTORY,
    CatalogEntry,
    ChangeStamp,
    Head,
    Logged,
    Statement,
    checked,
    named,
    note,
)
from penstock.errors import CatalogConflict, DuplicateName, UsageError

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Create:
    """Add a statement; with ``replace`` also in the place of one that has its name and kind.

    Raises `UsageError` for what cannot be a statement.
    """

    statement: Statement
    replace: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", checked(self.statement))


@dataclass(frozen=True, slots=True)
class Drop:
    """Take a statement out. With ``cascade`` all that need it go as well, and those that need these."""

    name: str
    cascade: bool = False


CatalogChange = Create | Drop

_Thing = TypeVar("_Thing", CatalogEntry, Statement)


def apply(head: Head, change: CatalogChange, stamp: ChangeStamp) -> Head:
    """The catalog after a change. Raises `UsageError` or `DuplicateName` for one that is not allowed.

    The order is that of creation, except that a replaced statement, and those that need it, move behind
    what it has come to need.
    """
    if isinstance(change, Create):
        entries, what = _create(head, change, stamp)
    else:
        entries, what = _drop(head, change)
    version = head.version + 1
    logged = Logged(version, note(what), note(stamp.by), stamp.when, stamp.request)
    return Head(version, entries, (*head.history, logged)[-HISTORY:])


def remembers(head: Head, version: int) -> bool:
    """Whether history tells every change that was made to ``version`` and later ones."""
    return head.version - version <= len(head.history)


def conflict(head: Head, expected: int) -> CatalogConflict:
    """Says what happened since the version that somebody relied on."""
    if expected > head.version:
        return CatalogConflict(
            f"version {expected} of the catalog was expected, and {head.version} is the newest there is",
            left="nothing was changed",
            hint="look at `penstock catalog history`: is this the store that you mean?",
        )
    since = [logged for logged in head.history if logged.version > expected]
    lines = [f"  version {logged.version}: {logged.what}{_author(logged)}" for logged in since[-_SHOWN:]]
    unseen = head.version - expected - len(lines)
    if unseen:
        lines.insert(0, f"  {unseen} more before these")
    return CatalogConflict(
        f"the catalog is at version {head.version}, not {expected}. Since then:\n" + "\n".join(lines),
        left="nothing was changed",
        hint="look at it with `penstock catalog show`, and if the change is still right, "
        f"make it again with --expect {head.version}",
    )


def in_order(things: Sequence[_Thing]) -> tuple[_Thing, ...]:
    """The same things, each after those that it needs, otherwise as they stand.

    What is needed and not among them does not count. None may need itself, directly or not.
    """
    names = {thing.name for thing in things}
    missing = [sum(name in names for name in thing.needs) for thing in things]
    needed_by: dict[str, list[int]] = {}
    for n, thing in enumerate(things):
        for name in thing.needs:
            needed_by.setdefault(name, []).append(n)
    ready = [n for n, count in enumerate(missing) if count == 0]
    ordered = []
    while ready:
        thing = things[heapq.heappop(ready)]
        ordered.append(thing)
        for n in needed_by.get(thing.name, ()):
            missing[n] -= 1
            if missing[n] == 0:
                heapq.heappush(ready, n)
    return tuple(ordered)


def dependents(entries: Iterable[CatalogEntry], name: str) -> tuple[CatalogEntry, ...]:
    """Those that need ``name``, directly or not, in the order of ``entries``, which must be a valid one."""
    gone, found = {name}, []
    for entry in entries:
        if gone.intersection(entry.needs):
            gone.add(entry.name)
            found.append(entry)
    return tuple(found)


def _create(head: Head, change: Create, stamp: ChangeStamp) -> tuple[tuple[CatalogEntry, ...], str]:
    made = change.statement.entry
    made = replace(made, created=made.created or note(f"{stamp.when} {stamp.by}"))
    _check_spelling(head, made)
    _check_needs(head, made)
    old = head.find(made.name)
    if old is None:
        return (*head.entries, made), f"create {made.kind} {made.name}"
    _check_replaceable(head, old, made, change)
    entries = tuple(made if entry is old else entry for entry in head.entries)
    return in_order(entries), f"replace {made.kind} {made.name}"


def _check_spelling(head: Head, made: CatalogEntry) -> None:
    for entry in head.entries:
        if entry.name != made.name and entry.name.lower() == made.name.lower():
            raise DuplicateName(
                f"{made.name} differs from the {entry.kind} {entry.name} only in capitals, which SQL ignores",
                left="the catalog is as it was",
                hint=f"choose another name, or write {entry.name}",
            )


def _check_needs(head: Head, made: CatalogEntry) -> None:
    known = [entry.name for entry in head.entries]
    for name in made.needs:
        if name not in known and name != made.name:
            raise UsageError(
                f"{made.kind} {made.name} needs {name}, which is not in the catalog",
                left="the catalog is as it was",
                hint=_near(name, known) or f"add {name} first",
            )
    if made.name in made.needs:
        raise UsageError(f"{made.kind} {made.name} cannot need itself", left="the catalog is as it was")


def _check_replaceable(head: Head, old: CatalogEntry, made: CatalogEntry, change: Create) -> None:
    if not change.replace:
        raise DuplicateName(
            f"there is a {old.kind} {old.name} in the catalog already",
            left="the catalog is as it was",
            hint="choose another name, or add it with --replace",
        )
    if old.kind is not made.kind:
        raise UsageError(
            f"{old.name} is a {old.kind}, and a {made.kind} cannot take its place",
            left="the catalog is as it was",
            hint=f"drop it first: penstock catalog drop {old.name}",
        )
    circle = next((path for name in made.needs if (path := _path(head, name, made.name))), None)
    if circle:
        raise UsageError(
            f"{made.kind} {made.name} would need itself: {' needs '.join([made.name, *circle])}",
            left="the catalog is as it was",
            hint=f"leave out what needs {made.name}",
        )


def _path(head: Head, begin: str, end: str) -> list[str]:
    """Names from ``begin`` to ``end``, each of which needs the next; empty if there is no such way."""
    needs = {entry.name: entry.needs for entry in head.entries}
    came_from: dict[str, str] = {}
    ahead = [begin]
    while ahead:
        name = ahead.pop()
        if name == end:
            path = [end]
            while path[-1] != begin:
                path.append(came_from[path[-1]])
            return path[::-1]
        for needed in needs.get(name, ()):
            if needed not in came_from and needed != begin:
                came_from[needed] = name
                ahead.append(needed)
    return []


def _drop(head: Head, change: Drop) -> tuple[tuple[CatalogEntry, ...], str]:
    entry = head.find(change.name)
    if entry is None:
        known = [entry.name for entry in head.entries]
        raise UsageError(
            f"there is no {change.name} in the catalog, which is at version {head.version}",
            hint=_near(change.name, known) or "`penstock catalog show` lists what there is",
        )
    users = [user.name for user in dependents(head.entries, entry.name)]
    if users and not change.cascade:
        raise UsageError(
            f"{entry.kind} {entry.name} cannot be dropped: it is needed by {named(users, _SHOWN)}",
            left="the catalog is as it was",
            hint="drop these first, or all of them at once with --cascade",
        )
    gone = {entry.name, *users}
    what = f"drop {entry.kind} {entry.name}" + (f" and {named(users)}" if users else "")
    return tuple(kept for kept in head.entries if kept.name not in gone), what


def _near(name: str, known: Sequence[str]) -> str:
    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"did you mean {spelled[near[0]]}?" if near else ""


def _author(logged: Logged) -> str:
    parts = [f"by {logged.by}" if logged.by else "", f"at {logged.when}" if logged.when else ""]
    return "".join(f", {part}" for part in parts if part)
