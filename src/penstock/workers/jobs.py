"""Jobs: everything an instance is told, as one value that travels to another process as JSON.

A job is of a kind, which says what to load and what to do with it: `run_job` or `stream_job`. A supervisor
sends it as ``{kind: job}``, the first line that ``penstock instance`` reads.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from string import ascii_lowercase
from typing import Any, ClassVar, Protocol, Self

from penstock.config import SparkConfig
from penstock.errors import Interrupted
from penstock.spark.session import local_cores

_LEAST_MEMORY_MB = 512
_SPARE_MB = 400  # what a driver takes beside its heap, with its Python workers


class Job(ABC):
    """One instance's part in something that several work on."""

    __slots__ = ()

    kind: ClassVar[str]
    source: str
    """``FILE:name``, as `penstock.project` loads it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the instance is called."""

    @abstractmethod
    def shared(self, name: str, instances: int) -> Self:
        """The same for an instance ``name``, one of several that divide this machine among them."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self: ...

    @property
    def order(self) -> dict[str, Any]:
        """What is sent to the process that does it."""
        return {self.kind: self.to_json()}


def revived(told: Mapping[str, Any], kinds: Mapping[str, type[Any]]) -> dict[str, Any]:
    """What `plain` made of an object's fields, with those of ``kinds`` as they were; None stays None."""
    return {**told, **{name: kind(**told[name]) if told[name] else None for name, kind in kinds.items()}}


def instance_name(number: int, family: str, life: int = 1) -> str:
    """Such as ``a-3f2c``: alike in ``family``, which tells it from those of other commands.

    One that is started again has another name: that of a dead one is taken until its session has run out.
    """
    letter = ascii_lowercase[number] if number < len(ascii_lowercase) else f"i{number}"
    return f"{letter}-{family}" + (f"-{life}" if life > 1 else "")


def divided(spark: SparkConfig, instances: int) -> SparkConfig:
    """What one of several sessions on this machine gets of it.

    A master that names its cores means them for each session; ``local[*]`` means the machine's.
    """
    cores = local_cores(spark.master)
    if cores is None or instances == 1:
        return spark
    master = f"local[{max(1, cores // instances)}]" if spark.master == "local[*]" else spark.master
    memory = min(_megabytes(spark.memory), max(_LEAST_MEMORY_MB, _machine_mb() // instances - _SPARE_MB))
    kept = memory == _megabytes(spark.memory)
    return replace(spark, master=master, memory=spark.memory if kept else f"{memory}m")


def _megabytes(text: str) -> int:
    return int(text[:-1]) * (1024 if text[-1] in "gG" else 1)


def _machine_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    except (ValueError, OSError):
        return 1 << 20


class Stoppable(Protocol):
    """What a wish to stop is for."""

    def stop(self) -> None: ...


class Stop:
    """A wish to stop, which may be uttered before there is a runner to hear it."""

    def __init__(self) -> None:
        self._wanted = False
        self._runner: Stoppable | None = None

    @property
    def wanted(self) -> bool:
        return self._wanted

    @property
    def idle(self) -> bool:
        """Whether no runner is there yet that could hold claims."""
        return self._runner is None

    def request(self) -> None:
        """Ask for it; safe in a signal handler."""
        self._wanted = True
        if self._runner is not None:
            # In a thread of its own: the handler may have interrupted the very lock that it needs.
            threading.Thread(target=self._runner.stop, name="penstock-stop", daemon=True).start()

    def attach(self, runner: Stoppable) -> None:
        self._runner = runner
        if self._wanted:
            runner.stop()

    def check_idle(self) -> None:
        """Raise `Interrupted` if it was asked for and no runner is there that could heed it."""
        if self._wanted and self.idle:
            raise Interrupted(
                "stopped before any partition was claimed", left="nothing", hint="run the same command again"
            )
