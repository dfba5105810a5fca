from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.model import Control, Member, Scope
from penstock.errors import StreamError, StreamMismatch, UsageError
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.streams import registry
from penstock.streams.model import END, SCOPE
from penstock.streams.registry import StreamRecord, check_current, open_stream, wish
from penstock.streams.supervisors import SupervisorEntry, Supervisors, share

DEFINITION: dict[str, Any] = {
    "sources": {"clicks": {"table": {"user": "string", "at": "timestamp"}, "code": "a" * 32}},
    "outputs": {"counts": {"mode": "update", "keys": ("user",), "sink": {"kind": "parquet"}}},
}


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def changed(*path: str, value: Any) -> dict[str, Any]:
    """The definition with another value at a path; None removes it."""

    def copied(node: dict[str, Any], rest: tuple[str, ...]) -> dict[str, Any]:
        inner = copied(node.get(rest[0], {}), rest[1:]) if rest[1:] else value
        return {key: each for key, each in {**node, rest[0]: inner}.items() if each is not None}

    return copied(DEFINITION, path)


def member_of(store: Store, record: StreamRecord, name: str = "a-1") -> Member:
    member = Member(name, store.session(60).id, "1")
    Roster(store, Keys(record.layout.cluster)).join(member)
    return member


def supervisor_of(store: Store, record: StreamRecord, name: str = "s") -> SupervisorEntry:
    entry = SupervisorEntry(name, store.session(60).id, "here", 17, 1)
    Supervisors(store, record.layout).enter(entry)
    return entry


def test_a_stream_is_made_once_and_opened_again(store: Store) -> None:
    made = open_stream(store, "clicks", DEFINITION)
    assert (made.wanted, made.instances) == ("running", None)
    assert len(made.id) == 8
    assert open_stream(store, "clicks", DEFINITION) == made
    assert registry.load(store, "clicks") == made
    assert registry.names(store) == ["clicks"]


def test_the_documents_of_a_stream_are_no_streams(store: Store) -> None:
    record = open_stream(store, "clicks", DEFINITION)
    store.cas(f"{record.layout.keys}stream", 0, b"{}")
    supervisor_of(store, record)
    assert registry.names(store) == ["clicks"]


def test_a_name_that_is_none_and_a_stream_that_is_not_there(store: Store) -> None:
    with pytest.raises(UsageError, match="not a name"):
        open_stream(store, "a/b", DEFINITION)
    with pytest.raises(UsageError) as missing:
        registry.load(store, "clicks")
    assert "penstock stream start" in (missing.value.hint or "")
    open_stream(store, "orders", DEFINITION)
    with pytest.raises(UsageError, match="no stream 'clicks'") as other:
        wish(store, "clicks", wanted="stopped")
    assert "orders" in (other.value.hint or "")


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (changed("sources", "orders", value={"table": {}}), "source orders is new"),
        (changed("sources", "clicks", "code", value="b" * 32), "source clicks: code has changed"),
        (changed("outputs", "counts", value=None), "output counts is gone"),
        (
            changed("outputs", "counts", "mode", value="append"),
            "output counts: mode is append, and was update",
        ),
        (
            changed("outputs", "counts", "sink", "kind", value="delta"),
            "output counts: sink kind is delta, and was parquet",
        ),
        (changed("operators", value={"count": "c" * 32}), "operators is new"),
    ],
)
def test_what_may_be_accepted_is_refused_until_it_is(
    store: Store, definition: dict[str, Any], said: str
) -> None:
    made = open_stream(store, "clicks", DEFINITION)
    with pytest.raises(StreamMismatch) as refused:
        open_stream(store, "clicks", definition)
    assert said in refused.value.what
    assert "--accept-changes" in (refused.value.hint or "")
    assert registry.load(store, "clicks") == made
    accepted = open_stream(store, "clicks", definition, accept_changes=True)
    assert accepted.id == made.id
    assert open_stream(store, "clicks", definition) == accepted


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (changed("sources", "clicks", value=None), "source clicks is gone"),
        (
            changed("sources", "clicks", "table", "at", value="int64"),
            "source clicks: table at is int64, and was timestamp",
        ),
        (changed("sources", "clicks", "table", "page", value="string"), "source clicks: table page is new"),
    ],
)
def test_what_committed_rows_do_not_fit_cannot_be_accepted(
    store: Store, definition: dict[str, Any], said: str
) -> None:
    made = open_stream(store, "clicks", DEFINITION)
    with pytest.raises(StreamMismatch) as refused:
        open_stream(store, "clicks", definition, accept_changes=True)
    assert said in refused.value.what
    assert "--accept-changes" not in (refused.value.hint or "")
    assert "penstock stream drop clicks" in (refused.value.hint or "")
    assert registry.load(store, "clicks") == made


def test_changes_are_not_accepted_under_the_feet_of_who_runs_the_old_ones(store: Store) -> None:
    record = open_stream(store, "clicks", DEFINITION)
    member_of(store, record)
    newer = changed("sources", "clicks", "code", value="b" * 32)
    with pytest.raises(StreamMismatch) as refused:
        open_stream(store, "clicks", newer, accept_changes=True)
    assert "instance a-1" in (refused.value.left or "")
    assert registry.load(store, "clicks") == record


def test_an_instance_takes_part_only_with_the_definition_that_runs(store: Store) -> None:
    record = open_stream(store, "clicks", DEFINITION)
    assert check_current(store, "clicks", record.id, DEFINITION) == record
    with pytest.raises(StreamMismatch, match="code has changed"):
        check_current(store, "clicks", record.id, changed("sources", "clicks", "code", value="b" * 32))
    with pytest.raises(StreamError, match="removed meanwhile"):
        check_current(store, "clicks", "00000000", DEFINITION)
    with pytest.raises(StreamError, match="removed meanwhile"):
        check_current(store, "orders", record.id, DEFINITION)
    assert registry.names(store) == ["clicks"], "looking made a stream"


def test_wishes_change_what_they_name_and_count_once(store: Store) -> None:
    open_stream(store, "clicks", DEFINITION)
    assert wish(store, "clicks", instances=3).instances == 3
    suspended = wish(store, "clicks", wanted="suspended")
    assert (suspended.wanted, suspended.instances, suspended.requests) == ("suspended", 3, 2)
    assert wish(store, "clicks", wanted="suspended") == suspended
    assert wish(store, "clicks", wanted="suspended", again=True).requests == 3
    assert wish(store, "clicks", instances=None).instances is None


class Interrupting(MemoryStore):
    """Somebody else writes right before the first compare-and-set of a key."""

    def __init__(self) -> None:
        super().__init__()
        self.other: tuple[str, StreamRecord] | None = None

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        if self.other is not None and self.other[0] == key:
            (_, record), self.other = self.other, None
            found = self.get(key)
            super().cas(key, found.version if found else 0, registry.RECORD.encode(record))
        return super().cas(key, expected, value)


def test_two_wishes_at_once_both_count() -> None:
    store = Interrupting()
    record = open_stream(store, "clicks", DEFINITION)
    other = StreamRecord("clicks", record.id, record.definition, record.created, "suspended", None, 1)
    store.other = ("streams/clicks/stream", other)
    after = wish(store, "clicks", instances=4)
    assert (after.wanted, after.instances, after.requests) == ("suspended", 4, 2)
    assert registry.load(store, "clicks") == after


def test_two_who_make_a_stream_at_once_get_the_same(store: Store) -> None:
    store = Interrupting()
    store.other = (
        "streams/clicks/stream",
        StreamRecord("clicks", "0badcafe", registry._as_stored(DEFINITION), ""),
    )
    assert open_stream(store, "clicks", DEFINITION).id == "0badcafe"


def test_dropping_leaves_nothing_and_a_new_one_is_another(store: Store, storage: Storage) -> None:
    record = open_stream(store, "clicks", DEFINITION)
    other = open_stream(store, "clicks.more", DEFINITION)
    storage.write(f"{record.layout.root}/rows/x", b"1")
    storage.write(f"{other.layout.root}/rows/x", b"1")
    store.cas(record.layout.log_key, 0, b"{}")
    store.cas(Keys(record.layout.cluster).control, 0, b"{}")
    registry.drop(store, storage, "clicks")
    assert registry.names(store) == ["clicks.more"]
    assert [path for path, _ in storage.list()] == [f"{other.layout.root}/rows/x"]
    assert not list(store.scan("streams/clicks/")) and not list(store.scan("cluster/"))
    assert open_stream(store, "clicks", DEFINITION).id != record.id


def test_who_dies_while_dropping_leaves_it_to_the_next(
    store: Store, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = open_stream(store, "clicks", DEFINITION)
    store.cas(record.layout.log_key, 0, b"{}")
    storage.write(f"{record.layout.root}/rows/x", b"1")

    def dies(self: Storage, path: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(Storage, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            registry.drop(store, storage, "clicks")
    assert registry.names(store) == ["clicks"]
    with pytest.raises(StreamError, match="being removed") as refused:
        open_stream(store, "clicks", DEFINITION)
    assert "penstock stream drop clicks" in (refused.value.hint or "")
    with pytest.raises(StreamError, match="removed meanwhile"):
        check_current(store, "clicks", record.id, DEFINITION)
    registry.drop(store, storage, "clicks")
    assert not list(storage.list()) and not list(store.scan("streams/"))


def test_a_stream_that_runs_is_not_dropped(store: Store, storage: Storage) -> None:
    record = open_stream(store, "clicks", DEFINITION)
    storage.write(f"{record.layout.root}/rows/x", b"1")
    member = member_of(store, record)
    entry = supervisor_of(store, record)
    with pytest.raises(StreamError) as refused:
        registry.drop(store, storage, "clicks")
    assert "instance a-1" in refused.value.what and "process 17" in refused.value.what
    assert "stop clicks --wait" in (refused.value.hint or "")
    assert storage.list() and registry.load(store, "clicks") == record
    Roster(store, Keys(record.layout.cluster)).leave(member)
    with pytest.raises(StreamError, match="process 17"):
        registry.drop(store, storage, "clicks")
    Supervisors(store, record.layout).leave(entry)
    registry.drop(store, storage, "clicks")


def test_supervisors_that_are_gone_do_not_count() -> None:
    now = 0.0
    store = MemoryStore(clock=lambda: now)
    record = open_stream(store, "clicks", DEFINITION)
    supervisors = Supervisors(store, record.layout)
    gone = supervisor_of(store, record, "a")
    now = 50.0
    stays = supervisor_of(store, record, "b")
    now = 70.0
    assert supervisors.live() == [stays]
    supervisors.sweep()
    assert [each.key for each in store.scan(supervisors.prefix)] == [f"{supervisors.prefix}b"]
    assert registry.at_work(store, record) == ["a supervisor on here (process 17)"]
    assert gone not in supervisors.live()


@pytest.mark.parametrize("total", range(8))
@pytest.mark.parametrize("ids", [["a"], ["b", "a"], ["c", "a", "b"]])
def test_shares_add_up_and_differ_by_one_at_most(total: int, ids: list[str]) -> None:
    shares = [share(total, ids, each) for each in sorted(ids)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)
    assert share(total, ids, "stranger") == 0


def test_a_late_drop_spares_the_next_stream_of_that_name(store: Store, storage: Storage) -> None:
    old = open_stream(store, "clicks", DEFINITION)
    registry.drop(store, storage, "clicks", stream_id=old.id)
    new = open_stream(store, "clicks", DEFINITION)
    storage.write(f"{new.layout.root}/rows/x", b"1")
    with pytest.raises(StreamError, match="another one of this name") as refused:
        registry.drop(store, storage, "clicks", stream_id=old.id)
    assert refused.value.left == "nothing was removed"
    assert storage.list() and registry.load(store, "clicks") == new


def test_a_stream_that_has_ended_takes_no_later_end_of_a_source(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = changed("sources", "clicks", "place", value={"rows": 10})
    longer = changed("sources", "clicks", "place", value={"rows": 20})
    open_stream(store, "clicks", before)
    ended = Control(scopes={SCOPE: Scope(watermark=END)})
    monkeypatch.setattr(Room, "read", lambda _: ended)
    with pytest.raises(StreamMismatch, match="place rows is 20, and was 10") as raised:
        open_stream(store, "clicks", longer, accept_changes=True)
    assert "no source is read again" in str(raised.value.left)
    assert "penstock stream drop clicks" in str(raised.value.hint)
    # What is made of rows that are there may change.
    output = {**before, "outputs": {**before["outputs"], "more": before["outputs"]["counts"]}}
    assert open_stream(store, "clicks", output, accept_changes=True).definition["outputs"].keys() == {
        "counts",
        "more",
    }
    monkeypatch.setattr(Room, "read", lambda _: Control())
    assert open_stream(
        store, "clicks", {**output, "sources": longer["sources"]}, accept_changes=True
    ).definition["sources"]["clicks"]["place"] == {"rows": 20}
