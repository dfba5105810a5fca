"""Rules of the object store, each broken in one place. The simulation must notice every one of them.

Not here, since a few hundred seeds do not show them; tests of their own in `tests/store` do:

- The version before a value must be the very one that its writer saw: two writers must come late, one right
  above the other.
- What came late is not taken over into the trail of the ground above it: its number must be the floor itself.
- A write that is refused after a try whose answer was lost: that try may have been made, and removed since.
- Who buries a session looks again: the heartbeats that it slept through must all have been removed.
- An observer that finds a lower number than it saw looks again: a heartbeat must come late, to a session that
  ended less than a ttl after the observer saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from penstock.core import clocks
from penstock.errors import PenstockError
from penstock.store.objects import chains, sessions, trail
from penstock.store.objects.chains import Chains, ChainState, Form, Glance
from penstock.store.objects.names import SESSIONS
from penstock.store.objects.sessions import ObjectSession, Sessions
from penstock.store.objects.versions import Floor, VersionRecord, Versions, new_id

Mutant = Callable[[], Iterator[None]]
MUTANTS: dict[str, Callable[[], Any]] = {}
_judge, _clear, _tells, _open = Chains.judge, Chains.clear, trail.tells, Sessions.open
_remove_ended = Versions.remove_ended


def _mutant(change: Mutant) -> Mutant:
    MUTANTS[change.__name__] = contextmanager(change)
    return change


def _remove_blindly(versions: Versions, folder: str, tombstone: int) -> None:
    found = [version.number for version in versions.list(folder)]
    versions.delete(folder, [number for number in found if number < tombstone])
    versions.delete(folder, [tombstone])


@_mutant
def writers_do_not_look_again() -> Iterator[None]:
    with patch.object(Chains, "_is_made", lambda *_: True):
        yield


@_mutant
def writers_look_again_only_if_their_clock_says_so() -> Iterator[None]:
    def write(
        each: Chains, folder: str, before: ChainState, value: bytes | None, told: str | None = None
    ) -> Any:
        began, number = clocks.now(), before.number + 1
        told = trail.extended(before.trail, before.number, before.id) if told is None else told
        made = each._versions.create(folder, number, VersionRecord(new_id(), before.id, value, told)).made
        if made is None or (clocks.now() - began > 30 and not each._is_made(folder, number, made)):
            return None
        return chains._state(number, made, genuine=True)

    with patch.object(Chains, "_write", write):
        yield


@_mutant
def readers_do_not_look_again() -> Iterator[None]:
    def judge(each: Chains, folder: str, glance: Glance, newest: int) -> ChainState | None:
        return _judge(each, folder, glance, glance.number)

    with patch.object(Chains, "judge", judge):
        yield


@_mutant
def a_value_needs_no_version_before_it() -> Iterator[None]:
    with patch.object(Chains, "_follows", lambda *_: True):
        yield


@_mutant
def the_tombstone_goes_with_the_rest() -> Iterator[None]:
    def clear(each: Chains, folder: str, state: ChainState) -> None:
        if state.form is Form.GROUND:
            _clear(each, folder, state)
        else:
            each.floor.raise_to(state.number)
            found = [version.number for version in each._versions.list(folder)]
            each._versions.delete(folder, [number for number in found if number <= state.number])

    with patch.object(Chains, "clear", clear):
        yield


@_mutant
def the_tombstone_does_not_wait_for_the_rest() -> Iterator[None]:
    def clear(each: Chains, folder: str, state: ChainState) -> None:
        if state.form is Form.GROUND:
            _clear(each, folder, state)
        else:
            each.floor.raise_to(state.number)
            _remove_blindly(each._versions, folder, state.number)

    with patch.object(Chains, "clear", clear):
        yield


@_mutant
def the_newest_may_be_pruned() -> Iterator[None]:
    def prune(each: Chains, folder: str) -> None:
        with suppress(PenstockError):
            each._versions.delete(folder, [version.number for version in each._versions.list(folder)][:-1])

    with patch.object(Chains, "_prune", prune):
        yield


@_mutant
def the_floor_stays() -> Iterator[None]:
    with patch.object(Floor, "raise_to", lambda *_: None), patch.object(Floor, "read", lambda _: 0):
        yield


@_mutant
def the_floor_is_raised_after_the_removal() -> Iterator[None]:
    def clear(each: Chains, folder: str, state: ChainState) -> None:
        if state.form is Form.GROUND:
            _clear(each, folder, state)
        else:
            each._versions.remove_ended(folder, state.number)
            each.floor.raise_to(state.number)

    with patch.object(Chains, "clear", clear):
        yield


@_mutant
def ground_is_not_checked_against_the_floor() -> Iterator[None]:
    with patch.object(Floor, "read", lambda floor: floor.known):
        yield


@_mutant
def short_trails_say_no() -> Iterator[None]:
    def tells(text: str, number: int, names: Collection[str]) -> bool | None:
        return bool(_tells(text, number, names))

    with patch.object(trail, "tells", tells):
        yield


@_mutant
def tombstones_stay() -> Iterator[None]:
    with patch.object(Chains, "clear", lambda *_: None):
        yield


# sessions


def _sessions_are_removed_by(remove: Callable[[Versions, str, int], None]) -> Any:
    def either(versions: Versions, folder: str, tombstone: int) -> None:
        act = remove if folder.startswith(f"{SESSIONS}/") else _remove_ended
        act(versions, folder, tombstone)

    return patch.object(Versions, "remove_ended", either)


@_mutant
def sessions_end_by_the_times_of_objects() -> Iterator[None]:
    def opened(each: Sessions, ttl: float) -> ObjectSession:
        session = _open(each, ttl)
        with suppress(PenstockError):
            folders = each._versions.below(SESSIONS)
            now = max(found[-1].modified for found in folders.values())
            for folder, found in folders.items():
                if now - found[-1].modified > 3600:
                    each._bury(folder.rpartition("/")[2], found[-1].number)
        return session

    with patch.object(Sessions, "open", opened):
        yield


@_mutant
def a_heartbeat_needs_none_before_it() -> Iterator[None]:
    with patch.object(sessions, "_follows", lambda *_: True):
        yield


@_mutant
def the_tombstone_of_a_session_goes_first() -> Iterator[None]:
    def clear(versions: Versions, folder: str, tombstone: int) -> None:
        versions.delete(folder, [tombstone])
        versions.delete(folder, [each.number for each in versions.list(folder) if each.number < tombstone])

    with _sessions_are_removed_by(clear):
        yield


@_mutant
def the_tombstone_of_a_session_does_not_wait_for_the_rest() -> Iterator[None]:
    with _sessions_are_removed_by(_remove_blindly):
        yield
