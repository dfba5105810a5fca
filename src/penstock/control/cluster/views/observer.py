"""Looking at a cluster from outside: what people and programs are shown, read from its store.

An observer takes no part and writes nothing. Whether a session is alive, the store says. Whether a lease is
renewed and a barrier moves can only be seen by looking on, so an observer remembers since when, by its own
clock, it sees them as they are: its first look never calls anything late.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from penstock.config import ClusterConfig, shown_url
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records, clusters
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.election import Sighting, see
from penstock.control.cluster.rules.model import Control, Member, Scope
from penstock.control.cluster.views import observation
from penstock.control.cluster.views.observation import Sight
from penstock.control.cluster.views.views import (
    AssignmentsView,
    BarriersView,
    Decided,
    EpochsView,
    LeaderView,
    MembersView,
    OpenBarrier,
    ScopeView,
    StatusView,
)
from penstock.errors import UsageError
from penstock.store.base import Store


class Observer:
    """Looks at the cluster that ``config`` names. Every view raises `UsageError` when there is no cluster."""

    def __init__(
        self, store: Store, config: ClusterConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.keys = Keys(config.name)
        self._store = store
        self._config = config
        self._clock = clock
        self._room = Room(store, self.keys)
        self._roster = Roster(store, self.keys)
        self._records = Records(store, self.keys)
        self._lease: Sighting | None = None
        self._open: dict[tuple[str, int], float] = {}

    def look(self) -> Sight:
        """The control, the members and who of them is alive, one read after the other."""
        found = self._look()
        if found.control.lease.token == 0:
            raise self._missing()
        return found

    def exists(self) -> bool:
        """Whether anybody ever led this cluster."""
        return self._room.read().lease.token > 0

    def status(self, catalog: int) -> StatusView:
        """``catalog`` is the version of the catalog, which the cluster itself does not know."""
        seen = self.look()
        scopes = tuple(
            ScopeView(
                name, state.committed, state.watermark, self._waits(seen, name), self._aborted(name, state)
            )
            for name, state in _scopes(seen.control)
        )
        return observation.status(
            seen, scopes, store=shown_url(self._store.url), cluster=self._config.name, catalog=catalog
        )

    def members(self) -> MembersView:
        """Also where nobody ever led: instances of batch runs are members, and none of them stands for it."""
        seen = self._look()
        if not seen.members and seen.control.lease.token == 0:
            raise self._missing()
        return MembersView(self._config.name, observation.member_views(seen))

    def serving(self) -> list[Member]:
        """The live members that own something or could."""
        return [member for member in self._roster.live() if member.serves]

    def leader(self) -> LeaderView:
        seen = self.look()
        terms = tuple(reversed(seen.control.terms))
        return LeaderView(self._config.name, observation.leading(seen), observation.vacancy(seen), terms)

    def assignments(self, *, history: bool = False, vnodes: bool = False) -> AssignmentsView:
        current = self.look().control.assignment
        return AssignmentsView(
            self._config.name,
            observation.assignment_view(current),
            observation.rotations([*self._records.assignments(), current]) if history else None,
            observation.owners(current) if vnodes else None,
        )

    def barriers(self, limit: int) -> BarriersView:
        """With the newest ``limit`` decisions of each scope."""
        seen = self.look()
        waiting = (self._waits(seen, name) for name in sorted(seen.control.scopes))
        opened = tuple(barrier for barrier in waiting if barrier is not None)
        made = self._decided(seen.control, None, limit)
        ignored: Counter[str] = Counter()
        for counts in [*(each.ignored for each in opened), *(each.ignored for each in made)]:
            ignored.update(counts)
        return BarriersView(self._config.name, opened, made, dict(sorted(ignored.items())))

    def epochs(self, scope: str | None, limit: int) -> EpochsView:
        """The newest ``limit`` decisions of a scope, or of each."""
        return EpochsView(self._config.name, self._decided(self.look().control, scope, limit))

    def decided_since(self, scope: str, epoch: int) -> tuple[Decided, ...]:
        """The decisions of a scope after an epoch, oldest first."""
        return tuple(observation.decided(scope, each) for each in self._records.decisions(scope, epoch))

    def _look(self) -> Sight:
        control, members = self._room.read(), tuple(self._roster.all())
        sessions = {member.session for member in members} | {observation.owner_session(control)}
        alive = self._store.alive([session for session in sessions if session])
        return Sight(control, members, alive, self._unrenewed(control), self._overdue(control))

    def _unrenewed(self, control: Control) -> bool:
        now = self._clock()
        self._lease = see(self._lease, control.lease, now)
        return control.lease.owner is not None and self._lease.expired(now)

    def _overdue(self, control: Control) -> frozenset[tuple[str, int]]:
        now = self._clock()
        opened = [(name, scope.open.epoch) for name, scope in control.scopes.items() if scope.open]
        self._open = {each: self._open.get(each, now) for each in opened}
        limit = self._config.barrier_timeout
        return frozenset(each for each, since in self._open.items() if now - since >= limit)

    def _waits(self, seen: Sight, scope: str) -> OpenBarrier | None:
        barrier = seen.control.scope(scope).open
        if barrier is None:
            return None
        return observation.open_barrier(seen, scope, barrier, self._records.acks(scope))

    def _aborted(self, scope: str, state: Scope) -> Decided | None:
        decision = self._records.decision(scope, state.aborted[-1]) if state.aborted else None
        return observation.decided(scope, decision) if decision is not None else None

    def _decided(self, control: Control, scope: str | None, limit: int) -> tuple[Decided, ...]:
        if scope is not None and scope not in control.scopes:
            known = ", ".join(sorted(control.scopes)) or "none yet"
            raise UsageError(
                f"cluster {self._config.name} has no scope {scope!r}", hint=f"its scopes: {known}"
            )
        found: list[Decided] = []
        for name, state in _scopes(control):
            if scope in (None, name):
                # Numbers have no gaps: only those are read that are shown.
                newest = self.decided_since(name, state.next - 2 - limit)
                found += reversed(newest[-limit:])
        return tuple(found)

    def _missing(self) -> UsageError:
        others = self._clusters()
        also = f"; clusters in this store: {', '.join(others)} (the setting cluster.name)" if others else ""
        return UsageError(
            f"there is no cluster {self._config.name} in {shown_url(self._store.url)}",
            hint=f"`penstock cluster join` makes this machine its first member{also}",
        )

    def _clusters(self) -> list[str]:
        """The names of the clusters in the store."""
        return [name for name in clusters(self._store) if self._store.get(Keys(name).control) is not None]


def _scopes(control: Control) -> list[tuple[str, Scope]]:
    return sorted(control.scopes.items(), key=lambda item: item[0])
