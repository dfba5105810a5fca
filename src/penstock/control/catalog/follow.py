"""Rebuilding what the catalog says: all of it when an instance starts, and what differs while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.control.catalog.manifest import HEAD, Catalog
from penstock.control.catalog.model import Manifest, Statement, digest_of
from penstock.control.catalog.rules import in_order
from penstock.errors import CatalogError, PenstockError
from penstock.store.base import Store


class Handler(ABC):
    """What an instance does with statements. Doing anything of it twice must be harmless.

    What failed half-way is tried again, or dropped if the catalog has changed meanwhile.
    """

    @abstractmethod
    def build(self, statement: Statement) -> None:
        """Create what the statement says, or put it in the place of what has its name and kind.

        What it needs has been built before. It is also called when only something that it needs was
        replaced, since it may hold on to what is no longer there.
        """

    @abstractmethod
    def drop(self, statement: Statement) -> None:
        """Remove what was built from this statement, as far as it is there.

        What needed it was dropped before, or is built anew afterwards.
        """


@dataclass(frozen=True, slots=True)
class Built:
    """A statement that was carried out. ``mark`` stands for its text and all that it was built on.

    An empty mark means that nobody knows what is there.
    """

    statement: Statement
    mark: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What makes a replica the same as a manifest: first what to drop, then what to build, each in order."""

    drops: tuple[Statement, ...]
    builds: tuple[Built, ...]


def replay(manifest: Manifest, build: Callable[[Statement], None]) -> None:
    """Carry out every statement in order. An error says which statement it came from."""
    for statement in manifest.statements:
        _carry_out(build, statement, "rebuilt")


def difference(replica: Mapping[str, Built], manifest: Manifest) -> Difference:
    """What a replica has to do, which holds what is listed by name.

    A thing is dropped if it is gone from the catalog or is of another kind there, and in the reverse of the
    order of needs. It is built if its text, or anything it is built on, is not the same.
    """
    kinds = {statement.name: statement.kind for statement in manifest.statements}
    there = in_order([built.statement for built in replica.values()])
    drops = tuple(old for old in reversed(there) if kinds.get(old.name) != old.kind)
    builds = tuple(new for new in _marked(manifest) if _mark(replica, new.statement.name) != new.mark)
    return Difference(drops, builds)


class Follower:
    """Keeps one replica the same as the catalog. For use by one thread.

    An error of the handler, which says which statement it came from, is raised from `catch_up` or `poll`;
    the next call goes on from there.
    """

    def __init__(self, store: Store, handler: Handler) -> None:
        self._store = store
        self._catalog = Catalog(store)
        self._handler = handler
        self._replica: dict[str, Built] = {}
        self._cursor: int | None = None
        self._behind = True
        self.version = 0
        """The version that the replica is at, or was at when it last caught up."""

    def catch_up(self) -> None:
        """Bring the replica to the newest version now: at the first time, replay everything."""
        if self._cursor is None:
            self._cursor = self._store.revision()
        self._behind = True
        manifest = self._catalog.read()
        todo = difference(self._replica, manifest)
        for statement in todo.drops:
            _carry_out(self._handler.drop, statement, "dropped")
            del self._replica[statement.name]
        self._build(todo.builds)
        self.version = manifest.version
        self._behind = False

    def _build(self, builds: Sequence[Built]) -> None:
        # What fails half-way is neither the old nor the new thing, so from here on all are unknown.
        for built in builds:
            if old := self._replica.get(built.statement.name):
                self._replica[old.statement.name] = replace(old, mark="")
        for built in builds:
            self._replica.setdefault(built.statement.name, replace(built, mark=""))
            _carry_out(self._handler.build, built.statement, "rebuilt")
            self._replica[built.statement.name] = built

    def poll(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a change and catch up with it; whether the version is another.

        The first call replays everything without waiting. After an error it tries again, at the latest
        when the time is over.
        """
        before = self.version
        if self._cursor is not None:
            changes, self._cursor = self._store.watch(HEAD, self._cursor, timeout)
            if not changes and not self._behind:
                return False
        self.catch_up()
        return self.version != before


def _marked(manifest: Manifest) -> list[Built]:
    marks: dict[str, str] = {}
    for statement in manifest.statements:
        below = [f"{name} {marks[name]}" for name in statement.needs]
        marks[statement.name] = digest_of("\n".join([statement.kind, digest_of(statement.sql), *below]))
    return [Built(statement, marks[statement.name]) for statement in manifest.statements]


def _mark(replica: Mapping[str, Built], name: str) -> str:
    return replica[name].mark if name in replica else ""


def _carry_out(action: Callable[[Statement], None], statement: Statement, done: str) -> None:
    where = f"{statement.kind} {statement.name} of the catalog cannot be {done}"
    try:
        action(statement)
    except PenstockError as error:
        # The same type, because retry policy asks for it.
        raise type(error)(f"{where}: {error.what}", left=error.left, hint=error.hint) from error
    except Exception as error:
        raise CatalogError(
            f"{where}: {type(error).__name__}: {error}",
            left="what stands before it in the catalog is there",
            hint=f"look at it with `penstock catalog show {statement.name}`, and mend it with "
            f"`penstock catalog add {statement.kind} {statement.name} --replace`",
        ) from error
