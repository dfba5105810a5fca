"""The store of a cluster: etcd 3.4 or newer, with any number of endpoints.

A document's version is the revision of etcd that last changed it. All reads are linearizable. A
handle connects when it is first used; one that lives through a fork connects anew in the child.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Self

from penstock.config.tls import Tls
from penstock.errors import StoreUnavailable
from penstock.store.backends import KeptSession, check_ttl, check_writes, session_lost, survive_forks
from penstock.store.base import Change, Changes, Document, Session, Store, Write
from penstock.store.etcd import url as urls
from penstock.store.etcd.channel import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, PUT, RANGE, TXN
from penstock.store.etcd.client import PATIENCE, EtcdClient
from penstock.store.etcd.errors import Compacted, LeaseGone
from penstock.store.etcd.layout import Layout
from penstock.store.etcd.watch import ParkedWatches, Watch
from penstock.store.etcd.wire_pb2 import (
    KeyValue,
    LeaseGrantRequest,
    LeaseKeepAliveRequest,
    LeaseRevokeRequest,
    PutRequest,
    RangeRequest,
    RangeResponse,
    RequestOp,
    TxnRequest,
)
from penstock.store.etcd.writes import MAX_OPERATIONS, Writer

_PAGE = 250
_PAUSE = 0.05
# In seconds; more than etcd takes, and few enough for its 64 bits.
_LONGEST = 10**10


class EtcdStore(Store):
    """A store under ``prefix`` in the etcd cluster that answers at ``endpoints``."""

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str,
        *,
        tls: Tls | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        address = urls.address(endpoints, prefix, user, password)
        self.url = address.url
        self._layout = Layout(address.prefix)
        self._client = EtcdClient(address, tls)
        self._writer = Writer(self._client, self._layout)
        self._watches = ParkedWatches()
        survive_forks(self)

    @classmethod
    def open(cls, url: str, *, tls: Tls | None = None, password: str | None = None) -> Self:
        """The store that an ``etcd://`` URL names; a password that is given here comes before the URL's."""
        found = urls.parse(url)
        password = found.password if password is None else password
        return cls(found.endpoints, found.prefix, tls=tls, user=found.user, password=password)

    def get(self, key: str) -> Document | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        found = self._read([self._layout.document(key) for key in keys])
        return [self._layout.to_document(each) if each else None for each in found]

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        return self.cas_many([Write(key, expected, value)])[0]

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        check_writes(writes)
        return self._writer.write(writes)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        found: list[Document] = []
        while len(found) < limit:
            page = self._page(prefix, after, min(limit - len(found), _PAGE))
            found += map(self._layout.to_document, page)
            if len(page) < _PAGE:
                break
            after = found[-1].key
        return found

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        deadline = time.monotonic() + timeout
        watch = self._watches.take(prefix, since) or Watch(self._client, *self._layout.bounds(prefix), since)
        try:
            events = watch.events(deadline)
        except Compacted as gone:
            return self._changed_since(prefix, since, gone.revision, deadline)
        except BaseException:
            watch.close()
            raise
        self._watches.park(prefix, watch)
        return Changes([self._layout.to_change(event) for event in events], watch.since)

    def revision(self) -> int:
        return self._client.call(RANGE, RangeRequest(key=self._layout.document(""))).header.revision

    def session(self, ttl: float) -> Session:
        check_ttl(ttl)
        lease = self._client.call(LEASE_GRANT, LeaseGrantRequest(TTL=min(math.ceil(ttl), _LONGEST))).ID
        opened = KeptSession(self, f"{lease:016x}", ttl)
        try:
            self._client.call(PUT, PutRequest(key=self._layout.session(opened.id), lease=lease))
        except LeaseGone as error:
            raise StoreUnavailable(f"etcd took longer than {ttl:g} s to open a session") from error
        return opened

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        names = tuple(sessions)
        found = self._read([self._layout.session(name) for name in names])
        return frozenset(name for name, each in zip(names, found, strict=True) if each)

    def close(self) -> None:
        self._watches.close()
        self._client.close()

    def extend_session(self, session: str, ttl: float) -> None:
        """What `Session.keepalive` does.

        The leader answers for a lease alone. One that is cut off, and does not know it yet, answers for
        leases that the others have ended or given to a new leader, hence the read and the same term.
        """
        deadline = time.monotonic() + PATIENCE
        key = self._layout.session(session)
        while True:
            renewed = self._client.call(LEASE_KEEP_ALIVE, LeaseKeepAliveRequest(ID=_lease(session)))
            found = self._client.call(RANGE, RangeRequest(key=key, keys_only=True))
            if not found.kvs:
                raise session_lost(ttl)
            if renewed.TTL > 0 and renewed.header.raft_term == found.header.raft_term:
                return
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"etcd did not renew a lease within {PATIENCE:g} s", hint="try again")
            time.sleep(_PAUSE)

    def end_session(self, session: str) -> None:
        """What `Session.close` does."""
        with suppress(LeaseGone):
            self._client.call(LEASE_REVOKE, LeaseRevokeRequest(ID=_lease(session)))

    def after_fork(self) -> None:
        """In a forked child: start anew, since neither locks nor connections survive a fork."""
        self._client.after_fork()
        self._writer = Writer(self._client, self._layout)
        self._watches.after_fork()

    def _read(self, keys: Sequence[bytes]) -> Sequence[KeyValue | None]:
        """What stands at each key now."""
        if len(keys) == 1:
            return [_only(self._client.call(RANGE, RangeRequest(key=keys[0])))]
        found: list[KeyValue | None] = []
        for begin in range(0, len(keys), MAX_OPERATIONS):
            reads = [RangeRequest(key=key) for key in keys[begin : begin + MAX_OPERATIONS]]
            request = TxnRequest(success=[RequestOp(request_range=read) for read in reads])
            found += [_only(each.response_range) for each in self._client.call(TXN, request).responses]
        return found

    def _page(self, prefix: str, after: str, limit: int) -> Sequence[KeyValue]:
        first, end = self._layout.bounds(prefix, after)
        # Keys come in order. To ask for the order would make etcd read the whole range to sort it.
        return self._client.call(RANGE, RangeRequest(key=first, range_end=end, limit=limit)).kvs

    def _changed_since(self, prefix: str, since: int, kept: int, deadline: float) -> Changes:
        """What a watch missed of the time before ``kept``, where history now begins, or what comes next."""
        # What is newer than that comes from the next watch.
        documents = [d for d in self.scan(prefix, _PAGE) if since < d.version <= kept]
        found = [Change(d.key, d.value, d.version) for d in documents]
        if not found:
            return self.watch(prefix, kept, deadline - time.monotonic())
        return Changes(sorted(found, key=lambda change: change.version), kept)


def _lease(session: str) -> int:
    """The lease to which the key of a session is bound."""
    return int(session, 16)


def _only(answer: RangeResponse) -> KeyValue | None:
    return answer.kvs[0] if answer.kvs else None
