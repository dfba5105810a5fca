"""How a runner works: when it checkpoints, how it leases, where its output goes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.config import RunConfig
from penstock.errors import ConfigError
from penstock.spark.files import Compression, Format


@dataclass(frozen=True, slots=True)
class EveryStage:
    """Checkpoint between any two stages."""

    def after(self, done: int, stages: int) -> bool:
        return done < stages

    def __str__(self) -> str:
        return "every-stage"


@dataclass(frozen=True, slots=True)
class EveryNStages:
    """Checkpoint after each ``n`` stages."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"EveryNStages({self.n}): n must be at least 1")

    def after(self, done: int, stages: int) -> bool:
        return done < stages and done % self.n == 0

    def __str__(self) -> str:
        return f"every:{self.n}"


@dataclass(frozen=True, slots=True)
class Never:
    """No checkpoints: a partition is computed in one go, and from its input after a crash."""

    def after(self, done: int, stages: int) -> bool:  # noqa: ARG002
        return False

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True, slots=True)
class Auto:
    """Checkpoint where the work since the last one is worth it: see `penstock.batch.runs.pacing`."""

    def after(self, done: int, stages: int) -> bool:
        """Whether there may be one; whether there is follows from what was measured."""
        return done < stages

    def __str__(self) -> str:
        return "auto"


Checkpointing = EveryStage | EveryNStages | Never | Auto
"""The stage after the last one is the output itself: there is never a checkpoint after it."""


def checkpointing(text: str) -> Checkpointing:
    """The strategy that the configuration names."""
    if text == "none":
        return Never()
    if text == "every-stage":
        return EveryStage()
    if text == "auto":
        return Auto()
    prefix, _, number = text.partition(":")
    if prefix == "every" and number.isdecimal() and int(number):
        return EveryNStages(int(number))
    raise ConfigError(f"{text!r} is not a checkpoint strategy", hint="use every-stage, every:N, auto or none")


def instance_id() -> str:
    """A name for this process that people can read and that no other process has."""
    return f"{socket.gethostname().split('.')[0]}-{os.getpid()}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """What a `Runner` is told. Times are in seconds.

    ``run`` names the run (default: the pipeline's name); all instances with the same name work on it
    together. ``inputs`` says under which name the input for a table is registered (default: as the run
    began, or else the table's own name). ``output`` is where output files go (default: the runner's storage).
    A partition that fails ``max_failures`` times is set aside; ``breaker`` attempts that fail in a row, all
    with the same error, halt the instance (0: never). ``cluster`` is the one among whose members it is shown.

    Inputs of up to ``whole_bytes`` are given whole to each claim where a join allows it. Up to
    ``small_bytes`` in all, one claim has everything and Spark shuffles in memory. The rows of an exchange are
    cut into key ranges of about ``range_bytes``. A transform that needs all rows at once is refused above
    ``everything_bytes``. ``exchange_bytes`` limits the disk that the run files of all exchanges take. With
    ``without_poisoned``, phases go on without the rows of partitions that were set aside before them, and the
    exchange's plan says so.
    """

    run: str | None = None
    instance: str = field(default_factory=instance_id)
    inputs: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Checkpointing | None = field(default_factory=EveryStage)
    lease_ttl: float = 10.0
    renew_every: float | None = None
    max_batches: int | None = None
    claims: int = 2
    max_failures: int = 5
    breaker: int = 20
    task_rows: int = 0
    output: str | None = None
    output_format: Format = "parquet"
    compression: Compression = "auto"
    accept_changed_code: bool = False
    cluster: str = "default"
    whole_bytes: int = 32 << 20
    small_bytes: int = 32 << 20
    range_bytes: int = 128 << 20
    everything_bytes: int = 16 << 30
    exchange_bytes: int | None = None
    without_poisoned: bool = False

    def __post_init__(self) -> None:
        for name in ("claims", "max_failures", "max_batches"):
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise ConfigError(f"{name} = {value!r}: must be a whole number")
            if value is not None and value < 1:
                raise ConfigError(f"{name} = {value}: must be at least 1")
        if self.lease_ttl <= 0:
            raise ConfigError(f"lease_ttl = {self.lease_ttl:g}: must be more than 0 seconds")
        if not 0 < self.renewal < self.lease_ttl:
            raise ConfigError(
                f"renew_every = {self.renewal:g} s is not between 0 and lease_ttl = {self.lease_ttl:g} s",
                hint="a lease needs several renewals within its time: leave renew_every out for a third",
            )

    @property
    def renewal(self) -> float:
        return self.renew_every if self.renew_every is not None else self.lease_ttl / 3

    @property
    def strategy(self) -> Checkpointing:
        """None means the same as `Never`."""
        return self.checkpoint or Never()

    @classmethod
    def from_settings(cls, settings: RunConfig, **more: object) -> RunnerConfig:
        """From ``[run]`` of the configuration, with what only the caller knows in ``more``."""
        values: dict[str, object] = {
            "checkpoint": checkpointing(settings.checkpoint),
            "lease_ttl": settings.lease_ttl,
            "renew_every": settings.renew_every,
            "max_batches": settings.max_batches,
            "claims": settings.claims,
            "max_failures": settings.max_failures,
            "breaker": settings.breaker,
            "task_rows": settings.task_rows,
            "compression": settings.checkpoint_compression,
            "whole_bytes": settings.whole_bytes,
            "small_bytes": settings.small_bytes,
            "range_bytes": settings.range_bytes,
            "everything_bytes": settings.everything_bytes,
            "exchange_bytes": settings.exchange_bytes,
        }
        return cls(**{**values, **more})  # type: ignore[arg-type]
