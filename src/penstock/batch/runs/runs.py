"""Runs: the record of what a run computes from what, and whether it may go on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.batch.runs.manifests import Fingerprint, brief, complete
from penstock.config import shown_url
from penstock.control.claims import Board, PartitionState, PartitionSummary, register, together
from penstock.core.codec import SPACED, DocumentFormat, Members, renamed, whole
from penstock.core.names import RULE, is_name
from penstock.errors import CodeChanged, RunError, RunMismatch, UsageError
from penstock.spark.files import Format
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.order import Order

_ACCEPTED = 8


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """What is fixed of a phase when its run starts."""

    cut: str
    """How its rows are cut, in words."""
    stages: tuple[int, int]
    """The first of its stages, and the one after its last."""
    outputs: tuple[str, ...]
    """The tables that it publishes."""
    rows: int | None = None
    partition_rows: int | None = None
    """Its partitions; of key ranges, the plan of the exchange tells them."""
    exchanges: tuple[str, ...] = ()
    """What it leaves for later phases."""
    reads: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Of each table that it reads out of an exchange, the phase that left it and the name of the exchange."""
    ordered: Mapping[str, Order] = field(default_factory=dict)
    """The outputs that it publishes as sorted files, each with its order."""

    @property
    def by_keys(self) -> bool:
        return self.rows is None and not self.by_order

    @property
    def by_order(self) -> bool:
        """Whether its partitions are ranges of a table that is sorted."""
        return self.cut.startswith("order")

    @property
    def table(self) -> str | None:
        """The input whose row ranges its partitions are, where the record tells it by name."""
        return self.cut.removeprefix("rows of ") if self.cut.startswith("rows of ") else None

    @property
    def by_rows(self) -> bool:
        """Whether its partitions are row ranges of a registered input."""
        return self.cut.startswith("rows")


@dataclass(frozen=True, slots=True)
class Run:
    """What is fixed when a run starts; its progress is on the board."""

    name: str
    id: str
    """Tells this run from an earlier one of the same name that was dropped."""
    pipeline: str
    inputs: Mapping[str, str]
    """Digest of each input by table name. The first is the one cut into partitions."""
    registered: Mapping[str, str]
    """The name that each of them is registered under."""
    total_rows: int
    partition_rows: int
    outputs: tuple[str, ...]
    output: str
    output_format: Format
    fingerprint: Fingerprint
    storage: str
    created: str
    keeps_rows: tuple[str, ...] = ()
    """Output tables that have exactly the rows of the primary input."""
    accepted: tuple[Fingerprint, ...] = ()
    """Earlier versions of the pipeline whose results somebody agreed to keep."""
    schemas: Mapping[str, str] = field(default_factory=dict)
    """The Arrow schema of each output table, as text: what an output without rows looks like."""
    source: str = ""
    """The file (and pipeline) that the command line runs it from, if it does."""
    registrations: Mapping[str, str] = field(default_factory=dict)
    """Which registration of each input it began with; of older runs that is not known."""
    named_by_id: bool = True
    """All its output folders carry its id; of older runs some do not."""
    phases: tuple[PhaseRecord, ...] = ()
    """Its phases, if it is more than one phase over row ranges of its primary input."""

    @property
    def every_phase(self) -> tuple[PhaseRecord, ...]:
        """Its phases; a run without exchanges has one."""
        stages = (0, len(self.fingerprint.stages))
        only = PhaseRecord("rows", stages, self.outputs, self.total_rows, self.partition_rows)
        return self.phases or (only,)

    def readers(self, phase: int) -> list[int]:
        """The phases that read what a phase leaves."""
        readers = enumerate(self.phases)
        return [n for n, each in readers if any(origin == phase for origin, _ in each.reads.values())]

    def place(self, phase: int) -> str:
        """What the documents and files of a phase stand under."""
        return f"{self.key}/phase-{phase}" if phase else self.key

    @property
    def key(self) -> str:
        """What the run's documents and files in storage stand under."""
        return f"{self.name}~{self.id}"

    @property
    def primary(self) -> str:
        """The name of the input that is cut into partitions."""
        return next(iter(self.inputs))

    @property
    def output_storage(self) -> Storage:
        return Storage(self.output)


def _read(found: Members) -> Members:
    accepted = [complete(each) for each in found["accepted"]]
    fingerprint = complete(found["fingerprint"])
    return {**_named(_counted(found)), "fingerprint": fingerprint, "accepted": accepted}


def _write(found: Members) -> Members:
    accepted = [brief(each) for each in found["accepted"]]
    return _packed({**found, "fingerprint": brief(found["fingerprint"]), "accepted": accepted})


_named, _packed, _counted = renamed("run", "name"), renamed("name", "run"), whole("partition_rows")
RUN = DocumentFormat(
    Run,
    "the record of a run",
    text=SPACED,
    later={"schemas": {}, "registrations": {}, "named_by_id": False},
    ignores_unknown=True,
    omits=("phases",),
    pack=_write,
    unpack=_read,
    refusal=RunError,
)


def key(name: str) -> str:
    return f"runs/{name}/run"


def own_input(run: str, table: str) -> str:
    """The name of an input that is registered for one run alone."""
    return f"{run}.{table}"


def check_name(name: str) -> str:
    if not is_name(name):
        raise UsageError(f"{name!r} is not a run name", hint=RULE)
    return name


def find(store: Store, name: str) -> Run | None:
    document = store.get(key(check_name(name)))
    return RUN.decode(document.key, document.value) if document else None


def load(store: Store, name: str) -> Run:
    run = find(store, name)
    if run is None:
        known = [r.name for r in every(store)]
        raise UsageError(
            f"there is no run {name!r}",
            hint=f"known runs: {', '.join(known)}"
            if known
            else "start one with `penstock run FILE --input …`",
        )
    return run


def every(store: Store) -> list[Run]:
    """All runs, by name."""
    return [RUN.decode(d.key, d.value) for d in store.scan("runs/") if d.key.endswith("/run")]


def boards(store: Store, run: Run) -> list[Board]:
    """The boards of a run's phases, in order, as far as they are begun. A later one may follow."""
    found = []
    for phase in range(len(run.every_phase)):
        board = Board.find(store, run.place(phase))
        if board is None:
            break
        found.append(board)
    return found


def board(store: Store, name: str, phase: int = 0) -> Board:
    """The board of a phase of a run. Raises `RunError` if it was not begun."""
    return Board.open(store, load(store, name).place(phase))


def summary(store: Store, run: Run) -> PartitionSummary | None:
    """How far a run is, over all phases that are begun; None if none is, or it is being dropped."""
    known = by_phase(store, run)
    if not known and any(store.scan(f"runs/{run.key}/")):
        return Board.open(store, run.key).summary()  # which tells what is wrong
    return together(known) if known else None


def by_phase(store: Store, run: Run) -> list[PartitionSummary]:
    """How far each phase is that was begun. Rows are those of inputs: only row ranges have any."""
    summaries = [board.summary() for board in boards(store, run)]
    phases = zip(run.every_phase, summaries, strict=False)
    return [summary if phase.by_rows else summary.without_rows() for phase, summary in phases]


def new_id() -> str:
    return secrets.token_hex(4)


def start(store: Store, wanted: Run, *, max_failures: int, accept_changed_code: bool) -> tuple[Run, Board]:
    """Create the run, or join the one of this name if it computes the same from the same."""
    # The board first: a run that can be found has one. What a process leaves that dies in between
    # stands under an id that nobody else will use.
    if store.get(key(check_name(wanted.name))) is None:
        _register(store, wanted, max_failures)
        store.cas(key(wanted.name), 0, RUN.encode(wanted))
    run = load(store, wanted.name)
    _check_same(run, wanted)
    board = _register(store, run, max_failures)
    if reasons := run.fingerprint.differences(wanted.fingerprint):
        run = _changed_code(store, run, wanted, reasons, accept_changed_code)
    return run, board


def _register(store: Store, run: Run, max_failures: int) -> Board:
    first = run.every_phase[0]
    assert first.rows is not None and first.partition_rows is not None  # keys come out of an earlier phase
    return register(store, run.key, first.rows, first.partition_rows, max_failures)


def _check_same(run: Run, wanted: Run) -> None:
    differences = []
    if run.pipeline != wanted.pipeline:
        differences.append(f"pipeline {run.pipeline}, not {wanted.pipeline}")
    for name in sorted(run.inputs.keys() | wanted.inputs.keys()):
        if run.inputs.get(name) != wanted.inputs.get(name):
            differences.append(f"another input {name}")
    if (run.output, run.output_format) != (wanted.output, wanted.output_format):
        differences.append(f"output {shown_url(run.output)} as {run.output_format}")
    if run.storage != wanted.storage:
        differences.append(f"storage {shown_url(run.storage)}")
    if differences:
        raise RunMismatch(
            f"run {run.name!r} exists and was started with {'; '.join(differences)}",
            left="the existing run is untouched",
            hint="start this one under a name of its own with --run NAME, "
            f"or remove the old one with `penstock runs gc {run.name} --drop`",
        )


def _changed_code(store: Store, run: Run, wanted: Run, reasons: list[str], accept: bool) -> Run:
    """The pipeline is not what it was: results of both must not be mixed without a word."""
    begun = boards(store, run)
    _check_cuts(run, wanted, len(begun))
    summaries = [board.summary() for board in begun]
    summary = together(summaries)
    last = max((n for n, each in enumerate(summaries) if each.completed.partitions), default=None)
    # What is completed before the first stage that changed is what the new code would have made.
    mixed = last is not None and bool(
        run.fingerprint.of_phase(run.every_phase[last].stages[1], last).differences(
            wanted.fingerprint.of_phase(run.every_phase[last].stages[1], last)
        )
    )
    completed = summary.completed.partitions if mixed else 0
    claimed = summary.claimed.partitions - summary.expired.partitions
    what = f"pipeline {run.pipeline!r} changed since run {run.name!r} began: {'; '.join(reasons)}"
    if claimed and not accept:
        raise CodeChanged(
            what,
            left=f"{claimed} partitions are claimed by instances that run the old code",
            hint="stop them first (their checkpoints stay), or run this under another name with --run NAME",
        )
    if completed and not accept:
        raise CodeChanged(
            what,
            left=f"{completed} partitions were completed by the old code",
            hint="compute everything anew with --run NAME, or keep them and go on with the new code: "
            "--accept-changed-code",
        )
    document = store.get(key(run.name))
    if document is None or RUN.decode(document.key, document.value) != run:
        return _again(store, wanted, run.name)
    adopted = replace(
        run,
        fingerprint=wanted.fingerprint,
        outputs=wanted.outputs,
        schemas=wanted.schemas,
        keeps_rows=wanted.keeps_rows,
        phases=wanted.phases,
        accepted=(*run.accepted, run.fingerprint)[-_ACCEPTED:] if completed else run.accepted,
    )
    if store.cas(document.key, document.version, RUN.encode(adopted)) is None:
        return _again(store, wanted, run.name)
    # Whoever still works with the old code loses its claims now, and gives back what it claims from
    # now on, because it looks at this document after each claim.
    for board in begun:
        for view in board.partitions({PartitionState.CLAIMED}):
            board.force_release(view.range)
    return adopted


def _check_cuts(run: Run, wanted: Run, begun: int) -> None:
    """Refuse other partitions than those of a phase that was begun: rows would be lost or counted twice."""
    was, now = run.fingerprint.phases or ("",), wanted.fingerprint.phases or ("",)
    for number in range(begun):
        wanted_now = now[number] if number < len(now) else "nothing"
        if was[number] != wanted_now:
            raise RunMismatch(
                f"run {run.name!r} has begun with rows cut in another way: phase {number} was "
                f"{was[number] or 'row ranges alone'}, and would be {wanted_now or 'row ranges alone'}",
                left="the existing run is untouched",
                hint="start this one under a name of its own with --run NAME. How rows are cut follows from "
                "the pipeline, from the sizes of its inputs, and from run.whole_bytes and run.small_bytes",
            )


def check_current(store: Store, run: Run) -> None:
    """Raise unless the run is still what this instance began to work on."""
    now = find(store, run.name)
    if now is None or now.id != run.id:
        raise CodeChanged(
            f"run {run.name!r} was removed meanwhile", hint="start it anew if it is still wanted"
        )
    if reasons := run.fingerprint.differences(now.fingerprint):
        raise CodeChanged(
            f"run {run.name!r} goes on with other code than this instance has: {'; '.join(reasons)}",
            left="this instance has given back what it held",
            hint="start it again, with the new code",
        )


def _again(store: Store, wanted: Run, name: str) -> Run:
    """Somebody else changed the run at the same moment: fine if it was to the same."""
    run = load(store, name)
    if reasons := run.fingerprint.differences(wanted.fingerprint):
        raise CodeChanged(
            f"run {name!r} was started with two versions of its pipeline at once: {'; '.join(reasons)}",
            hint="run one version at a time",
        )
    return run


def using(store: Store, name: str, digest: str | None = None) -> list[Run]:
    """The runs that were started with an input of this name, and of this content if it is given."""
    return [
        run
        for run in every(store)
        if any(
            registered == name and digest in (None, run.inputs[table])
            for table, registered in run.registered.items()
        )
    ]
