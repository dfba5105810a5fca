"""Sessions of the object store: races between an owner and those who watch it, with a clock that we move."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import CorruptFile, SessionLost, StoreUnavailable
from penstock.store.base import Session
from penstock.store.objects import ObjectStore
from tests.store.objects_faults import (
    Fault,
    MovedClock,
    after_doing,
    before_doing,
    failed,
    grow_old,
    lost,
    make_faulty,
    numbers,
    retried,
    unreadable,
)

TTL = 10.0
HOUR = 3600.0


@pytest.fixture(autouse=True)
def time_machine(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    return MovedClock(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def owner(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(f"file://{root}") as opened:
        yield opened


@pytest.fixture
def observer(root: Path) -> Iterator[ObjectStore]:
    with ObjectStore(f"file://{root}") as opened:
        yield opened


@pytest.fixture
def session(owner: ObjectStore) -> Session:
    return owner.session(TTL)


@pytest.fixture
def folder(root: Path, session: Session) -> Path:
    return root / "s" / session.id


def is_alive(root: Path, session: Session) -> bool:
    """As somebody says who looks for the first time."""
    with ObjectStore(f"file://{root}") as stranger:
        return session.id in stranger.alive([session.id])


# seen from outside


def test_a_heartbeat_that_stands_still_for_a_ttl_ends_the_session_for_everybody(
    root: Path, session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    assert observer.alive([session.id])
    time_machine.pass_time(TTL - 1)
    assert observer.alive([session.id])
    time_machine.pass_time(1.1)
    assert not observer.alive([session.id])
    assert not is_alive(root, session)
    with pytest.raises(SessionLost):
        session.keepalive()


def test_who_looks_for_the_first_time_waits_a_ttl_of_its_own(
    session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    time_machine.pass_time(10 * TTL)
    assert observer.alive([session.id])
    time_machine.pass_time(TTL)
    assert not observer.alive([session.id])


def test_every_heartbeat_gives_a_whole_ttl(
    session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    for _ in range(5):
        assert observer.alive([session.id])
        time_machine.pass_time(TTL - 1)
        session.keepalive()
    assert observer.alive([session.id])


def test_a_heartbeat_in_the_last_moment_wins_against_the_end(
    session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    bucket = make_faulty(observer)
    observer.alive([session.id])
    time_machine.pass_time(TTL)
    # The observer's clock runs fast: for the owner no time has passed.
    bucket.faults.append(after_doing(lambda: time_machine.pass_time(-TTL), session.keepalive))
    assert observer.alive([session.id])
    session.keepalive()


def test_an_observer_that_slept_does_not_bury_who_went_on(
    root: Path, folder: Path, session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    def go_on() -> None:
        time_machine.pass_time(-TTL)
        for _ in range(12):
            session.keepalive()
        assert 2 not in numbers(folder), "the number that the observer wants must be free again"

    bucket = make_faulty(observer)
    observer.alive([session.id])
    time_machine.pass_time(TTL)
    bucket.faults.append(after_doing(go_on))
    assert observer.alive([session.id])
    assert 2 not in numbers(folder)
    session.keepalive()
    assert is_alive(root, session)


def test_an_owner_that_was_buried_is_lost_even_if_its_own_clock_has_time_left(
    session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    observer.alive([session.id])
    time_machine.pass_time(TTL)
    assert not observer.alive([session.id])
    time_machine.pass_time(-TTL)
    for _ in range(2):
        with pytest.raises(SessionLost):
            session.keepalive()
    session.close()
    assert not observer.alive([session.id])


def test_two_observers_agree_on_the_end(
    session: Session, owner: ObjectStore, observer: ObjectStore, time_machine: MovedClock
) -> None:
    bucket = make_faulty(observer)
    assert owner.alive([session.id]) and observer.alive([session.id])
    time_machine.pass_time(TTL)
    bucket.faults.append(after_doing(lambda: owner.alive([session.id])))
    assert not observer.alive([session.id])
    assert not owner.alive([session.id])


@pytest.mark.parametrize("fault", [lost, failed, retried])
def test_an_end_whose_answer_was_lost_is_an_end(
    root: Path, session: Session, observer: ObjectStore, time_machine: MovedClock, fault: Fault
) -> None:
    bucket = make_faulty(observer)
    observer.alive([session.id])
    time_machine.pass_time(TTL)
    bucket.faults.append(fault)
    assert not observer.alive([session.id])
    assert not is_alive(root, session)


def test_a_session_that_is_not_ours_is_named(folder: Path, session: Session, observer: ObjectStore) -> None:
    (folder / "v0000000000000002.json").write_text('{"id": "x", "after": null, "text": "hello"}')
    with pytest.raises(CorruptFile, match=session.id):
        observer.alive([session.id])


# seen by its owner


def test_a_late_owner_gives_up_before_others_notice_and_tells_them(
    root: Path, session: Session, time_machine: MovedClock
) -> None:
    time_machine.pass_time(TTL + 0.1)
    for _ in range(2):
        with pytest.raises(SessionLost):
            session.keepalive()
    assert not is_alive(root, session)


@pytest.mark.parametrize("slowly", [after_doing, before_doing])
def test_a_heartbeat_that_took_too_long_came_too_late(
    root: Path,
    owner: ObjectStore,
    session: Session,
    time_machine: MovedClock,
    slowly: Callable[[Callable[[], object]], Fault],
) -> None:
    bucket = make_faulty(owner)
    bucket.faults.append(slowly(lambda: time_machine.pass_time(TTL + 0.1)))
    with pytest.raises(SessionLost):
        session.keepalive()
    assert not is_alive(root, session)


def test_time_counts_from_the_beginning_of_the_last_heartbeat(
    owner: ObjectStore, session: Session, time_machine: MovedClock
) -> None:
    bucket = make_faulty(owner)
    bucket.faults.append(before_doing(lambda: time_machine.pass_time(TTL - 1)))
    session.keepalive()
    time_machine.pass_time(1.1)
    with pytest.raises(SessionLost):
        session.keepalive()


@pytest.mark.parametrize("fault", [lost, failed, retried])
def test_a_heartbeat_whose_answer_was_lost_counts(
    owner: ObjectStore, session: Session, time_machine: MovedClock, fault: Fault
) -> None:
    bucket = make_faulty(owner)
    for _ in range(3):
        bucket.faults.append(fault)
        time_machine.pass_time(TTL - 1)
        session.keepalive()


@pytest.mark.parametrize("fault", [lost, failed])
def test_a_heartbeat_that_stayed_open_does_not_stop_the_next_one(
    root: Path, owner: ObjectStore, session: Session, fault: Fault
) -> None:
    bucket = make_faulty(owner)
    bucket.faults.append(fault)
    bucket.before_read.append(unreadable)
    with pytest.raises(StoreUnavailable):
        session.keepalive()
    session.keepalive()
    session.close()
    assert not is_alive(root, session)


def test_old_heartbeats_are_removed(folder: Path, session: Session) -> None:
    for _ in range(50):
        session.keepalive()
    found = numbers(folder)
    assert found[-2:] == [50, 51] and len(found) <= 12


def test_an_owner_ends_its_session_after_a_heartbeat_that_it_does_not_know_of(
    root: Path, owner: ObjectStore, session: Session
) -> None:
    bucket = make_faulty(owner)
    bucket.faults.append(lost)
    bucket.before_read.append(unreadable)
    with pytest.raises(StoreUnavailable):
        session.keepalive()
    session.close()
    assert not is_alive(root, session)


# what is left behind


def test_nothing_is_left_of_a_session_that_was_closed(
    root: Path, folder: Path, owner: ObjectStore, session: Session
) -> None:
    for _ in range(5):
        session.keepalive()
    session.close()
    assert not folder.exists()
    assert not owner.alive([session.id])


def test_nothing_is_left_of_a_session_that_was_buried(
    folder: Path, session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    observer.alive([session.id])
    time_machine.pass_time(TTL)
    assert not observer.alive([session.id])
    assert not folder.exists()
    with pytest.raises(SessionLost):
        session.keepalive()
    assert not folder.exists()


def test_a_session_whose_removal_ends_half_way_stays_over(
    root: Path, folder: Path, owner: ObjectStore, session: Session
) -> None:
    for _ in range(5):
        session.keepalive()
    bucket = make_faulty(owner)
    bucket.removed += [1] * 3 + [0] * 10
    session.close()
    assert numbers(folder)[-1] == 7 and len(numbers(folder)) > 2
    assert not is_alive(root, session)


def test_a_session_that_nobody_asked_about_is_ended_by_who_lives_long(
    root: Path, folder: Path, observer: ObjectStore, session: Session, time_machine: MovedClock
) -> None:
    patient = observer.session(HOUR)
    for _ in range(64):
        time_machine.pass_time(5)
        patient.keepalive()
    assert not folder.exists()
    assert is_alive(root, patient)


@pytest.mark.parametrize("step", [-48 * HOUR, -2 * HOUR, 2 * HOUR, 48 * HOUR])
def test_sessions_do_not_depend_on_the_times_of_objects(
    root: Path, folder: Path, owner: ObjectStore, observer: ObjectStore, session: Session, step: float
) -> None:
    """The clock of the machine or of the bucket was set, and then somebody opens a session."""
    session.keepalive()
    grow_old(folder, step)
    for store in (observer, owner, ObjectStore(f"file://{root}")):
        store.session(TTL)
        assert store.alive([session.id])
    session.keepalive()
    assert is_alive(root, session)


def test_a_session_with_a_long_ttl_is_not_swept(
    root: Path, owner: ObjectStore, observer: ObjectStore, time_machine: MovedClock
) -> None:
    patient, busy = owner.session(3 * HOUR), observer.session(HOUR)
    for _ in range(64):
        time_machine.pass_time(100)
        busy.keepalive()
    patient.keepalive()
    assert is_alive(root, patient)


def test_a_heartbeat_that_arrives_after_everything_was_removed_is_nobodys(
    root: Path, folder: Path, session: Session, observer: ObjectStore
) -> None:
    for _ in range(3):
        session.keepalive()
    assert observer.alive([session.id])
    body = (folder / "v0000000000000003.json").read_bytes()
    session.close()
    folder.mkdir(parents=True)
    (folder / "v0000000000000003.json").write_bytes(body)
    assert not observer.alive([session.id])
    assert not is_alive(root, session)


def test_opening_tries_again_under_another_name(
    root: Path, owner: ObjectStore, observer: ObjectStore
) -> None:
    bucket = make_faulty(owner)
    bucket.faults += [lost, failed]
    session = owner.session(TTL)
    assert observer.alive([session.id])
    assert len(list((root / "s").iterdir())) == 2
    bucket.faults += [failed] * 3
    with pytest.raises(StoreUnavailable):
        owner.session(TTL)


def test_heartbeats_of_earlier_releases_count(root: Path, observer: ObjectStore) -> None:
    folder = root / "s" / "0123456789abcdef"
    folder.mkdir(parents=True)
    for number in (6, 7):
        body = {"id": str(number), "after": None, "text": json.dumps({"ttl": TTL})}
        (folder / f"v{number:016}.json").write_text(json.dumps(body))
    assert observer.alive(["0123456789abcdef"])


def test_an_owner_that_slept_until_its_end_was_swept_stays_lost(
    folder: Path, owner: ObjectStore, session: Session, observer: ObjectStore, time_machine: MovedClock
) -> None:
    def forgotten() -> None:
        observer.alive([session.id])
        time_machine.pass_time(TTL)
        assert not observer.alive([session.id])
        assert not folder.exists()

    bucket = make_faulty(owner)
    bucket.faults.append(after_doing(forgotten))
    with pytest.raises(SessionLost):
        session.keepalive()
    assert not observer.alive([session.id])
