"""Compare-and-set on etcd, and what becomes of a write whose answer was lost.

Such a write is tried again at the next node. If that is refused, the refusal may be the work of the
first try, so it is looked up before anyone believes a conflict:

- A replacement carries its request id in the document. What followed the expected version is in the
  history of its key, and no version ever comes back, so a late try cannot do harm.
- A creation or deletion leaves a receipt, put by the same transaction. A late try of a creation could
  still find the key free once somebody else has deleted it, so the look-up voids what has no receipt
  yet, and a creation asks that there is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import StoreUnavailable
from penstock.store.base import Write
from penstock.store.etcd.channel import LEASE_GRANT, RANGE, TXN
from penstock.store.etcd.client import PATIENCE, EtcdClient
from penstock.store.etcd.errors import Compacted, LeaseGone
from penstock.store.etcd.layout import Layout, new_request_id, request_of, seal
from penstock.store.etcd.watch import Watch
from penstock.store.etcd.wire_pb2 import (
    Compare,
    DeleteRangeRequest,
    Event,
    LeaseGrantRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

MAX_OPERATIONS = 100
"""How many operations go into one transaction; etcd takes 128 by default, those of nested ones included."""

_MAX_BYTES = 1_200_000
_RECEIPT_TTL = 300
_MADE, _VOID = b"made", b"void"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A write under the id by which it can be found again."""

    write: Write
    request: bytes

    @property
    def has_receipt(self) -> bool:
        return self.write.expected == 0 or self.write.value is None


class Writer:
    """Carries out writes for one store handle."""

    def __init__(self, client: EtcdClient, layout: Layout) -> None:
        self._client = client
        self._layout = layout
        self._receipts = _ReceiptLease(client)

    def write(self, writes: Sequence[Write]) -> list[int | None]:
        """The new version of each, or None where it was refused. Several share transactions."""
        outcome: list[int | None] = []
        for batch in _batches(writes):
            pending = [_Pending(write, new_request_id()) for write in batch]
            try:
                outcome += self._commit(pending)
            except StoreUnavailable as error:
                left = "it is not known whether this write was made"
                raise StoreUnavailable(error.what, left=left, hint=error.hint) from error
        return outcome

    def _commit(self, pending: Sequence[_Pending]) -> list[int | None]:
        receipts_gone = False
        try:
            answer, doubt = self._transact(pending, self._conditional)
        except LeaseGone:
            # This process was asleep for minutes, or somebody revoked it. An earlier try may have been made.
            answer, _ = self._transact(pending, self._conditional)
            doubt = receipts_gone = True
        if len(pending) == 1:
            made = [answer.succeeded]
        else:
            made = [each.response_txn.succeeded for each in answer.responses]
        if doubt:
            refused = [each for each, success in zip(pending, made, strict=True) if not success]
            if receipts_gone and any(each.has_receipt for each in refused):
                raise _forgotten()
            found = iter(self._look_up(refused) if refused else ())
            return [answer.header.revision if success else next(found) for success in made]
        return [answer.header.revision if success else None for success in made]

    def _look_up(self, refused: Sequence[_Pending]) -> list[int | None]:
        """The versions that these writes made after all, with earlier tries whose answers were lost."""
        try:
            answer, _ = self._transact(refused, self._inquiry)
        except LeaseGone as error:
            raise _forgotten() from error
        if len(refused) == 1:
            return [self._verdict(refused[0], answer)]
        return [
            self._verdict(each, response.response_txn)
            for each, response in zip(refused, answer.responses, strict=True)
        ]

    def _transact(
        self, pending: Sequence[_Pending], build: Callable[[_Pending, int], TxnRequest]
    ) -> tuple[TxnResponse, bool]:
        """One transaction of what ``build`` makes of each, and whether it may have been made before.

        Raises `LeaseGone` when the receipts, those of earlier tries among them, have ended.
        """
        lease = self._receipts.lease() if any(each.has_receipt for each in pending) else 0
        parts = [build(each, lease) for each in pending]
        request = (
            parts[0] if len(parts) == 1 else TxnRequest(success=[RequestOp(request_txn=p) for p in parts])
        )
        try:
            return self._client.ask(TXN, request)
        except LeaseGone:
            self._receipts.forget(lease)
            raise

    def _conditional(self, pending: _Pending, lease: int) -> TxnRequest:
        """The compare-and-set itself."""
        write, key = pending.write, self._layout.document(pending.write.key)
        receipt = self._layout.receipt(pending.request)
        compare, success = [_is_at(key, write.expected)], []
        if write.value is None:
            success.append(RequestOp(request_delete_range=DeleteRangeRequest(key=key)))
        else:
            success.append(_put(key, seal(pending.request, write.value)))
        if write.expected == 0:
            compare.append(_is_at(receipt, 0))
        if pending.has_receipt:
            success.append(_put(receipt, _MADE, lease))
        return TxnRequest(compare=compare, success=success)

    def _inquiry(self, pending: _Pending, lease: int) -> TxnRequest:
        """Asks whether the write was made; one that is to have a receipt and has none never will be."""
        if not pending.has_receipt:
            key = self._layout.document(pending.write.key)
            return TxnRequest(success=[RequestOp(request_range=RangeRequest(key=key))])
        receipt = self._layout.receipt(pending.request)
        return TxnRequest(
            compare=[_is_at(receipt, 0)],
            success=[_put(receipt, _VOID, lease)],
            failure=[RequestOp(request_range=RangeRequest(key=receipt))],
        )

    def _verdict(self, pending: _Pending, answer: TxnResponse) -> int | None:
        """What the answer to `_inquiry` says: the version that was made, or None."""
        found = answer.responses[0].response_range.kvs
        if pending.has_receipt:
            return found[0].mod_revision if found and found[0].value == _MADE else None
        if found and request_of(found[0]) == pending.request:
            return found[0].mod_revision
        return self._what_followed(pending)

    def _what_followed(self, pending: _Pending) -> int | None:
        """The version after the expected one, if this write made it. Somebody has overwritten it since."""
        key, expected = self._layout.document(pending.write.key), pending.write.expected
        try:
            event = self._first_event(key, expected)
        except Compacted as gone:
            event = self._first_event(key, self._unchanged_at(gone.revision, key, expected))
        ours = event.type == Event.PUT and request_of(event.kv) == pending.request
        return event.kv.mod_revision if ours else None

    def _first_event(self, key: bytes, since: int) -> Event:
        watch = Watch(self._client, key, b"", since)
        try:
            events = watch.events(time.monotonic() + PATIENCE)
        finally:
            watch.close()
        if not events:
            raise StoreUnavailable("etcd did not tell what became of a write", hint="try again")
        return events[0]

    def _unchanged_at(self, revision: int, key: bytes, expected: int) -> int:
        """``revision``, from which on history is kept, if the key was still at its version then."""
        with suppress(Compacted):
            found = self._client.call(RANGE, RangeRequest(key=key, revision=revision)).kvs
            if found and found[0].mod_revision == expected:
                return revision
        raise StoreUnavailable("etcd no longer keeps what became of a write", hint="try again")


class _ReceiptLease:
    """The lease that ends receipts; there is a new one every few minutes."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._lease = 0
        self._renewal = 0.0

    def lease(self) -> int:
        """A lease that lives for at least half of the full time."""
        now = time.monotonic()
        with self._lock:
            if now < self._renewal:
                return self._lease
        # Not under the lock, or those who wait for a silent etcd would wait one after the other.
        granted = self._client.call(LEASE_GRANT, LeaseGrantRequest(TTL=_RECEIPT_TTL)).ID
        with self._lock:
            self._lease, self._renewal = granted, now + _RECEIPT_TTL / 2
        return granted

    def forget(self, lease: int) -> None:
        with self._lock:
            if lease == self._lease:
                self._renewal = 0.0


def _forgotten() -> StoreUnavailable:
    return StoreUnavailable("etcd no longer keeps the receipt of a write", hint="read what is there")


def _batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """The writes in their order, cut where a transaction would get too large or see a key twice."""
    batch: list[Write] = []
    keys: set[str] = set()
    size = 0
    for write in writes:
        cost = len(write.value or b"") + 4 * len(write.key)
        if batch and (write.key in keys or len(batch) == MAX_OPERATIONS or size + cost > _MAX_BYTES):
            yield batch
            batch, keys, size = [], set(), 0
        batch.append(write)
        keys.add(write.key)
        size += cost
    if batch:
        yield batch


def _is_at(key: bytes, version: int) -> Compare:
    if version == 0:
        return Compare(target=Compare.CREATE, key=key, create_revision=0)
    return Compare(target=Compare.MOD, key=key, mod_revision=version)


def _put(key: bytes, value: bytes, lease: int = 0) -> RequestOp:
    return RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))
