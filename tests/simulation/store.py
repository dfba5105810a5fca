"""The simulated store: one backend with atomic documents and sessions, and a faulty wire to each instance."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from penstock.errors import SessionLost, StoreUnavailable
from penstock.store.backends import KeptSession, check_writes
from penstock.store.base import Change, Changes, Document, Session, Store, Write
from tests.simulation.weather import DEADLINE, Fault, Victim, Weather
from tests.simulation.world import Host, Ticket, World

T = TypeVar("T")


class Witness(Protocol):
    """Who is told of every write, at the moment at which it is applied."""

    def written(self, writer: Host, key: str, before: bytes | None, after: bytes | None) -> None: ...


class Backend:
    """What the store holds. Its clock is the world's, and it alone judges sessions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.witness: Witness | None = None
        self.revision = 0
        self.opened: dict[str, Host] = {}
        """Who opened each session."""
        self._documents: dict[str, Document] = {}
        self._keys: list[str] = []
        self._changes: list[Change] = []
        self._expiries: dict[str, float] = {}
        self._watching: dict[str, list[Ticket]] = {}

    def get(self, key: str) -> Document | None:
        return self._documents.get(key)

    def cas(self, writer: Host, key: str, expected: int, value: bytes | None) -> int | None:
        before = self._documents.get(key)
        if (before.version if before else 0) != expected:
            return None
        self.revision += 1
        self._put(key, before, value)
        self._changes.append(Change(key, value, self.revision))
        self._notify(key)
        if self.witness is not None:
            self.witness.written(writer, key, before.value if before else None, value)
        return self.revision

    def list(self, prefix: str, after: str, limit: int) -> Sequence[Document]:
        keys = self._keys
        begin = max(bisect_left(keys, prefix), bisect_right(keys, after))
        found: list[Document] = []
        while begin < len(keys) and len(found) < limit and keys[begin].startswith(prefix):
            found.append(self._documents[keys[begin]])
            begin += 1
        return found

    def changes(self, prefix: str, since: int) -> Changes:
        """The newest change of each key under ``prefix``."""
        found: dict[str, Change] = {}
        for change in reversed(self._changes):
            if change.version <= since:
                break
            if change.key.startswith(prefix):
                found.setdefault(change.key, change)
        return Changes(list(found.values())[::-1], self.revision)

    def open_session(self, host: Host, ttl: float) -> str:
        name = f"{host.name}-{len(self.opened)}"
        self.opened[name] = host
        self._expiries[name] = self.world.now + ttl
        return name

    def extend_session(self, session: str, ttl: float) -> None:
        if not self.is_alive(session):
            raise SessionLost("the lease ran out before it was renewed")
        self._expiries[session] = self.world.now + ttl

    def end_session(self, session: str) -> None:
        self._expiries.pop(session, None)

    def is_alive(self, session: str) -> bool:
        return self._expiries.get(session, 0.0) > self.world.now

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        return frozenset(session for session in sessions if self.is_alive(session))

    def watch(self, prefix: str, ticket: Ticket) -> None:
        """Use ``ticket`` at the next change under ``prefix``."""
        self._watching.setdefault(prefix, []).append(ticket)

    def _put(self, key: str, before: Document | None, value: bytes | None) -> None:
        if value is not None:
            if before is None:
                insort(self._keys, key)
            self._documents[key] = Document(key, value, self.revision)
        elif before is not None:
            self._keys.remove(key)
            del self._documents[key]

    def _notify(self, key: str) -> None:
        for prefix, tickets in self._watching.items():
            if tickets and key.startswith(prefix):
                for ticket in tickets:
                    self.world.after(self.world.random.random() * 0.02, self.world.wake, ticket)
                tickets.clear()


class Wire(Store):
    """One instance's handle on the store. Every call takes time, and may meet a fault."""

    url = "simulated:"

    def __init__(self, backend: Backend, host: Victim, weather: Weather) -> None:
        self._backend = backend
        self._host = host
        self._weather = weather
        self._world = backend.world

    def get(self, key: str) -> Document | None:
        return self._ask("get", key, self._backend.get, key)

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        check_writes([Write(key, expected, value)])
        return self._ask("cas", key, self._backend.cas, self._host, key, expected, value)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        return self._ask("list", prefix, self._backend.list, prefix, after, limit)

    def revision(self) -> int:
        if self._weather.cuts(self._host):
            self._lose()
        return self._backend.revision

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        if not self._backend.changes(prefix, since).changes:
            ticket = self._world.ticket()
            self._backend.watch(prefix, ticket)
            self._world.after(timeout, self._world.wake, ticket)
            self._world.block()
        late = self._weather.lateness()
        if late:
            self._world.sleep(late)
        if self._weather.cuts(self._host):
            self._lose()
        return self._backend.changes(prefix, since)

    def session(self, ttl: float) -> Session:
        name = self._ask("session", "", self._backend.open_session, self._host, ttl)
        return KeptSession(self, name, ttl)

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        return self._ask("alive", "", self._backend.alive, sessions)

    def close(self) -> None:
        """Nothing to let go of."""

    def extend_session(self, session: str, ttl: float) -> None:
        self._ask("keepalive", session, self._backend.extend_session, session, ttl)

    def end_session(self, session: str) -> None:
        self._ask("close", session, self._backend.end_session, session)

    def _ask(self, kind: str, key: str, operation: Callable[..., T], *arguments: Any) -> T:
        fault = self._weather.strike(self._host, kind, key)
        if fault is None:
            return self._send(operation, arguments)
        self._world.say(self._host.name, f"{kind} {key}: {fault.what}")
        return self._faulty(fault, operation, arguments)

    def _faulty(self, fault: Fault, operation: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        """Send a request that is executed and answered late, often, or never."""
        if fault.happening is not None:
            fault.happening()
        if fault.asleep:
            self._world.sleep(0.0)
            return self._send(operation, arguments)
        ticket = self._world.ticket()
        for number, delay in enumerate(fault.executed):
            reply = ticket if number == 0 else None
            execute = self._once(operation, arguments, reply, fault.answered)
            self._world.after(delay, execute)
            if number == 0 and fault.until:
                self._weather.hold(fault.until, execute)
        if fault.answered is None or not fault.executed:
            lost = StoreUnavailable("simulated: no answer")
            self._world.after(fault.deadline, self._world.wake, ticket, None, lost)
        answer: T = self._world.block()
        return answer

    def _once(
        self,
        operation: Callable[..., T],
        arguments: tuple[Any, ...],
        reply: Ticket | None,
        answered: float | None,
    ) -> Callable[[], None]:
        """Execute a request when called for the first time, and answer it if somebody waits."""
        pending = [reply]

        def execute() -> None:
            if not pending:
                return
            waiting, answer, error = pending.pop(), None, None
            try:
                answer = operation(*arguments)
            except SessionLost as lost:
                error = lost
            if waiting is not None and answered is not None:
                self._world.after(answered, self._world.wake, waiting, answer, error)

        return execute

    def _send(self, operation: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        answer = operation(*arguments)
        self._world.sleep(self._weather.latency())
        return answer

    def _lose(self) -> None:
        self._world.sleep(self._world.random.random() * DEADLINE)
        raise StoreUnavailable("simulated: cut off")
