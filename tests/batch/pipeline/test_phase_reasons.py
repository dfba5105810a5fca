"""Why a transform is given everything: the reason that its author can do something about."""

from __future__ import annotations

from typing import Any

from penstock import Pipeline, Table, transform
from penstock.batch.pipeline.partitioning import Everything, Keyed, Need
from penstock.batch.pipeline.phase_planner import Carried, derive_phases
from penstock.batch.pipeline.phases import Phases
from penstock.batch.pipeline.stages import Bound


class Sales(Table):
    shop: int
    amount: int


class Shops(Table):
    id: int


class Totals(Table):
    shop: int
    amount: int


@transform(reads=[Sales, Shops], writes=Totals)
def totals(sales: Any, shops: Any) -> Any: ...


PIPELINE = Pipeline("reasons", inputs=[Sales, Shops], outputs=Totals, transforms=[totals])
BY_ID = Keyed(frozenset({frozenset({("shops", "id")})}))


def cut(needs: dict[frozenset[str], Need]) -> Phases:
    """The phases if both inputs may be given whole, and the transform needs this of each choice."""

    def decide(_: Bound, whole: frozenset[str]) -> tuple[Need, Carried]:
        return needs[whole], {}

    return derive_phases(
        PIPELINE.bound, PIPELINE.inputs, PIPELINE.outputs, decide, frozenset({"sales", "shops"}), orders={}
    )


SALES_CUT, SHOPS_CUT, BOTH_CUT = frozenset({"shops"}), frozenset({"sales"}), frozenset[str]()


def test_the_reason_is_the_one_that_is_left_when_small_inputs_are_whole() -> None:
    phases = cut(
        {
            SALES_CUT: Everything("limit looks at all rows", "shop.py:9"),
            SHOPS_CUT: Everything("limit looks at all rows", "shop.py:9"),
            BOTH_CUT: Everything("join of sales with shops is by no field of both", "shop.py:7"),
        }
    )
    (phase,) = phases
    assert phase.needs == {"totals": "limit looks at all rows (shop.py:9)"}
    assert phase.whole == frozenset()


def test_a_line_that_the_reason_names_is_not_named_twice() -> None:
    why = "join at shop.py:7 is by no field of both"
    (phase,) = cut(dict.fromkeys((SALES_CUT, SHOPS_CUT, BOTH_CUT), Everything(why, "shop.py:7")))
    assert phase.needs == {"totals": why}


def test_a_choice_of_whole_inputs_that_has_a_key_is_taken() -> None:
    everything = Everything("rows are put together without a key")
    phases = cut({SALES_CUT: everything, SHOPS_CUT: BY_ID, BOTH_CUT: everything})
    assert [str(phase.partitioning) for phase in phases][-1] == "keys shops.id"
