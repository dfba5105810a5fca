"""What is refused before anything is begun."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, Resource, Table, transform
from penstock.batch.pipeline.partitioning import Everything, Keyed, Narrow, Need
from penstock.batch.pipeline.phase_planner import Carried, derive_phases
from penstock.batch.pipeline.phases import Phases
from penstock.batch.pipeline.stages import Bound
from penstock.batch.runner import limits
from penstock.errors import DefinitionError, DiskLimit

rate = Resource("rate")


class Sales(Table):
    shop: int
    amount: int


class Shops(Table):
    id: int


class Totals(Table):
    shop: int
    amount: int


@transform(reads=[Sales, Shops, rate], writes=Totals)
def totals(sales: Any, shops: Any, rate: Any) -> Any: ...


PIPELINE = Pipeline("limits", inputs=[Sales, Shops], outputs=Totals, transforms=[totals])
BY_SHOP = Keyed(frozenset({frozenset({("sales", "shop")})}))


def cut(need: Need) -> Phases:
    """The phases if shops may be given whole, and the transform needs this of sales."""

    def decide(_: Bound, whole: frozenset[str]) -> tuple[Need, Carried]:
        return need if whole or isinstance(need, Everything) else Everything("both"), {}

    return derive_phases(
        PIPELINE.bound, PIPELINE.inputs, PIPELINE.outputs, decide, frozenset({"shops"}), orders={}
    )


def test_everything_that_is_too_large_names_the_transform_and_the_line() -> None:
    phases = cut(Everything("limit at sales.py:7 looks at all rows", "sales.py:7"))
    limits.check_everything(phases, {"sales": 5 << 20, "shops": 5 << 20}, 10 << 20)
    with pytest.raises(DefinitionError) as caught:
        limits.check_everything(phases, {"sales": 6 << 20, "shops": 5 << 20}, 10 << 20)
    assert "totals needs all rows at once (limit at sales.py:7 looks at all rows)" in str(caught.value)
    assert "these have 11.0 MiB" in str(caught.value)
    assert "run.everything_bytes is 10.0 MiB" in str(caught.value)
    limits.check_everything(cut(BY_SHOP), {"sales": 1 << 40}, 10 << 20)


def test_what_is_exchanged_counts_for_the_disk() -> None:
    phases = cut(BY_SHOP)
    limits.check_exchanged(phases, {"sales": 100, "shops": 10**9}, 100)
    limits.check_exchanged(phases, {"sales": 10**9}, None)
    with pytest.raises(DiskLimit, match="exchanges of sales have about 101 bytes to write"):
        limits.check_exchanged(phases, {"sales": 101}, 100)


def test_a_phase_without_the_factory_needs_what_is_registered() -> None:
    with pytest.raises(DefinitionError, match="needs shops, rate, which a dataset factory gives") as caught:
        limits.check_given(cut(BY_SHOP), {"sales"}, "sales")
    assert "register the table as an input" in str(caught.value)
    limits.check_given(cut(Narrow("sales")), {"sales"}, "sales")
