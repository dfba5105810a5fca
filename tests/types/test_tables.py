"""Tables: from annotations to Arrow and Spark schemas."""

from __future__ import annotations

import importlib.util
import inspect
import pickle
import re
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Optional

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import types as t

from penstock.errors import DefinitionError, PenstockError, UnknownField, UnknownType
from penstock.types.tables import Field, Precision, Table, derived

Money = Annotated[Decimal, Precision(18, 4)]


class Address(Table):
    street: str
    zip_code: str | None


class Everything(Table):
    a_int: int
    a_float: float
    a_decimal: Money
    a_str: str
    a_bytes: bytes
    a_bool: bool
    a_date: date
    a_datetime: datetime
    a_list: list[int]
    a_list_of_nulls: list[str | None]
    a_table: Address
    tables: list[Address]
    matrix: list[list[float]]


ARROW = {
    "a_int": pa.int64(),
    "a_float": pa.float64(),
    "a_decimal": pa.decimal128(18, 4),
    "a_str": pa.string(),
    "a_bytes": pa.binary(),
    "a_bool": pa.bool_(),
    "a_date": pa.date32(),
    "a_datetime": pa.timestamp("us", "UTC"),
    "a_list": pa.list_(pa.field("element", pa.int64(), nullable=False)),
    "a_list_of_nulls": pa.list_(pa.field("element", pa.string(), nullable=True)),
    "a_table": pa.struct(
        [pa.field("street", pa.string(), nullable=False), pa.field("zip_code", pa.string())]
    ),
}
SPARK_ADDRESS = t.StructType(
    [t.StructField("street", t.StringType(), False), t.StructField("zip_code", t.StringType(), True)]
)
SPARK = {
    "a_int": t.LongType(),
    "a_float": t.DoubleType(),
    "a_decimal": t.DecimalType(18, 4),
    "a_str": t.StringType(),
    "a_bytes": t.BinaryType(),
    "a_bool": t.BooleanType(),
    "a_date": t.DateType(),
    "a_datetime": t.TimestampType(),
    "a_list": t.ArrayType(t.LongType(), False),
    "a_list_of_nulls": t.ArrayType(t.StringType(), True),
    "a_table": SPARK_ADDRESS,
    "tables": t.ArrayType(SPARK_ADDRESS, False),
    "matrix": t.ArrayType(t.ArrayType(t.DoubleType(), False), False),
}


def module(folder: Path, name: str, source: str) -> ModuleType:
    """A module of its own file, as a user writes it."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", ARROW)
def test_types_in_arrow(name: str) -> None:
    field = Everything.arrow_schema().field(name)
    assert field.type == ARROW[name]
    assert not field.nullable


def test_types_in_spark() -> None:
    schema = Everything.spark_schema()
    assert {f.name: f.dataType for f in schema} == SPARK
    assert schema.names == list(Everything.__fields__)
    assert not any(f.nullable for f in schema)


def test_nested_nullability_is_kept() -> None:
    assert Everything.arrow_schema().field("a_list").type.value_field.nullable is False
    assert Everything.arrow_schema().field("a_list_of_nulls").type.value_field.nullable is True
    of_tables = Everything.arrow_schema().field("tables").type.value_type
    assert [f.nullable for f in of_tables] == [False, True]


def test_nullable_spellings_are_the_same() -> None:
    class Spelled(Table):
        a: int | None
        b: Optional[int]  # noqa: UP045
        c: Annotated[Decimal | None, Precision(18, 4)]
        d: Annotated[Decimal, Precision(18, 4)] | None
        e: Annotated[str | None, "a remark"]

    fields = Spelled.__fields__
    assert all(f.nullable for f in fields.values())
    assert fields["a"].type == fields["b"].type == pa.int64()
    assert fields["c"].type == fields["d"].type == pa.decimal128(18, 4)
    assert fields["e"].type == pa.string()


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Decimal, "Decimal without precision"),
        (Annotated[int, Precision(3)], "Precision describes Decimal"),
        (Annotated[int | Decimal, Precision(3)], "Precision describes Decimal"),
        (int | str, "is a union"),
        (int | str | None, "is a union"),
        (dict[str, int], "is not a column type"),
        (list, "is not a column type"),
        (list[Decimal], "Decimal without precision"),
        (complex, "is not a column type"),
        (None, "is not a column type"),
        (Table, "is not a column type"),
        (Any, "is not a column type"),
        ([int], "is not a column type"),
        ("Missing", "'Missing' is not defined"),
        ("list[Missing]", "'Missing' is not defined"),
        ("int |", "must be an expression"),
    ],
)
def test_annotations_that_are_no_column(annotation: Any, said: str) -> None:
    with pytest.raises(UnknownType, match=said) as caught:

        class Wrong(Table):
            __annotations__ = {"bad": annotation}

    assert __file__ in str(caught.value)
    assert "wrong" in str(caught.value)


def test_the_error_names_table_and_field() -> None:
    with pytest.raises(
        UnknownType, match=r"wrong_one\.price: Decimal without precision\nnext: write Annotated"
    ):

        class WrongOne(Table):
            price: Decimal


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_impossible_precisions(precision: int, scale: int) -> None:
    with pytest.raises(DefinitionError, match="is not possible"):
        Precision(precision, scale)


def test_names() -> None:
    class HTTPLog2Entries(Table):
        x: int

    class Renamed(Table, name="old_name"):
        x: int

    assert HTTPLog2Entries.__table_name__ == "http_log2_entries"
    assert Renamed.__table_name__ == "old_name"
    assert str(Renamed.x) == "old_name.x"
    with pytest.raises(DefinitionError, match="'Trades!' is not a table name"):

        class Bad(Table, name="Trades!"):
            x: int


def test_inheritance_adds_and_replaces_fields() -> None:
    class Base(Table):
        key: int
        label: str
        total: float = derived()

    class More(Base):
        label: str | None  # type: ignore[assignment]
        extra: bool

    class Other(Base, name="base"):
        pass

    assert list(More.__fields__) == ["key", "label", "total", "extra"]
    assert More.__fields__["label"].nullable
    assert More.__fields__["total"].derived
    assert str(More.key) == "more.key"
    assert str(Base.key) == "base.key"
    assert not Base.__fields__["label"].nullable
    assert Other.schema_id() == Base.schema_id()


def test_inheritance_from_a_module_with_other_names(tmp_path: Path) -> None:
    future = "from __future__ import annotations\nfrom penstock import Table\n"
    module(
        tmp_path,
        "pk_base",
        future + "import datetime as when\nclass Base(Table):\n    day: when.date | None\n",
    )
    made = module(tmp_path, "pk_sub", future + "from pk_base import Base\nclass Sub(Base):\n    key: int\n")
    assert made.Sub.arrow_schema() == pa.schema(
        [pa.field("day", pa.date32()), pa.field("key", pa.int64(), nullable=False)]
    )


BODY = """
from typing import Annotated, ClassVar
from decimal import Decimal
from penstock import Precision, Table, derived

class Leg(Table):
    side: str

class Trades(Table):
    limit: ClassVar[int] = 5
    trade_id: int
    price: Annotated[Decimal, Precision(18, 4)]
    legs: list[{leg}]
    note: str | None = derived()
"""


def test_with_and_without_postponed_annotations(tmp_path: Path) -> None:
    plain = module(tmp_path, "pk_plain", BODY.format(leg="Leg"))
    quoted = module(tmp_path, "pk_quoted", BODY.format(leg='"Leg"'))
    postponed = module(tmp_path, "pk_post", "from __future__ import annotations" + BODY.format(leg="Leg"))
    ids = {m.Trades.schema_id() for m in (plain, quoted, postponed)}
    assert len(ids) == 1
    assert list(plain.Trades.__fields__) == ["trade_id", "price", "legs", "note"]
    assert plain.Trades.limit == 5


def test_a_table_cannot_refer_forward(tmp_path: Path) -> None:
    source = "from penstock import Table\nclass Node(Table):\n    parent: 'Node'\n"
    with pytest.raises(UnknownType, match=r"pk_forward\.py:2: table node: name 'Node' is not defined"):
        module(tmp_path, "pk_forward", source)


def test_tables_inside_functions_see_local_names() -> None:
    class Innermost(Table):
        x: str

    class Inner(Table):
        x: Innermost

    class Outer(Table):
        inner: list[Inner]

    inner = Outer.arrow_schema().field("inner").type.value_type
    assert inner.field("x").type.field("x").type == pa.string()


def test_class_variables_and_methods_are_no_fields() -> None:
    class WithMore(Table):
        limit: ClassVar[int] = 5
        x: int

        @classmethod
        def both(cls) -> int:
            return cls.limit

    assert list(WithMore.__fields__) == ["x"]
    assert WithMore.both() == 5


def test_derived_fields_are_not_asked_of_the_input() -> None:
    class Trades(Table):
        a: int
        b: int = derived()

    assert Trades.input_schema().names == ["a"]
    assert Trades.arrow_schema().names == ["a", "b"]
    assert Trades.arrow_schema(["b", "unknown"]).names == ["b"]
    assert [f.derived for f in Trades.__fields__.values()] == [False, True]


def test_bodies_that_make_no_sense() -> None:
    with pytest.raises(DefinitionError, match="table empty has no fields"):

        class Empty(Table):
            pass

    with pytest.raises(DefinitionError, match=r"b = derived\(\) has no type"):

        class Untyped(Table):
            a: int
            b = derived()

    with pytest.raises(DefinitionError, match=r"price has the value 1\.5"):

        class Default(Table):
            price: float = 1.5

    with pytest.raises(DefinitionError, match="fields price and Price"):

        class Case(Table):
            price: float
            Price: float


@pytest.mark.parametrize("name", ["schema_id", "arrow_schema", "input_schema", "spark_schema"])
def test_a_field_cannot_hide_a_method_of_all_tables(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"has a field {name}, which is a method of every table"):

        class Taken(Table):
            __annotations__ = {name: int}


def test_fields_may_be_called_like_other_attributes() -> None:
    class Odd(Table):
        name: str
        table: str
        type: int
        location: str
        fields: int
        derived: bool
        nullable: bool
        mro: int
        key: int
        _hidden: int

    assert all(getattr(Odd, name) is field for name, field in Odd.__fields__.items())
    assert Odd.arrow_schema().names == list(Odd.__fields__)
    assert str(Odd.fields) == "odd.fields"
    assert len(Odd.schema_id()) == 16

    class Odder(Odd):
        more: int

    assert len(Odder.__fields__) == 11


def test_an_unknown_field_says_where_and_what_was_meant() -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(UnknownField) as caught:
        _ = Everything.a_flaot
    text = str(caught.value)
    assert text.startswith(f"{__file__}:{line}: table everything has no field 'a_flaot'")
    assert "did you mean 'a_float'?" in text
    assert "next: fields of everything: a_int, a_float" in text
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(Everything, "nothing_like_it")


def test_a_table_has_no_instances() -> None:
    with pytest.raises(TypeError, match="describes a table"):
        Everything()


def test_locations_are_lines_of_the_class_statement() -> None:
    _, line = inspect.getsourcelines(Everything)
    assert Everything.__location__ == f"{__file__}:{line}"


class Vector(Table, name="trades"):
    trade_id: int
    price: Money
    legs: list[Address]
    at: datetime
    note: str | None


def test_the_schema_id_is_the_same_for_ever() -> None:
    assert Vector.schema_id() == "b60f6f94d6bed189"


def variants() -> dict[str, type[Table]]:
    class Name(Table, name="trade"):
        a: int
        b: str

    class Order(Table, name="trades"):
        b: str
        a: int

    class Nullable(Table, name="trades"):
        a: int
        b: str | None

    class Type(Table, name="trades"):
        a: float
        b: str

    class Renamed(Table, name="trades"):
        a: int
        c: str

    class Longer(Table, name="trades"):
        a: int
        b: str
        c: str

    class Digits(Table, name="trades"):
        a: Annotated[Decimal, Precision(18, 4)]
        b: str

    class OtherDigits(Table, name="trades"):
        a: Annotated[Decimal, Precision(18, 5)]
        b: str

    class Listed(Table, name="trades"):
        a: list[int]
        b: str

    class ListedNulls(Table, name="trades"):
        a: list[int | None]
        b: str

    class Nested(Table, name="trades"):
        a: Nullable
        b: str

    class NestedOther(Table, name="trades"):
        a: Name
        b: str

    return {key: value for key, value in locals().items() if isinstance(value, type)}


def test_the_schema_id_changes_with_everything_that_matters() -> None:
    class Base(Table, name="trades"):
        a: int
        b: str

    class Same(Table, name="trades"):
        """With a docstring."""

        a: int
        b: str

    ids = {name: table.schema_id() for name, table in variants().items()} | {"Base": Base.schema_id()}
    assert len(set(ids.values())) == len(ids), ids
    assert Same.schema_id() == Base.schema_id()


def test_fields_and_their_errors_travel() -> None:
    assert pickle.loads(pickle.dumps(Everything.a_list)) == Everything.a_list
    with pytest.raises(UnknownField) as caught:
        _ = Everything.nothing
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, PenstockError) and str(copy) == str(caught.value)


def test_a_table_of_a_script_travels_to_workers() -> None:
    class Local(Table, name="of_a_script"):
        a: int
        b: str | None = derived()

    schema, name = Local.arrow_schema(), Local.__table_name__
    data: bytes = cloudpickle.dumps(Local)  # type: ignore[no-untyped-call]
    tracked = sys.modules["pyspark.cloudpickle.cloudpickle"]._DYNAMIC_CLASS_TRACKER_BY_ID
    tracked.clear()  # as in another process
    copy = pickle.loads(data)
    assert copy is not Local
    assert copy.arrow_schema() == schema
    assert copy.__table_name__ == name
    assert copy.b == Field("of_a_script", "b", pa.string(), True, True)
    with pytest.raises(UnknownField, match=re.escape("did you mean 'a'") + "|has no field"):
        _ = copy.aa
