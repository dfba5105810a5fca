"""librdkafka's mock broker, in a process of its own, so that any other process can connect to it.

It is enough of Kafka for topics, partitions, produce, fetch, offsets, trimmed partitions and a broker that
goes and comes back. What it cannot do: authenticate, hide what an aborted transaction wrote, add partitions
to a topic (delete it and make it anew), find offsets by time, and keep more than 5 MB in a partition.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servers.packages import Missing

_BROKER = 1
_ROOT = Path(__file__).parent.parent


class Kafka:
    """A broker without topics; ``servers`` is what clients connect to. It never makes a topic by itself
    unless a client asks for one by name.
    """

    def __init__(self) -> None:
        _library_path()
        self.servers = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "servers.kafka"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_ROOT,
        )
        self.servers = self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def create_topic(self, topic: str, partitions: int) -> None:
        self._ask("create", topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self._ask("delete", topic)

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Remove the records before an offset, as retention does."""
        self._ask("trim", topic, partition, before)

    def down(self) -> None:
        """Close all connections and refuse new ones; what it holds stays."""
        self._ask("down")

    def up(self) -> None:
        self._ask("up")

    def _ask(self, *words: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        if (code := self._answer()) != "0":
            raise RuntimeError(f"the mock broker refused {words}: error {code}")

    def _answer(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the mock broker has ended")
        return line


def _library_path() -> str:
    """The librdkafka that the package confluent-kafka brings, or the system's."""
    spec = find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise Missing("confluent-kafka is not installed: pip install confluent-kafka")
    packages = Path(spec.origin).parent.parent
    bundled = [*packages.glob("confluent_kafka.libs/librdkafka-*.so*")]
    bundled += packages.glob("confluent_kafka/.dylibs/librdkafka*.dylib")
    found = str(bundled[0]) if bundled else ctypes.util.find_library("rdkafka")
    if found is None:
        raise Missing("librdkafka is not installed: apt-get install librdkafka1")
    return found


def _library() -> Any:
    library = ctypes.CDLL(_library_path())
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("conf_new", pointer, []),
        ("new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("mock_cluster_new", pointer, [pointer, number]),
        ("mock_cluster_bootstraps", text, [pointer]),
        ("mock_topic_create", number, [pointer, text, number, number]),
        ("mock_topic_delete", number, [pointer, text]),
        ("mock_partition_delete_records", number, [pointer, text, number, ctypes.c_int64]),
        ("mock_broker_set_down", number, [pointer, number]),
        ("mock_broker_set_up", number, [pointer, number]),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def _serve() -> None:
    """Answer commands from standard input until it ends, which it does with the process that started us."""
    library = _library()
    client = library.rd_kafka_new(0, library.rd_kafka_conf_new(), ctypes.create_string_buffer(512), 512)
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "create":
            code = library.rd_kafka_mock_topic_create(cluster, words[0].encode(), int(words[1]), 1)
        elif verb == "delete":
            code = library.rd_kafka_mock_topic_delete(cluster, words[0].encode())
        elif verb == "trim":
            topic, partition, before = words[0].encode(), int(words[1]), int(words[2])
            code = library.rd_kafka_mock_partition_delete_records(cluster, topic, partition, before)
        elif verb == "down":
            code = library.rd_kafka_mock_broker_set_down(cluster, _BROKER)
        else:
            code = library.rd_kafka_mock_broker_set_up(cluster, _BROKER)
        print(code, flush=True)


if __name__ == "__main__":
    _serve()
