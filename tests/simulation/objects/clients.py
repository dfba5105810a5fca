"""Processes that write, read and delete a few documents, as fast as they can and from what they once saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from penstock.errors import StoreUnavailable
from penstock.store.base import Document
from penstock.store.objects import ObjectStore
from penstock.store.objects.names import folder_of
from tests.simulation.objects.bucket import Heap, Machine, Wire
from tests.simulation.objects.oracle import Log, Read, Write
from tests.simulation.world import World

_KEYS = ("p/a", "p/b")


class Clients:
    """All of them, and the record of what they did."""

    def __init__(self, world: World, heap: Heap) -> None:
        self._world = world
        self._heap = heap
        self._values = count()
        self._calm = False
        self.logs: dict[str, Log] = {key: Log() for key in _KEYS}
        self.last_seen: set[str] = set()
        """What exists, as the last listing of everything said."""
        self.epoch = 0

    def start(self) -> list[Machine]:
        machines = []
        for number in range(self._world.random.choice((2, 3, 4))):
            machine = Machine(self._world, f"c{number}")
            self._world.spawn(machine, "main", Client(self, machine).run)
            machines.append(machine)
        return machines

    def calm(self) -> None:
        """From now on nobody writes."""
        self._calm = True

    def counts(self) -> tuple[int, int, int, int]:
        writes = [write for log in self.logs.values() for write in log.writes]
        made, refused = sum(w.version is not None for w in writes), sum(w.refused for w in writes)
        return made, refused, len(writes) - made - refused, sum(len(log.reads) for log in self.logs.values())

    def check(self, machines: Sequence[Machine]) -> None:
        for key, log in self.logs.items():
            for fault in log.faults():
                self._world.fail(f"{key}: {fault}")
        if not all(machine.dead for machine in machines if machine.name.startswith("c")):
            self._check_remains()
        if self._world.violation is not None:
            raise self._world.violation

    def _check_remains(self) -> None:
        """Everything healed long ago: nothing is left of documents that do not exist."""
        folders = {path.rpartition("/")[0] for path in self._heap.objects if path.startswith("d/")}
        left = folders - {folder_of(key) for key in self.last_seen}
        self._world.check(not left, f"remains of documents that do not exist: {sorted(left)}")
        floors = [path for path in self._heap.objects if path.startswith("f/")]
        self._world.check(len(floors) <= 10, f"the floor is {floors}")

    # what clients call

    @property
    def is_calm(self) -> bool:
        return self._calm

    def open(self) -> ObjectStore:
        opened = ObjectStore("file:///simulated")
        opened._versions._bucket = Wire(self._heap)
        return opened

    def value(self) -> bytes:
        return b"%d" % next(self._values)


class Client:
    def __init__(self, clients: Clients, machine: Machine) -> None:
        self._clients = clients
        self._world = clients._world
        self._machine = machine
        self._store = clients.open()
        self._cursor = 0
        self._known: dict[str, list[int]] = {key: [0] for key in _KEYS}

    def run(self) -> None:
        random = self._world.random
        eager = random.choice((0.02, 0.3, 2.0))
        while True:
            self._world.sleep(random.uniform(0.0, eager))
            if self._clients.is_calm:
                eager = 3.0
                action: Callable[[], None] = self._list
            else:
                actions = (self._write, self._get, self._list, self._watch, self._epoch, self._again)
                action = random.choices(actions, (12, 6, 3, 2, 1, 0.2))[0]
            try:
                action()
            except StoreUnavailable as error:
                self._world.say(self._machine.name, f"{action.__name__}: {error}")

    def _again(self) -> None:
        """A new process, which knows nothing."""
        self._store, self._cursor = self._clients.open(), 0

    def _get(self) -> None:
        key, begin = self._world.random.choice(_KEYS), self._world.now
        self._saw(key, self._store.get(key), begin)

    def _list(self) -> None:
        begin, known = self._world.now, [*_KEYS, *list(self._clients.logs)[len(_KEYS) :][-6:]]
        prefix = "" if self._clients.is_calm else self._world.random.choice(("", "e/", "p/"))
        found = {document.key: document for document in self._store.list(prefix)}
        for key in known:
            if key.startswith(prefix):
                self._saw(key, found.get(key), begin)
        if not prefix:
            self._clients.last_seen = set(found)

    def _watch(self) -> None:
        _, self._cursor = self._store.watch("p/", self._cursor, 1.0)

    def _epoch(self) -> None:
        """A document that is written once, and one that is removed: the keys of epochs never come again."""
        clients = self._clients
        clients.epoch += 1
        key, old = f"e/{clients.epoch:04}", f"e/{clients.epoch - 3:04}"
        clients.logs[key] = Log()
        self._cas(key, 0, clients.value())
        begin, found = self._world.now, self._store.get(old)
        if found is not None:
            self._saw(old, found, begin)
            self._cas(old, found.version, None)

    def _saw(self, key: str, document: Document | None, begin: float) -> None:
        version, value = (document.version, document.value) if document else (0, None)
        self._known[key] = [*self._known.get(key, ())[-3:], version]
        self._world.say(self._machine.name, f"sees {key} at {version}: {value!r}")
        self._clients.logs[key].reads.append(Read(self._machine.name, version, value, begin, self._world.now))

    def _write(self) -> None:
        random, key = self._world.random, self._world.random.choice(_KEYS)
        expected = self._known[key][-1] if random.random() < 0.8 else random.choice(self._known[key])
        value = None if expected and random.random() < 0.3 else self._clients.value()
        version = self._cas(key, expected, value)
        if version is not None:
            self._known[key] = [*self._known[key][-3:], 0 if value is None else version]

    def _cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        write = Write(self._machine.name, expected, value, self._world.now)
        self._clients.logs[key].writes.append(write)
        version = self._store.cas(key, expected, value)
        write.end, write.version, write.refused = self._world.now, version, version is None
        self._world.say(self._machine.name, f"{key} {expected} -> {value!r}: {version}")
        return version
