"""When a checkpoint is worth its cost: ``checkpoint = "auto"``.

A checkpoint costs the time to write it, and spares the work since the one before when an instance dies. If
saving takes *C* seconds and an instance dies every *M* seconds, the loss of both kinds is least with a
checkpoint every √(2·C·M) seconds of work (Young 1974; Daly 2006 shows that more exact terms hardly matter
while C is much smaller than M).

C follows from the bytes of a checkpoint, and the work between checkpoints from what the stages took. So the
first partition of a phase is saved after each stage, in order to measure; what was found is in the store,
where others find it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.core.codec import DocumentFormat
from penstock.errors import PenstockError
from penstock.store import Store

# A day without a death is as good as known before anything is seen.
_KNOWN_SECONDS, _KNOWN_DEATHS = 86_400.0, 1
# What a job costs however little it writes, and how fast rows are written that come from the JVM.
_JOB_SECONDS, _BYTES_PER_SECOND = 0.15, 150e6


@dataclass(frozen=True, slots=True)
class StageCost:
    """What a stage takes for one partition, its checkpoint included, and the bytes of that."""

    stage: int
    seconds: float
    bytes: int

    @property
    def saving(self) -> float:
        """Seconds for the checkpoint, of those that were measured."""
        return min(self.seconds, _JOB_SECONDS + self.bytes / _BYTES_PER_SECOND)

    @property
    def work(self) -> float:
        return self.seconds - self.saving


@dataclass(frozen=True, slots=True)
class Reliability:
    """For how long instances were watched, all together, and how many died meanwhile."""

    seconds: float = 0.0
    deaths: int = 0

    @property
    def between_deaths(self) -> float:
        return (_KNOWN_SECONDS + self.seconds) / (_KNOWN_DEATHS + self.deaths)


@dataclass(frozen=True, slots=True)
class StageVerdict:
    """Whether a checkpoint follows a stage, and why."""

    stage: int
    saves: bool
    why: str


def interval(saving: float, between_deaths: float) -> float:
    """After how many seconds of work a checkpoint that takes ``saving`` seconds is worth it."""
    return math.sqrt(2 * saving * between_deaths)


def verdicts(costs: Sequence[StageCost], known: Reliability) -> list[StageVerdict]:
    """After which of the stages of a phase, all but its last one, checkpoints are saved."""
    found, since = [], 0.0
    every = known.between_deaths
    for cost in costs:
        since += cost.work
        wait = interval(cost.saving, every)
        saves = since >= wait
        found.append(
            StageVerdict(
                cost.stage,
                saves,
                f"{_time(since)} of work since the last one; saving {cost.bytes / 1e6:,.1f} MB takes "
                f"{_time(cost.saving)} and is worth it after {_time(wait)}, with a death in {_time(every)}",
            )
        )
        since = 0.0 if saves else since
    return found


def reasons(stages: Sequence[int], costs: Mapping[int, StageCost], known: Reliability) -> list[StageVerdict]:
    """The verdicts about ``stages``, all of a phase but its last, as far as there are measurements."""
    if any(stage not in costs for stage in stages):
        return [
            StageVerdict(stage, True, "to measure what it costs: nothing is known yet") for stage in stages
        ]
    return verdicts([costs[stage] for stage in stages], known)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


@dataclass(frozen=True, slots=True)
class Measured:
    """What the stages of a run have cost, as the store has it."""

    stages: tuple[StageCost, ...] = ()

    @property
    def by_stage(self) -> dict[int, StageCost]:
        return {cost.stage: cost for cost in self.stages}


MEASURED = DocumentFormat(Measured, "what stages cost")


def costs_key(place: str) -> str:
    return f"runs/{place}/costs"


def find(store: Store, place: str) -> dict[int, StageCost]:
    """What was measured of a phase of a run, whose documents are at ``place``."""
    document = store.get(costs_key(place))
    return MEASURED.decode(document.key, document.value).by_stage if document else {}


def note(store: Store, place: str, costs: Mapping[int, StageCost]) -> None:
    """Tell others what stages cost. It is an estimate: whoever writes last is right."""
    document = store.get(costs_key(place))
    value = MEASURED.encode(Measured(tuple(costs[stage] for stage in sorted(costs))))
    store.cas(costs_key(place), document.version if document else 0, value)


class Pace:
    """What an instance knows about the stages of one phase. Its threads share it."""

    def __init__(
        self, store: Store, place: str, stages: Sequence[int], known: Callable[[], Reliability]
    ) -> None:
        self._store = store
        self._place = place
        self._stages = stages
        self._known = known
        self._lock = threading.Lock()
        self._costs = find(store, place)

    def saves(self, stage: int) -> bool:
        """Whether a checkpoint is worth it after this stage, which is not the last of the phase."""
        with self._lock:
            found = reasons(self._stages, self._costs, self._known())
        return next(verdict.saves for verdict in found if verdict.stage == stage)

    def learn(self, cost: StageCost) -> None:
        """Take note of a stage that began right after a checkpoint, or with the input, and was saved."""
        with self._lock:
            if cost.stage in self._costs:
                return
            self._costs[cost.stage] = cost
            complete = all(stage in self._costs for stage in self._stages)
        if complete:
            # Others measure by themselves if they do not hear of it.
            with suppress(PenstockError):
                note(self._store, self._place, self._costs)
