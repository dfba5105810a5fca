"""Entering a phase: what earlier phases left for it, the plan that cuts it, and its board."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.pipeline.phases import ByKeys, ByOrder, ByRows, Phase
from penstock.batch.runner import limits
from penstock.batch.runner.bench import Bench
from penstock.batch.runs import exchanges, runs
from penstock.batch.runs.exchanges import Entering, Left, Sizes
from penstock.batch.runs.options import Auto
from penstock.batch.runs.pacing import Pace, Reliability
from penstock.spark.session import parallelism
from penstock.store import Store


def enter(
    store: Store, bench: Bench, phase: Phase, incomplete: Set[int], reliability: Callable[[], Reliability]
) -> Bench | None:
    """What is needed to work on a phase: what earlier ones left for it, its plan and its board.

    None if it has to wait for partitions that were set aside before it.
    """
    run, config = bench.run, bench.config
    origins = sorted({origin for origin in phase.entering.values() if origin is not None})
    if phase.index:
        runs.check_current(store, run)
    plan = exchanges.find_plan(store, run, phase.index) if origins else None
    # Once the plan is there it has been decided what to do without.
    if plan is None and not config.without_poisoned and incomplete & set(origins):
        return None
    without = plan.without if plan else ()
    left = {origin: exchanges.left(store, bench.storage, run, origin, without) for origin in origins}
    if origins:
        tables = _entering(bench, phase, left)
        if plan is None:
            size = sum(each.size for each in tables.values())
            limits.check_one_claim(phase, size, config.everything_bytes, "what is complete is kept")
        plan = plan or exchanges.agree(store, run, phase, left.values(), tables.values(), _sizes(bench))
        left = {origin: each.agreed(plan) for origin, each in left.items()}
        exchanges.check_plan(run, phase.index, plan, left.values())
    board = exchanges.board(store, run, phase.index, config.max_failures, plan)
    # A factory is given partitions of the first input, as ever.
    first = phase.partitioning == ByRows(run.primary)
    pace = None
    if isinstance(config.strategy, Auto):
        stages = [stage.index for stage in phase.stages[:-1]]
        pace = Pace(store, run.place(phase.index), stages, reliability)
    return replace(
        bench,
        phase=phase,
        board=board,
        entering=_entering(bench, phase, left, plan),
        exchange=plan if isinstance(phase.partitioning, ByKeys | ByOrder) else None,
        factory=bench.factory if first or len(bench.executor.phases) == 1 else None,
        pace=pace,
    )


def _entering(
    bench: Bench, phase: Phase, left: Mapping[int, Left], plan: ExchangePlan | None = None
) -> dict[str, Entering]:
    """The tables that a phase reads out of exchanges."""
    found = {}
    for table, origin in phase.entering.items():
        if origin is not None:
            exchange = bench.executor.phases[origin].exchange(table, phase.index)
            fields = exchange.fields or list(bench.pipeline.tables[table].__fields__)[:1]
            schema = bench.pipeline.tables[table].arrow_schema(fields)
            found[table] = exchanges.entering(left[origin], exchange, schema, plan)
    return found


def _sizes(bench: Bench) -> Sizes:
    config = bench.config
    return Sizes(config.range_bytes, config.small_bytes, 2 * parallelism(bench.spark))
