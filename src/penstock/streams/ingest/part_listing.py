"""Listing the parts of sources beside the epochs, so that nothing waits for a list that takes long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, SourceFailed
from penstock.sources.base import PartName

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec
    from penstock.streams.ingest.absent_journals import Absences

Run = Callable[[Callable[[], None]], object]
"""Lets a piece of work be done, by whomever."""

_HURRY = 0.5
_PATIENCE = 0.5
"""How long an epoch waits for a listing."""
_SLOW = 60.0
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Begun:
    """What was known when a listing began.

    ``version`` is that of the owners, ``newest`` the greatest event time of the source that was committed,
    ``finished`` since which epoch all parts that anybody knew had finished, if they had.
    """

    version: int
    newest: int | None = None
    finished: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The parts that a listing found, which began ``at`` a time of the lister's clock."""

    parts: frozenset[str]
    begun: Begun
    at: float = 0.0


class Lister:
    """Lists one source, in one thread at the most, and keeps what the last listing found.

    However long a user's `list_parts` takes, an epoch takes what there is. A listing that never returns keeps
    its thread, and no other is begun.
    """

    def __init__(self, spec: SourceSpec, clock: Callable[[], float] = time.monotonic, run: Run | None = None):
        self._spec = spec
        self._clock = clock
        self._run = run or _in_a_thread
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._under_way: Begun | None = None
        self._began_at = self._ended_at = -inf
        self._last: Begun | None = None
        self._found: Listing | None = None
        self._problem = ""

    @property
    def found(self) -> Listing | None:
        """What the last listing that succeeded has found."""
        with self._lock:
            return self._found

    @property
    def problem(self) -> str:
        """Why there is no newer list, if something is wrong."""
        with self._lock:
            if self._under_way is not None and (took := self._clock() - self._began_at) >= _SLOW:
                return f"source {self._spec.name}: list_parts has not returned for {took:.0f} s"
            return self._problem

    def begin(self, pause: float, begun: Begun) -> None:
        """Begin a listing, if none is under way and the last one ended ``pause`` seconds ago."""
        with self._lock:
            if self._under_way is not None:
                return
            # Those who own parts since then may know less than the list says.
            same = self._last is not None and self._last.version == begun.version
            if same and self._clock() < self._ended_at + pause:
                return
            self._under_way = self._last = begun
            self._began_at = self._clock()
            self._done = threading.Event()
        try:
            self._run(self._list)
        except Exception as error:
            self._ended(f"source {self._spec.name}: list_parts could not be begun: {_said(error)}")

    def wait(self, seconds: float) -> None:
        """Wait for the listing that is under way, but not longer than that since it began."""
        with self._lock:
            done, left = self._done, self._began_at + seconds - self._clock()
            if self._under_way is None or left <= 0:
                return
        done.wait(left)

    def _list(self) -> None:
        assert self._under_way is not None
        found, problem = None, f"source {self._spec.name}: list_parts was ended"
        try:
            found, problem = Listing(_parts_of(self._spec), self._under_way, self._began_at), ""
        except Exception as error:
            problem = error.what if isinstance(error, PenstockError) else str(error)
        finally:
            self._ended(problem, found)

    def _ended(self, problem: str, found: Listing | None = None) -> None:
        """None is under way any more; without a new list, the one before stays."""
        with self._lock:
            self._found, self._problem = found or self._found, problem[:_LONGEST]
            self._under_way, self._ended_at = None, self._clock()
            self._done.set()


class Listings:
    """The sources that one instance lists, every ``every`` seconds, and the parts that it knows of them."""

    def __init__(
        self,
        sources: Mapping[str, SourceSpec],
        absences: Absences,
        every: float,
        clock: Callable[[], float] = time.monotonic,
        run: Run | None = None,
    ) -> None:
        self._sources = sources
        self._absences = absences
        self._every = every
        self.listers = {name: Lister(spec, clock, run) for name, spec in sources.items()}
        self.known: dict[str, set[str]] = {}
        """Of the sources that this instance lists, all parts that ever were."""
        self.lows: dict[str, int] = {}
        """What a source had brought when the last listing began that found nothing new."""

    def begin(self, version: int, newest: Mapping[str, int], finished: int | None) -> None:
        """Begin those that are due: see `Begun`."""
        pause = self._every if finished is None else min(self._every, _HURRY)
        for name in self.known:
            self.listers[name].begin(pause, Begun(version, newest.get(name), finished))

    def found(self, finished: int | None, *, settled: bool) -> tuple[dict[str, frozenset[str]], bool | None]:
        """The new parts of the sources that this instance lists, and whether there can be no others.

        A listing goes on beside the epochs, however long it takes, and what it finds is told in the first
        epoch after it; one that is quick is waited for. It says that a source has ended if it began after
        the last part of all had finished. None: this instance lists no source.
        """
        if not self.known:
            return {}, None
        new: dict[str, frozenset[str]] = {}
        complete = settled and finished is not None
        for name, known in self.known.items():
            self.listers[name].wait(_PATIENCE)
            listing = self.listers[name].found
            if listing is not None:
                self._absences.note(name, known, listing)
            new[name] = listing.parts - known if listing is not None else frozenset()
            if listing is not None and not new[name] and listing.begun.newest is not None:
                self.lows[name] = listing.begun.newest
            ends = listing is not None and listing.begun.finished == finished and not new[name]
            complete = complete and ends and not self._sources[name].source.grows
        return new, complete

    def problems(self) -> dict[str, str]:
        """Why sources cannot be listed."""
        return {name: said for name in self.known if (said := self.listers[name].problem)}

    def committed(self, found: Mapping[str, Collection[str]], forgotten: Collection[PartName]) -> None:
        """Take over which parts an epoch found, and which it forgot."""
        for gone in forgotten:
            self.known.get(gone.source, set()).discard(gone.part)
        for name, parts in self.known.items():
            parts.update(found.get(name, ()))


def _parts_of(spec: SourceSpec) -> frozenset[str]:
    try:
        found: Any = spec.source.list_parts()
        parts = [found] if isinstance(found, str) else list(found)
    except Exception as error:
        raise SourceFailed(f"source {spec.name}: list_parts failed: {_said(error)}") from error
    for part in parts:
        if isinstance(found, str) or not _is_name(part):
            raise SourceFailed(
                f"source {spec.name}: list_parts returned {part!r}, and not a list of names: a name is text "
                "that is not empty and can be written as UTF-8"
            )
    return frozenset(parts)


def _said(error: Exception) -> str:
    return error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"


def _is_name(part: object) -> bool:
    try:
        return isinstance(part, str) and bool(part.encode())
    except UnicodeEncodeError:
        return False


def _in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="penstock-list-parts", daemon=True).start()
