"""Kinds of Arrow's types, and that a type which a table can have is known everywhere."""

from __future__ import annotations

from typing import get_args

import pyarrow as pa
import pytest

from penstock.types import arrow, postgres
from penstock.types.arrow import OF_PYTHON, ZEROS, has_inside, kind_of
from penstock.types.lattice import fits, is_of_one_kind, is_same, widens
from penstock.types.spark import arrow_type, has_spark_type, nearest_schema, spark_type

DECIMAL = pa.decimal128(18, 4)
COLUMNS = [*OF_PYTHON.values(), DECIMAL, pa.timestamp("us")]


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_a_type_of_columns_is_known_everywhere(kind: pa.DataType) -> None:
    assert arrow_type(spark_type(kind)) == kind
    assert has_spark_type(kind) or kind == DECIMAL
    assert nearest_schema(pa.schema([("x", kind)])).types == [kind]
    column = postgres.column("x", kind)
    assert postgres.arrow_type(column.oid, column.typmod) == kind
    assert pa.array([ZEROS[kind_of(kind)]], kind).null_count == 0
    assert kind_of(kind) != "other"
    assert all(relation(kind, kind) for relation in (is_same, widens, is_of_one_kind, fits))


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_a_column_of_postgres_takes_and_gives_its_values(kind: pa.DataType) -> None:
    oid = postgres.column("x", kind).oid
    names = [name for name, each in postgres.OIDS.items() if each == oid]
    assert any(postgres.takes(name, kind) for name in names)
    assert any(postgres.gives(name, "S" if kind_of(kind) == "text" else "U", kind) for name in names)


def test_kinds() -> None:
    kinds = {kind_of(kind) for kind in COLUMNS}
    assert kinds <= set(get_args(arrow.Kind))
    assert kind_of(pa.timestamp("ns")) == "local time"
    assert kind_of(pa.timestamp("ns", "Europe/Berlin")) == "instant"
    assert kind_of(pa.list_view(pa.int8())) == "other list"
    assert kind_of(pa.dictionary(pa.int8(), pa.string())) == "other"


def test_what_is_inside() -> None:
    nested = pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(DECIMAL))]))
    assert has_inside(nested, pa.types.is_decimal)
    assert has_inside(DECIMAL, pa.types.is_decimal)
    assert not has_inside(nested, pa.types.is_binary)
