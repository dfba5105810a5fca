"""``penstock stream start``: a supervisor in the foreground, which tells what happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cli.actions.joining import Teller
from penstock.cli.context import CommandContext
from penstock.cli.output import amount, count
from penstock.cli.screens.member_events import MemberEvent
from penstock.cli.signals import Signals
from penstock.errors import EpochGone, PenstockError
from penstock.streams import registry
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.place import Place
from penstock.streams.registry import StreamRecord
from penstock.streams.supervisors import Supervisors
from penstock.streams.views.observer import has_ended
from penstock.workers.stream_instances import Ending, StreamSupervisor
from penstock.workers.stream_job import StreamJob

if TYPE_CHECKING:
    from penstock.project import StreamProject
    from penstock.store import Store
    from penstock.streams.views.events import StreamEvent

_EVERY = 5.0
_QUIET = {"epoch", "batch"}
_ENDINGS = {
    "ended": "stream {name} has ended, and its outputs have everything",
    "stopped": "stream {name} was stopped; what was committed is kept",
    "left": "left stream {name}; what was committed is kept",
}


def run(
    context: CommandContext,
    project: StreamProject,
    instances: int | None,
    *,
    accept_changes: bool,
    verbose: bool,
) -> None:
    """Run a stream, or join one that runs, until it ends, is stopped, or a signal asks to leave."""
    config, stream, teller = context.config, project.stream, Teller(context.output)
    record = registry.open_stream(context.store, stream.name, stream.describe(), accept_changes)
    # Made here to be refused here, and not by every child.
    Place(config.store, config.storage, stream.name, record.id, config.tls)
    if has_ended(context.store, record):
        teller.tell(_ended("ended", record))
        return
    record = _ask_for(context.store, record, instances, teller)
    log = EpochLog(context.store, context.storage, record.layout)
    with Narrator(teller, lambda after: progress(log, after), verbose=verbose) as narrator:
        job = StreamJob(project.source, record.id, "", config)
        ending = supervise(
            StreamSupervisor(context.store, record, job, instances or 1, narrator),
            teller,
        )
    teller.tell(_ended(ending, record))


def _ended(ending: Ending, record: StreamRecord) -> MemberEvent:
    return MemberEvent(ending, _ENDINGS[ending].format(name=record.name), {"stream": record.name})


def _ask_for(store: Store, record: StreamRecord, instances: int | None, teller: Teller) -> StreamRecord:
    """Let the stream run, with as many instances as this command or an earlier rescale says."""
    alone = not Supervisors(store, record.layout).live()
    if alone and instances is not None:
        record = registry.wish(store, record.name, instances=None)
    if record.wanted == "stopped":
        record = registry.wish(store, record.name, wanted="running")
    if record.wanted == "suspended":
        text = f"stream {record.name} is suspended: penstock stream resume {record.name}"
        teller.tell(MemberEvent("suspended", text))
    if record.instances is not None:
        text = f"stream {record.name} was rescaled to {count(record.instances, 'instance')} in all"
        text += "; --instances does not count" if instances is not None else ""
        teller.tell(MemberEvent("scale", text, {"instances": record.instances}))
    return record


@dataclass(frozen=True, slots=True)
class CommittedEpochs:
    """What was committed after one epoch and up to another."""

    after: int
    epoch: int
    rows: int
    late: int


def progress(log: EpochLog, after: int | None) -> CommittedEpochs:
    """What was committed since; ``after`` None: only where it stands."""
    view = log.view()
    if after is None:
        return CommittedEpochs(view.committed, view.committed, 0, 0)
    try:
        entries = log.entries(after, view.committed)
    except EpochGone:
        entries = log.entries(view.floor - 1, view.committed)
    return CommittedEpochs(
        after, view.committed, sum(each.rows for each in entries), sum(each.late for each in entries)
    )


class Narrator:
    """Tells events, and every few seconds what the stream as a whole has committed.

    Epochs are told by the one instance that leads, which may be on another machine: so what was committed is
    read from the log. ``verbose`` tells every epoch and batch as well.
    """

    def __init__(
        self,
        teller: Teller,
        count: Callable[[int | None], CommittedEpochs],
        *,
        verbose: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._teller = teller
        self._count = count
        self._verbose = verbose
        self._clock = clock
        self._told = clock()
        self._known: int | None = None
        self._idle = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="penstock-narrator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self, event: StreamEvent) -> None:
        if self._verbose or event.kind not in _QUIET:
            self._teller.tell(MemberEvent(event.kind, event.text, event.values))

    def step(self) -> None:
        """Tell what was committed since the last step; that there was nothing, only once."""
        try:
            found = self._count(self._known)
        except PenstockError:
            return  # the supervisor tells of a store that does not answer
        first, self._known = self._known is None, found.epoch
        now, before = self._clock(), self._told
        self._told = now
        idle = not found.rows and not found.late
        if first or found.epoch == found.after or (idle and self._idle):
            return
        self._idle = idle
        self._teller.tell(_progressed(found, max(now - before, 0.001)))

    def _repeat(self) -> None:
        self.step()
        while not self._over.wait(_EVERY):
            self.step()
        self.step()


def _progressed(found: CommittedEpochs, seconds: float) -> MemberEvent:
    speed = found.rows / seconds
    one = found.epoch == found.after + 1
    text = f"epoch {found.epoch}: " if one else f"epochs {found.after + 1} to {found.epoch}: "
    text += f"{count(found.rows, 'row')} ({amount(speed)} rows/s)" if found.rows else "no new rows"
    text += f", {count(found.late, 'row')} late" if found.late else ""
    values = {"after": found.after, "epoch": found.epoch, "rows": found.rows, "late": found.late}
    return MemberEvent("progress", text, {**values, "rows_per_second": round(speed, 1)})


def supervise(supervisor: StreamSupervisor, teller: Teller) -> Ending:
    """Run a supervisor until it ends. The first signal asks it to leave; another one ends all at once.

    This thread only waits: what a signal interrupts must not hold a lock of the store.
    """
    endings: list[Ending] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            endings.append(supervisor.run())
        except BaseException as error:
            errors.append(error)

    def asked(name: str) -> None:
        text = f"{name}: leaving when all is committed and handed over (once more to leave at once)"
        teller.tell(MemberEvent("leaving", text, {"signal": name}))
        supervisor.leave()

    with Signals(asked, supervisor.kill):
        thread = threading.Thread(target=work, name="penstock-supervisor", daemon=True)
        thread.start()
        thread.join()
    if errors:
        raise errors[0]
    return endings[0]
