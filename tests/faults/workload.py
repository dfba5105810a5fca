"""Writers that count and create through a recorded store while others break it, and what must hold then."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from penstock.errors import StoreUnavailable
from penstock.store.base import Store
from tests.faults.history import Recorder
from tests.faults.linearizability import check
from tests.faults.register import Operation, Unknown, Written

_COUNTERS = ("counter/a", "counter/b")
_PAUSE = 0.01
_STUCK = 30.0


def until(condition: Callable[[], bool], within: float, what: str) -> None:
    """Wait for the condition; fail with ``what`` was waited for after ``within`` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.02)


class Writers:
    """Threads that increment counters, and create documents of which each can be created once.

    Each thread uses one of the stores, and makes its choices from ``seed``. One that gets no answer
    goes on with something else.
    """

    def __init__(self, stores: Sequence[Store], seed: str) -> None:
        self._recorders = [Recorder(store) for store in stores]
        self._over = threading.Event()
        self._gave_up: set[int] = set()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(
                target=self._work, args=(i, random.Random(f"{seed}/{i}")), name=f"writer-{i}", daemon=True
            )
            for i in range(len(stores))
        ]

    def history(self) -> list[Operation]:
        return [operation for recorder in self._recorders for operation in recorder.history()]

    def all_gave_up(self) -> bool:
        """Whether each writer was left without an answer at least once."""
        return len(self._gave_up) == len(self._threads)

    def all_write(self, times: int, within: float) -> None:
        """Wait until each writer was acked ``times`` for what it began since; fail after ``within`` s."""
        began = time.monotonic_ns()
        until(lambda: min(self._acks(began)) >= times, within, f"{times} writes of each writer")

    def _acks(self, since: int) -> list[int]:
        """How often each writer was acked for what it began after ``since``."""
        return [
            sum(each.invoked >= since and isinstance(each.outcome, Written) for each in recorder.history())
            for recorder in self._recorders
        ]

    def _work(self, number: int, chance: random.Random) -> None:
        store = self._recorders[number]
        try:
            for step in itertools.count():
                if self._over.wait(chance.random() * _PAUSE):
                    return
                try:
                    if chance.random() < 0.2:
                        store.cas(f"once/{step // 10}", 0, b"%d/%d" % (number, step))
                    else:
                        _increment(store, chance.choice(_COUNTERS))
                except StoreUnavailable:
                    self._gave_up.add(number)
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_STUCK)
        assert not any(thread.is_alive() for thread in self._threads), "a writer hangs"
        if self._errors:
            raise self._errors[0]


def _increment(store: Store, key: str) -> None:
    document = store.get(key)
    version, count = (document.version, int(document.value)) if document else (0, 0)
    store.cas(key, version, b"%d" % (count + 1))


def verify(history: Iterable[Operation], store: Store) -> None:
    """Read everything a last time: nothing acked is lost, nothing was done twice, all in some order."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    last = Recorder(store)
    for key, operations in by_key.items():
        document = last.get(key)
        value = document.value if document else None
        if key in _COUNTERS:
            _verify_counter(operations, int(value or 0))
        else:
            _verify_created(operations, value)
    violation = check([*itertools.chain(*by_key.values()), *last.history()])
    assert violation is None, str(violation)


def _verify_counter(operations: Sequence[Operation], count: int) -> None:
    acked = sum(isinstance(each.outcome, Written) for each in operations)
    unknown = sum(isinstance(each.outcome, Unknown) for each in operations)
    assert acked <= count <= acked + unknown, f"{operations[0].key}: {acked=} {count=} {unknown=}"


def _verify_created(operations: Sequence[Operation], value: bytes | None) -> None:
    acked = [each.outcome.value for each in operations if isinstance(each.outcome, Written)]
    unknown = [each.outcome.value for each in operations if isinstance(each.outcome, Unknown)]
    assert [value] == acked if acked else value in (None, *unknown), f"{operations[0].key}: {value!r}"
