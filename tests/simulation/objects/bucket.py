"""The simulated bucket, whose clock is set by people, and the wire of each process to it.

Requests take their time, are lost, or arrive long after whoever sent them has gone on; so do answers. A
listing comes in pages, in the order of names. A removal of several objects is not one moment, and may end
half-way without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.errors import StoreUnavailable
from penstock.store.objects.bucket import Bucket, Found
from tests.simulation.world import Host, World

T = TypeVar("T")
_QUICK = (0.002, 0.05)
_SLOW = (0.1, 12.0)
_LATE = (0.5, 30.0)


class Heap:
    """What the bucket holds."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.step = 0.0
        """How far its clock has been set away from the world's."""
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.stormy = True
        self.slow = world.random.choice((0.0, 0.01, 0.05, 0.15))
        self.faulty = world.random.choice((0.0, 0.02, 0.1))

    def create(self, path: str, body: bytes) -> bool:
        if path in self.objects:
            return False
        self.objects[path] = body, self.world.now + self.step
        self.world.say("bucket", f"has {path}")
        return True

    def remove(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            self.world.say("bucket", f"no longer has {path}")


class Wire(Bucket):
    """The bucket as one process reaches it."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._world = heap.world
        self.calm = False
        """Whether this process is spared all faults."""

    def create(self, path: str, body: bytes) -> None:
        if not self._ask(lambda: self._heap.create(path, body), changes=True):
            raise FileExistsError(path)

    def read(self, path: str) -> bytes | None:
        found = self._ask(lambda: self._heap.objects.get(path))
        return found[0] if found else None

    def list(self, folder: str, after: str = "") -> Sequence[Found]:
        names = sorted(self._heap.objects)
        pivot = self._world.random.choice(names) if names else ""

        def page(begin: str, end: str) -> list[Found]:
            objects = self._heap.objects.items()
            return [
                Found(path, modified)
                for path, (_, modified) in objects
                if path.startswith(f"{folder}/") and begin < path <= end
            ]

        found = self._ask(lambda: page(after, pivot))
        return [*found, *self._ask(lambda: page(max(after, pivot), "~"))]

    def delete(self, paths: Iterable[str]) -> None:
        names = list(paths)
        self._world.random.shuffle(names)
        for path in names:
            if not self.calm and self._heap.stormy and self._world.random.random() < self._heap.faulty:
                self._world.say("bucket", f"forgets to remove {path}")
                return
            self._ask(lambda path=path: self._heap.remove(path), changes=True)  # type: ignore[misc]

    def close(self) -> None:
        """Nothing to let go of."""

    def _ask(self, request: Callable[[], T], changes: bool = False) -> T:
        self._pause()
        random = self._world.random
        if not self.calm and self._heap.stormy and random.random() < self._heap.faulty:
            return self._fail(request, changes)
        answer = request()
        self._pause()
        return answer

    def _pause(self) -> None:
        heap, random = self._heap, self._world.random
        slow = not self.calm and heap.stormy and random.random() < heap.slow
        self._world.sleep(random.uniform(*(_SLOW if slow else _QUICK)))

    def _fail(self, request: Callable[[], T], changes: bool) -> T:
        kind = self._world.random.choice(("lost", "unanswered", "late"))
        if kind == "unanswered":
            request()
        elif kind == "late" and changes:
            self._world.after(self._world.random.uniform(*_LATE), lambda: void(request))
        self._world.sleep(self._world.random.uniform(0.1, 3.0))
        raise StoreUnavailable(f"simulated: {kind}")


def void(request: Callable[[], object]) -> None:
    request()


class Machine(Host):
    """A process with a clock of its own, which nobody sets and which runs a little fast or slow."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.rate = world.random.uniform(0.97, 1.03)
        self.dead = False
        self.paused = False
        self.parked: list[Callable[[], None]] = []
        self._world = world
        self._started = world.random.uniform(1.0, 1000.0)

    def clock(self) -> float:
        return self._started + self._world.now * self.rate

    def pause(self, seconds: float) -> None:
        if not self.paused and not self.dead:
            self._world.say(self.name, f"is stopped for {seconds:.1f} s")
            self.paused = True
            self._world.after(seconds, self.go_on)

    def go_on(self) -> None:
        self.paused = False
        parked, self.parked = self.parked, []
        for action in parked:
            action()
