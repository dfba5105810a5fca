"""Watches: what happens to a range of keys, from whichever node answers.

A watch stays open between calls. To open it anew at an old revision would make etcd read through
everything that was written since, whether it belongs to the range or not.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

import grpc

from penstock.store.etcd.channel import RANGE, EtcdNode, Metadata
from penstock.store.etcd.client import TRY, EtcdClient
from penstock.store.etcd.errors import Broken, Compacted, raise_canceled, text
from penstock.store.etcd.wire_pb2 import Event, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse

# A node hands out what is already past in rounds, ten times a second.
_CATCH_UP = 0.5
_PARKED = 16


class Watch:
    """The events of the keys from ``first`` up to ``end`` (empty: of the one key) after ``since``."""

    def __init__(self, client: EtcdClient, first: bytes, end: bytes, since: int) -> None:
        self.since = since
        self._client = client
        self._range = (first, end)
        self._feed: _Feed | None = None
        self._caught_up = 0.0

    def events(self, deadline: float) -> Sequence[Event]:
        """The next events, oldest first; none when there is none by ``deadline``.

        Those of one revision stay together. ``since`` moves on. Raises `Compacted` when they are no
        longer kept, and `StoreUnavailable` when no node lets us watch.
        """
        while True:
            feed = self._feed or self._open()
            left = max(deadline, self._caught_up) - time.monotonic()
            try:
                answer = feed.next(min(max(left, 0.0), TRY))
            except Broken:
                self._leave(feed)
            else:
                if answer is not None and (events := self._take(answer)):
                    return [*events, *self._more(feed)]
                if answer is None and feed.silence() >= TRY:
                    self._probe(feed)
            if left <= 0:
                return ()

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _open(self) -> _Feed:
        create = WatchCreateRequest(
            key=self._range[0], range_end=self._range[1], start_revision=self.since + 1, progress_notify=True
        )
        (feed, revision), _ = self._client.attempt(lambda node: self._open_at(node, create))
        if revision > self.since:
            self._caught_up = time.monotonic() + _CATCH_UP
        self._feed = feed
        return feed

    def _open_at(self, node: EtcdNode, create: WatchCreateRequest) -> tuple[_Feed, int]:
        # A watch neither logs in anew nor notices that its node lags behind; a read does both.
        self._client.call_at(node, RANGE, RangeRequest(key=self._range[0], keys_only=True))
        feed = _Feed(node, WatchRequest(create_request=create), self._client.metadata())
        try:
            answer = feed.next(TRY)
            if answer is None:
                raise Broken("no answer to a watch")
            if answer.canceled:
                raise_canceled(answer.cancel_reason, node.endpoint)
        except BaseException:
            feed.close()
            raise
        return feed, answer.header.revision

    def _take(self, answer: WatchResponse) -> Sequence[Event]:
        if answer.compact_revision:
            self.close()
            raise Compacted(answer.compact_revision)
        if answer.canceled:
            self.close()
        elif answer.events:
            self.since = answer.events[-1].kv.mod_revision
        elif not answer.created:
            # Sent now and then to a watch that has seen everything up to there.
            self.since = max(self.since, answer.header.revision)
        return answer.events

    def _more(self, feed: _Feed) -> Iterator[Event]:
        """What else has arrived, without waiting."""
        for answer in feed.more():
            yield from self._take(answer)

    def _probe(self, feed: _Feed) -> None:
        if self._client.answers(feed.node):
            feed.heard_of()
        else:
            self._leave(feed)

    def _leave(self, feed: _Feed) -> None:
        self._client.leave(feed.node)
        self.close()


class _Feed:
    """The answers of one stream, read by a thread so that one can wait for them with a limit."""

    def __init__(self, node: EtcdNode, request: WatchRequest, metadata: Metadata) -> None:
        self.node = node
        self._arrived = threading.Condition()
        self._answers: deque[WatchResponse | Exception] = deque()
        self._heard = time.monotonic()
        self._closed = threading.Event()
        self._stream = node.stream(self._requests(request), metadata)
        threading.Thread(target=self._read, name="penstock-etcd-watch", daemon=True).start()

    def next(self, timeout: float) -> WatchResponse | None:
        """The next answer, or None when there is none in time. Raises `Broken`."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: self._answers, timeout):
                return None
            if isinstance(first := self._answers[0], Exception):
                raise Broken(text(first)) from first
            self._answers.popleft()
            return first

    def more(self) -> Sequence[WatchResponse]:
        """Further answers with events that are there already."""
        found = []
        with self._arrived:
            while self._answers and isinstance(first := self._answers[0], WatchResponse) and first.events:
                found.append(first)
                self._answers.popleft()
        return found

    def silence(self) -> float:
        """For how many seconds nothing was heard of the node."""
        return time.monotonic() - self._heard

    def heard_of(self) -> None:
        self._heard = time.monotonic()

    def close(self) -> None:
        self._closed.set()
        self._stream.cancel()

    def _requests(self, request: WatchRequest) -> Iterator[WatchRequest]:
        yield request
        self._closed.wait()

    def _read(self) -> None:
        try:
            for answer in self._stream:
                self._arrive(answer)
            self._arrive(Broken("the watch was ended"))
        except grpc.RpcError as error:
            self._arrive(error)

    def _arrive(self, answer: WatchResponse | Exception) -> None:
        with self._arrived:
            self._answers.append(answer)
            self._heard = time.monotonic()
            self._arrived.notify_all()


class ParkedWatches:
    """Open watches between two calls, each of a prefix and at the revision it has come to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[tuple[str, Watch]] = []
        self._closed = False

    def take(self, prefix: str, since: int) -> Watch | None:
        with self._lock:
            for place, (known, watch) in enumerate(self._watches):
                if (known, watch.since) == (prefix, since):
                    del self._watches[place]
                    return watch
        return None

    def park(self, prefix: str, watch: Watch) -> None:
        """Keep it for the next call; the one that nobody came back to for longest makes way."""
        surplus = None
        with self._lock:
            self._watches.append((prefix, watch))
            if self._closed or len(self._watches) > _PARKED:
                _, surplus = self._watches.pop(0)
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            watches, self._watches = self._watches, []
        for _, watch in watches:
            watch.close()

    def after_fork(self) -> None:
        """In a forked child: leave the parent's watches alone."""
        _abandoned.append(self._watches)
        self._lock = threading.Lock()
        self._watches = []


_abandoned: list[object] = []
