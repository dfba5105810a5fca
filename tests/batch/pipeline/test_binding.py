"""Declarations against the tables that exist: every mistake is found when the pipeline is built."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from penstock.batch.pipeline import Pipeline, Resource, Transform, arrow_transform, transform
from penstock.errors import DefinitionError, DuplicateName, TypeMismatch, UnknownField
from penstock.types.tables import Table, derived


class Trades(Table):
    trade_id: int
    symbol: str
    price: float
    notional: float = derived()
    flag: bool = derived()


class Quotes(Table):
    symbol: str
    bid: float


class Totals(Table):
    symbol: str
    total: float


class OtherTrades(Table, name="trades"):
    trade_id: str
    symbol: str
    venue: str


rates = Resource("rates", load=dict)


def build(*transforms: Any, inputs: Any = Trades, outputs: Any = None) -> Pipeline:
    return Pipeline("unit", inputs=inputs, outputs=outputs or inputs, transforms=transforms)


class Given(Table, name="trades"):
    """The same table without what must be derived first: an output that asks for nothing."""

    trade_id: int


def make(
    parameters: str, *, decorate: Callable[..., Any] = transform, name: str = "made", **declared: Any
) -> Transform:
    scope: dict[str, Any] = {}
    exec(f"def {name}({parameters}): ...", scope)
    made: Transform = decorate(**declared)(scope[name])
    return made


@transform(reads=Trades.price, writes=Trades.notional)
def add_notional(trades: Any) -> Any: ...


def test_errors_begin_with_the_source_line_of_the_transform() -> None:
    lines, start = inspect.getsourcelines(reads_too_early.function)
    assert lines[0].startswith("@transform")
    with pytest.raises(UnknownField) as caught:
        build(reads_too_early, outputs=Given)
    assert str(caught.value).startswith(
        f"{__file__}:{start}: transform reads_too_early reads trades.notional, which nothing has written yet"
    )
    assert "list the transform that writes trades.notional before" in str(caught.value)


@transform(reads=Trades.notional, writes=Trades.flag)
def reads_too_early(trades: Any) -> Any: ...


def test_the_order_decides_what_is_written() -> None:
    build(add_notional, reads_too_early, outputs=Given)
    with pytest.raises(UnknownField, match="nothing has written yet"):
        build(reads_too_early, add_notional, outputs=Given)


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        (make("quotes", reads=Quotes.bid, writes=Quotes.bid), UnknownField, "no table quotes at this point"),
        (
            make("trades", reads=Trades.price, writes=Quotes.bid),
            UnknownField,
            "writes quotes.bid, but there is",
        ),
        (make("quotes", reads=Quotes, writes=Trades.flag), UnknownField, "there is no table quotes"),
        (make("trades", drops=Quotes), UnknownField, "drops rows of quotes, which does not exist"),
        (
            make("", reads=Trades.price, writes=Trades.flag),
            DefinitionError,
            r"takes \(\) but touches \(trades\)",
        ),
        (
            make("trades, more", reads=Trades.price, writes=Trades.flag),
            DefinitionError,
            r"takes \(trades, more\) but touches \(trades\)",
        ),
        (make("df", reads=Trades.price, writes=Trades.flag), DefinitionError, r"takes \(df\)"),
        (make("**given", reads=Trades.price, writes=Trades.flag), DefinitionError, r"takes \(given\)"),
        (
            make("trades", reads=[Trades.price, rates], writes=Trades.flag),
            DefinitionError,
            r"touches \(rates, trades\)",
        ),
        (
            make("trades", reads=Trades.price, writes=[Trades.flag, rates]),
            DefinitionError,
            "writes a resource and touches tables",
        ),
        (make("", writes=[Totals, rates]), DefinitionError, "writes a resource and touches tables"),
        (
            make("trades", reads=Trades.price, writes=[Trades.flag, Totals]),
            DefinitionError,
            "creates a table and changes",
        ),
        (make("trades", reads=OtherTrades.venue, writes=Trades.flag), UnknownField, "trades.venue"),
        (
            make("trades", reads=OtherTrades.trade_id, writes=Trades.flag),
            TypeMismatch,
            "two classes describe table",
        ),
        (
            make("trades", reads=Trades.price, writes=OtherTrades.venue),
            UnknownField,
            "two classes describe table",
        ),
        (
            make("trades", reads=[Trades.price, Resource("trades")], writes=Trades.flag),
            DuplicateName,
            "a table and a resource named trades",
        ),
    ],
)
def test_declarations_that_fit_nothing(made: Transform, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        build(made, outputs=Given)
    assert "transform made " in str(caught.value)


def test_an_arrow_transform_has_one_table_in_and_one_out() -> None:
    join = make(
        "trades, quotes", decorate=arrow_transform, reads=[Trades.symbol, Quotes.bid], writes=Trades.flag
    )
    with pytest.raises(
        DefinitionError, match=r"touches quotes, trades\nnext: an Arrow transform changes one"
    ):
        build(join, inputs=[Trades, Quotes], outputs=Given)
    nothing = make("rates", decorate=arrow_transform, reads=rates, writes=Resource("more"))
    with pytest.raises(DefinitionError, match="touches no table"):
        build(nothing, outputs=Given)
    creating = make("trades", decorate=arrow_transform, reads=Trades.symbol, writes=Totals)
    assert build(creating, outputs=Totals).bound[0].creates == {"totals"}

    class Numbered(Table):
        _row: int

    with pytest.raises(DefinitionError, match="drops rows and touches a field _row"):
        build(make("numbered", decorate=arrow_transform, reads=Numbered, drops=Numbered), inputs=Numbered)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"reads": Trades.price}, "writes nothing"),
        ({"reads": ["price"], "writes": Trades.flag}, "has 'price' in reads"),
        ({"reads": "trades.price", "writes": Trades.flag}, "has 'trades.price' in reads"),
        ({"writes": [int]}, r"has <class 'int'> in writes"),
        ({"drops": Trades.price}, "has <field trades.price double> in drops"),
    ],
)
def test_declarations_that_are_no_declarations(declared: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        make("trades", **declared)


def test_one_thing_needs_no_list() -> None:
    made = make("trades", reads=Trades.price, writes=Trades.flag, drops=Trades)
    listed = make("trades", reads=[Trades.price], writes=(Trades.flag,), drops={Trades})
    assert (made.reads, made.writes, made.drops) == (listed.reads, listed.writes, listed.drops)


def test_a_transform_is_still_its_function() -> None:
    @transform(reads=Trades.price, writes=Trades.flag, name="other")
    def double(trades: int) -> int:
        """Twice."""
        return 2 * trades

    assert double(trades=4) == double(4) == 8
    assert (double.name, double.function.__name__, double.__doc__) == ("other", "double", "Twice.")
    assert repr(double) == "<transform other>"


def test_whole_tables_stand_for_the_fields_that_are_there() -> None:
    whole = make("trades", reads=Trades, writes=Totals)
    before = build(whole, outputs=Totals).bound[0]
    assert before.declared("trades") == {"trade_id", "symbol", "price"}
    after = build(add_notional, whole, outputs=Totals).bound[1]
    assert after.declared("trades") == {"trade_id", "symbol", "price", "notional"}
    assert after.tables == {"trades"} and after.changes == {"totals"}


def test_a_created_table_can_be_used_after_it_exists() -> None:
    creates = make("trades", reads=Trades.symbol, writes=Totals, name="creates")
    uses = make("totals", reads=Totals.total, writes=Totals.total, name="uses")
    build(creates, uses, outputs=Totals)
    with pytest.raises(UnknownField, match="no table totals at this point"):
        build(uses, creates, outputs=Totals)
    again = make("trades", reads=Trades.symbol, writes=Totals, name="again")
    with pytest.raises(DefinitionError, match=r"takes \(trades\) but touches \(totals, trades\)"):
        build(creates, again, outputs=Totals)


def test_names_are_given_once() -> None:
    with pytest.raises(DuplicateName, match="transform made has the name of the one at"):
        build(
            make("trades", reads=Trades.price, writes=Trades.flag),
            make("trades", reads=Trades.price, writes=Trades.notional),
        )
    with pytest.raises(DuplicateName, match="names table trades twice in inputs"):
        build(inputs=[Trades, OtherTrades], outputs=Given)
    with pytest.raises(
        DuplicateName, match="uses a resource rates that is not the one of an earlier transform"
    ):
        build(
            make("trades, rates", reads=[Trades.price, rates], writes=Trades.flag, name="one"),
            make(
                "trades, rates", reads=[Trades.price, Resource("rates")], writes=Trades.notional, name="two"
            ),
        )


def test_outputs_must_be_written() -> None:
    with pytest.raises(UnknownField, match="has output trades, but nothing writes flag, notional"):
        build()
    with pytest.raises(UnknownField, match="has output totals, but nothing writes symbol, total"):
        build(outputs=Totals)
    with pytest.raises(UnknownField, match=r"nothing writes flag\n"):
        build(add_notional)

    class Wrong(Table, name="trades"):
        trade_id: int | None

    with pytest.raises(TypeMismatch, match=r"has output <field trades\.trade_id int64 or null>, but it is"):
        build(outputs=Wrong)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "ü"])
def test_names_stand_in_paths(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot stand in a path"):
        Pipeline(name, inputs=Quotes, outputs=Quotes, transforms=[])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"inputs": []}, r"has inputs=\[\]"),
        ({"outputs": ["trades"]}, r"has outputs=\['trades'\]"),
        ({"transforms": [lambda trades: trades]}, "lists <function"),
    ],
)
def test_arguments_of_the_wrong_kind(wrong: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"inputs": Quotes, "outputs": Quotes, "transforms": []} | wrong
    with pytest.raises(DefinitionError, match=said) as caught:
        Pipeline("unit", **given)
    assert str(caught.value).startswith(f"{__file__}:")


def test_two_pipelines_of_one_name() -> None:
    def first() -> Pipeline:
        return Pipeline("same", inputs=Quotes, outputs=Quotes, transforms=[])

    one = first()
    with pytest.raises(DuplicateName) as caught:
        Pipeline("same", inputs=Quotes, outputs=Quotes, transforms=[])
    assert f"pipeline 'same' has the name of the one at {one.location}" in str(caught.value)
    assert first().name == "same", "the same line again is the same pipeline, loaded once more"
    del one, caught
    gc.collect()
    Pipeline("same", inputs=Quotes, outputs=Quotes, transforms=[])


def test_resource_names_are_parameter_names() -> None:
    with pytest.raises(DefinitionError, match="'my rates' is not a resource name"):
        Resource("my rates")
    assert build(
        make("trades, rates", reads=[Trades.price, rates], writes=Trades.flag), outputs=Given
    ).resources == {"rates": rates}
