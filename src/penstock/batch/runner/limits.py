"""What is too large to be begun: rows for one claim, and run files for the disk. All functions are pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.batch.pipeline.phases import AsOne, ByRows, Phase, Phases
from penstock.errors import DefinitionError, DiskLimit


def check_everything(phases: Phases, sizes: Mapping[str, int], limit: int) -> None:
    """Raise `DefinitionError` if one claim would have to take inputs of more than ``limit`` bytes.

    ``sizes`` are those of registered inputs. What a transform makes is measured when it is there.
    """
    for phase in phases:
        check_one_claim(
            phase, sum(sizes.get(table, 0) for table in phase.entering), limit, "nothing was begun"
        )


def check_one_claim(phase: Phase, size: int, limit: int, left: str) -> None:
    """Raise `DefinitionError` if the phase has one claim for more than ``limit`` bytes."""
    if not isinstance(phase.partitioning, AsOne) or size <= limit:
        return
    name, why = next(iter(phase.needs.items()), ("the pipeline", phase.partitioning.why))
    raise DefinitionError(
        f"{name} needs all rows at once ({why}), and these have {_mib(size)} MiB",
        left=left,
        hint="group or join by unchanged fields, say by=…, or allow it: "
        f"run.everything_bytes is {_mib(limit)} MiB",
    )


def check_given(phases: Phases, registered: Collection[str], first: str) -> None:
    """Raise `DefinitionError` if a phase needs what only a dataset factory gives, and has none.

    A factory is called for row ranges of the input ``first``, and where one claim has everything.
    """
    for phase in phases:
        if len(phases) == 1 or phase.partitioning == ByRows(first):
            continue
        tables = phase.whole | {t for t, origin in phase.entering.items() if origin is None}
        made = {r.name for s in phases.stages for b in s.transforms for r in b.writes_resources}
        needed = {r for s in phase.stages for b in s.transforms for r in b.reads_resources}
        lacking = [*sorted(tables - set(registered))]
        lacking += sorted(r.name for r in needed if r.load is None and r.name not in made)
        if lacking:
            raise DefinitionError(
                f"phase {phase.index} ({phase.partitioning}) needs {', '.join(lacking)}, which a dataset "
                "factory gives to partitions of the first input alone",
                left="nothing was begun",
                hint="register the table as an input, give the resource load=…, or use it in an earlier "
                "transform",
            )


def check_exchanged(phases: Phases, sizes: Mapping[str, int], limit: int | None) -> None:
    """Raise `DiskLimit` if the inputs that are exchanged are larger than run files may be."""
    tables = {each.table for phase in phases for each in phase.leaving} & sizes.keys()
    size = sum(sizes.get(each.table, 0) for phase in phases for each in phase.leaving)
    if limit is not None and size > limit:
        raise DiskLimit(
            f"the exchanges of {', '.join(sorted(tables))} have about {size} bytes to write, and "
            f"run.exchange_bytes allows {limit} on disk",
            left="nothing was begun",
            hint="allow more with run.exchange_bytes, or give the run less",
        )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f}"
