"""What every store must do, as tests that a third party can run on its own backend.

::

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def stores(self):
            with MyStore(...) as one, MyStore(...) as other:
                yield one, other

``stores`` gives two handles on one empty backend, as two processes would have them.
"""

from __future__ import annotations

import threading
import time
from typing import ClassVar

from penstock.errors import SessionLost, StoreUnavailable, UsageError
from penstock.store.backends import MAX_DOCUMENT
from penstock.store.base import Store, Write

Stores = tuple[Store, Store]


class StoreConformance:
    """Subclass it and provide a ``stores`` fixture."""

    ttl: ClassVar[float] = 0.4
    """How long the sessions of these tests live: the shortest that the backend can judge well."""

    grace: ClassVar[float] = 0.3
    """How late the backend may notice that a session is over."""

    def pass_time(self, seconds: float) -> None:
        """Let the backend's clock move on; override it where the test owns that clock."""
        time.sleep(seconds)

    # documents

    def test_a_document_is_read_back_by_everybody(self, stores: Stores) -> None:
        one, other = stores
        assert one.get("a/b") is None
        version = one.cas("a/b", 0, b"hello")
        assert version is not None and version > 0
        for store in (one, other):
            document = store.get("a/b")
            assert document is not None
            assert (document.key, document.value, document.version) == ("a/b", b"hello", version)

    def test_expected_zero_only_creates(self, stores: Stores) -> None:
        one, other = stores
        assert one.cas("k", 0, b"first")
        assert other.cas("k", 0, b"second") is None
        assert _value(one, "k") == b"first"

    def test_a_stale_version_writes_nothing(self, stores: Stores) -> None:
        one, other = stores
        first = _must(one.cas("k", 0, b"1"))
        second = _must(other.cas("k", first, b"2"))
        assert second > first
        assert one.cas("k", first, b"lost") is None
        assert one.cas("k", second + 1, b"lost") is None
        assert one.cas("absent", 7, b"lost") is None
        assert (_value(one, "k"), one.get("absent")) == (b"2", None)

    def test_versions_grow_across_deletion(self, stores: Stores) -> None:
        one, other = stores
        first = _must(one.cas("k", 0, b"1"))
        deleted = _must(one.cas("k", first, None))
        assert deleted > first
        assert other.get("k") is None
        assert other.cas("k", first, b"zombie") is None
        assert other.cas("k", deleted, b"zombie") is None
        assert _must(other.cas("k", 0, b"2")) > deleted

    def test_values_are_bytes_of_any_kind_and_100_kilobytes(self, stores: Stores) -> None:
        one, other = stores
        value = bytes(range(256)) * 400
        one.cas("big", 0, value)
        one.cas("empty", 0, b"")
        assert _value(other, "big") == value
        assert _value(other, "empty") == b""

    def test_data_does_not_go_into_the_store(self, stores: Stores) -> None:
        one, _ = stores
        assert one.cas("largest", 0, bytes(MAX_DOCUMENT))
        for write in (one.cas, lambda *of: one.cas_many([Write("fits", 0, b""), Write(*of)])):
            try:
                write("k", 0, bytes(MAX_DOCUMENT + 1))
            except UsageError:
                continue
            raise AssertionError("a document of any size was accepted")
        assert (one.get("k"), one.get("fits")) == (None, None)

    def test_bad_keys_and_deletions_are_refused(self, stores: Stores) -> None:
        one, _ = stores
        for key, value in (("", b""), ("a\nb", b""), ("a\0", b""), ("k", None)):
            try:
                one.cas(key, 0, value)
            except UsageError:
                continue
            raise AssertionError(f"{key!r}, {value!r} was accepted")

    def test_get_many_keeps_order_and_holes(self, stores: Stores) -> None:
        one, other = stores
        one.cas("a", 0, b"1")
        one.cas("b", 0, b"2")
        found = other.get_many(["b", "absent", "a", "b"])
        assert [document and document.value for document in found] == [b"2", None, b"1", b"2"]
        assert other.get_many([]) == []

    def test_each_of_many_writes_has_its_own_outcome(self, stores: Stores) -> None:
        one, other = stores
        version = _must(one.cas("b", 0, b"old"))
        outcome = one.cas_many(
            [
                Write("a", 0, b"1"),
                Write("b", version + 99, b"lost"),
                Write("c", 0, b"3"),
                Write("b", version, b"new"),
            ]
        )
        assert outcome[1] is None and None not in (outcome[0], outcome[2], outcome[3])
        assert [_value(other, key) for key in "abc"] == [b"1", b"new", b"3"]
        assert one.cas_many([]) == []

    # lists

    def test_list_is_in_key_order_and_in_pages(self, stores: Stores) -> None:
        one, other = stores
        keys = [f"p/{i:03d}" for i in range(25)]
        for key in reversed(keys):
            one.cas(key, 0, key.encode())
        first = other.list("p/", limit=10)
        assert [d.key for d in first] == keys[:10]
        assert [d.key for d in other.list("p/", first[-1].key, 10)] == keys[10:20]
        assert [d.key for d in other.list("p/", after="p/0115", limit=2)] == ["p/012", "p/013"]
        assert [d.key for d in other.scan("p/", page=7)] == keys
        assert list(other.list("p/", after=keys[-1])) == []

    def test_list_keeps_to_its_prefix(self, stores: Stores) -> None:
        one, _ = stores
        keys = ["a", "a/", "a/b", "a/b/c", "a/é", "a/𝄞", "a0", "ab", "b"]
        for key in keys:
            one.cas(key, 0, b"")
        one.cas("a/gone", _must(one.cas("a/gone", 0, b"")), None)
        assert [d.key for d in one.list("a/")] == ["a/", "a/b", "a/b/c", "a/é", "a/𝄞"]
        assert [d.key for d in one.list("a/b")] == ["a/b", "a/b/c"]
        assert [d.key for d in one.list("")] == sorted(keys)

    # watches

    def test_watch_gives_changes_in_order(self, stores: Stores) -> None:
        one, other = stores
        since = other.revision()
        a = _must(one.cas("w/a", 0, b"1"))
        one.cas("elsewhere", 0, b"")
        b = _must(one.cas("w/b", 0, b"2"))
        changes, until = other.watch("w/", since, 5)
        assert (changes[-1].key, changes[-1].value, changes[-1].version) == ("w/b", b"2", b)
        gone = _must(one.cas("w/a", a, None))
        changes, until = other.watch("w/", until, 5)
        assert [(c.key, c.value, c.version) for c in changes] == [("w/a", None, gone)]
        assert not other.watch("w/", until, 0.05).changes
        again = [(c.key, c.value) for c in other.watch("w/", since, 5).changes]
        assert again[-2:] == [("w/b", b"2"), ("w/a", None)]

    def test_watch_times_out(self, stores: Stores) -> None:
        one, _ = stores
        one.cas("w/a", 0, b"1")
        began = time.monotonic()
        assert not one.watch("w/", one.revision(), 0.15).changes
        assert 0.1 < time.monotonic() - began < 3

    def test_watch_wakes_up_for_another_handle(self, stores: Stores) -> None:
        one, other = stores
        since = one.revision()
        writer = threading.Timer(0.1, lambda: other.cas("w/a", 0, b"1"))
        writer.start()
        began = time.monotonic()
        changes, _ = one.watch("w/", since, 10)
        writer.join()
        assert [c.key for c in changes] == ["w/a"]
        assert time.monotonic() - began < 3

    # sessions

    def test_a_session_ends_unless_it_is_kept_alive(self, stores: Stores) -> None:
        one, other = stores
        kept, left = one.session(self.ttl), one.session(self.ttl)
        assert other.alive([kept.id, left.id, "nobody"]) == {kept.id, left.id}
        for _ in range(4):
            self.pass_time((self.ttl + self.grace) / 3)
            kept.keepalive()
        assert other.alive([kept.id, left.id]) == {kept.id}
        assert other.alive([]) == frozenset()

    def test_a_lost_session_stays_lost(self, stores: Stores) -> None:
        one, other = stores
        session = one.session(self.ttl)
        self.pass_time(self.ttl + self.grace)
        for _ in range(2):
            try:
                session.keepalive()
            except SessionLost:
                assert not other.alive([session.id])
            else:
                raise AssertionError("a session came back to life")
        assert one.session(self.ttl).id != session.id

    def test_a_closed_session_is_over_at_once(self, stores: Stores) -> None:
        one, other = stores
        session = one.session(60)
        session.close()
        session.close()
        assert not other.alive([session.id])
        try:
            session.keepalive()
        except SessionLost:
            return
        raise AssertionError("a closed session came back to life")

    # races

    def test_no_increment_is_lost(self, stores: Stores) -> None:
        each, threads = 40, 6
        stores[0].cas("n", 0, b"0")
        doubtful: list[int] = []
        workers = [
            threading.Thread(target=_increment, args=(stores[i % 2], "n", each, doubtful))
            for i in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = int(_value(stores[0], "n"))
        assert each * threads <= found <= each * threads + len(doubtful)

    def test_only_one_creates(self, stores: Stores) -> None:
        won: list[int] = []

        def create(i: int) -> None:
            won.extend([i] if stores[i % 2].cas("once", 0, b"%d" % i) else [])

        workers = [threading.Thread(target=create, args=(i,)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [b"%d" % i for i in won] == [_value(stores[0], "once")]


def _increment(store: Store, key: str, times: int, doubtful: list[int]) -> None:
    """Count up so often that the store says so; of further writes it may say that it does not know."""
    done = 0
    while done < times:
        try:
            document = store.get(key)
            assert document is not None
            done += store.cas(key, document.version, b"%d" % (int(document.value) + 1)) is not None
        except StoreUnavailable:
            doubtful.append(done)
            # A store that cannot tell of every second write would pass everything.
            if len(doubtful) > times:
                raise


def _must(version: int | None) -> int:
    assert version is not None
    return version


def _value(store: Store, key: str) -> bytes:
    document = store.get(key)
    assert document is not None
    return document.value
