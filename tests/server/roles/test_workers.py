from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.config import ClusterConfig
from penstock.errors import LeadershipLost, SqlError, UsageError
from penstock.server.roles.worker_admission import BEAT, JOIN, LEAVE, WorkerAdmission
from penstock.server.roles.worker_records import WorkerBoard, join_token, renew_join_token, workers
from penstock.server.roles.workers import Life, Offer, Workers
from penstock.store.base import Store
from penstock.store.sqlite import SqliteStore

OFFER = Offer("w1", "127.0.0.2", 2, "1g", "0.1.0")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return SqliteStore(str(tmp_path / "store.db"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(store: Store, clock: Clock) -> WorkerAdmission:
    found = WorkerAdmission(store, ClusterConfig(), clock=clock)
    found.open("spark://127.0.0.1:7077", "s3cret", WorkerBoard(store, "c1", 3))
    return found


def ask(admission: WorkerAdmission, action: str, **request: object) -> dict[str, object]:
    answer: dict[str, object] = json.loads(admission.answer(action, json.dumps(request).encode()))
    return answer


def join(
    admission: WorkerAdmission, store: Store, name: str = "w1", host: str = "127.0.0.2"
) -> dict[str, object]:
    return ask(admission, JOIN, offer=offer(name, host), token=join_token(store))


def own(answer: dict[str, object]) -> dict[str, object]:
    return {"id": "w1", "number": answer["number"], "key": answer["key"]}


def offer(name: str = "w1", host: str = "127.0.0.2") -> dict[str, object]:
    return {"id": name, "host": host, "cores": 2, "memory": "1g", "version": "0.1.0"}


def test_a_worker_lives_as_long_as_it_is_heard_of() -> None:
    known = Workers(dead_after=30)
    worker = known.join(OFFER, 0.0)
    assert known.beat("w1", worker.number, 29.0)
    assert known.sweep(58.0) == ()
    assert [each.offer.id for each in known.sweep(59.0)] == ["w1"]
    assert known.all[0].life is Life.DEAD
    assert not known.beat("w1", worker.number, 60.0), "one that was taken for dead must join again"


def test_a_worker_that_comes_back_is_another_one() -> None:
    known = Workers(dead_after=30)
    first = known.join(OFFER, 0.0)
    second = known.join(OFFER, 1.0)
    assert second.number > first.number
    assert not known.beat("w1", first.number, 2.0)
    known.leave("w1", first.number)
    assert known.beat("w1", second.number, 2.0), "a former life cannot make the new one leave"
    known.leave("w1", second.number)
    assert known.all[0].life is Life.LEFT


def test_two_machines_cannot_have_one_id() -> None:
    known = Workers(dead_after=30)
    known.join(OFFER, 0.0)
    elsewhere = Offer("w1", "127.0.0.3", 2, "1g", "0.1.0")
    with pytest.raises(UsageError, match=r"already, on 127\.0\.0\.2"):
        known.join(elsewhere, 1.0)
    assert known.join(elsewhere, 31.0).offer.host == "127.0.0.3"


def test_whoever_joins_is_told_master_and_secret_and_is_shown(
    admission: WorkerAdmission, store: Store
) -> None:
    answer = join(admission, store)
    assert (answer["master"], answer["secret"]) == ("spark://127.0.0.1:7077", "s3cret")
    assert ask(admission, BEAT, **own(answer)) == {"known": True}
    [shown] = workers(store)
    assert (shown.id, shown.state, shown.coordinator, shown.token) == ("w1", "alive", "c1", 3)
    ask(admission, LEAVE, **own(answer))
    assert [each.state for each in workers(store)] == ["left"]


def test_one_that_falls_silent_is_shown_as_dead(
    admission: WorkerAdmission, store: Store, clock: Clock
) -> None:
    answer = join(admission, store)
    clock.now += 31
    assert [worker.offer.id for worker in admission.sweep()] == ["w1"]
    assert [each.state for each in workers(store)] == ["dead"]
    assert ask(admission, BEAT, **own(answer)) == {"known": False}


def test_without_a_certificate_the_token_is_asked_for(admission: WorkerAdmission, store: Store) -> None:
    for token in ("", "x" * 40, join_token(store)[:-1]):
        body = json.dumps({"offer": offer(), "token": token}).encode()
        with pytest.raises(SqlError, match="join token") as caught:
            admission.answer(JOIN, body)
        assert caught.value.sqlstate == "28000"
    assert admission.workers == ()
    body = json.dumps({"offer": offer(), "token": join_token(store)}).encode()
    assert json.loads(admission.answer(JOIN, body))["secret"] == "s3cret"
    renew_join_token(store)
    with pytest.raises(SqlError, match="join token"):
        admission.answer(JOIN, body)


@pytest.mark.parametrize("wrong", [{"key": "x"}, {"key": ""}, {"number": 99}, {"id": "w2"}])
def test_nobody_speaks_for_a_worker_without_its_key(
    admission: WorkerAdmission, store: Store, wrong: dict[str, object]
) -> None:
    answer = join(admission, store)
    for action in (BEAT, LEAVE):
        assert ask(admission, action, **{**own(answer), **wrong}) == {"known": False}
    assert [each.state for each in workers(store)] == ["alive"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"number": "x"}', b"[" * 5000, b'{"a": "' + b"x" * 50_000 + b'"}']
)
def test_what_is_no_request_is_refused(admission: WorkerAdmission, body: bytes) -> None:
    with pytest.raises(SqlError) as caught:
        admission.answer(JOIN, body)
    assert caught.value.sqlstate == "22023"


@pytest.mark.parametrize("wrong", [{}, {"id": "w1"}, {**offer(), "more": 1}, offer("../x"), offer("")])
def test_what_is_no_offer_is_refused(
    admission: WorkerAdmission, store: Store, wrong: dict[str, object]
) -> None:
    with pytest.raises(SqlError) as caught:
        ask(admission, JOIN, offer=wrong, token=join_token(store))
    assert caught.value.sqlstate == "22023"


def test_a_coordinator_that_does_not_lead_sends_workers_away(
    admission: WorkerAdmission, store: Store
) -> None:
    admission.close()
    with pytest.raises(SqlError, match="does not lead") as caught:
        join(admission, store)
    assert caught.value.sqlstate == "57P03"


def test_a_coordinator_that_was_replaced_shows_nothing_any_more(store: Store, clock: Clock) -> None:
    old, new = (WorkerAdmission(store, ClusterConfig(), clock=clock) for _ in range(2))
    old.open("spark://old:1", "a", WorkerBoard(store, "c1", 3))
    join(old, store)
    new.open("spark://new:1", "b", WorkerBoard(store, "c2", 4))
    assert workers(store) == [], "the workers of the former coordinator are not those of the new one"
    join(new, store)
    with pytest.raises(LeadershipLost):
        join(old, store)
    assert [(each.coordinator, each.token) for each in workers(store)] == [("c2", 4)]
