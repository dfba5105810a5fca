"""Rows given as dictionaries become Arrow, and nothing is cut off on the way."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from penstock.errors import TypeMismatch
from penstock.spark.fitting import from_rows
from penstock.types.tables import Table


class Inner(Table):
    whole: int
    real: float | None


class Rows(Table):
    whole: int | None
    real: float | None
    at: datetime | None
    day: date | None
    some: list[int] | None
    inner: Inner | None
    inners: list[Inner] | None


SCHEMA = Rows.arrow_schema()


def made(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = from_rows(rows, SCHEMA).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in found]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"whole": 1, "real": 1.5, "day": date(2026, 1, 2)},
        {"at": datetime(2026, 1, 2, tzinfo=UTC)},
        {"some": [1, 2], "inner": {"whole": 1, "real": 1.5}},
        {"inners": [{"whole": 1, "real": None}, {"whole": 2, "real": 0.5}]},
    ],
)
def test_rows_that_fit(row: dict[str, Any]) -> None:
    assert made({"whole": 7}, row, {}) == [{"whole": 7}, row, {}]


def test_numbers_of_numpy_and_whole_numbers_for_real_ones_fit() -> None:
    given = {"whole": np.int32(3), "real": 2, "some": np.array([1, 2]), "inner": (1, 1.5)}
    assert made(given) == [{"whole": 3, "real": 2.0, "some": [1, 2], "inner": {"whole": 1, "real": 1.5}}]


def test_what_else_a_row_has_is_left_out() -> None:
    assert made({"whole": 1, "more": 1.5, "inner": {"whole": 1, "more": 1.5}}) == [
        {"whole": 1, "inner": {"whole": 1, "real": None}}
    ]


@pytest.mark.parametrize("number", [1.5, 1.0, Decimal("1.5"), Fraction(3, 2), np.float32(1.5)])
@pytest.mark.parametrize("others", [[], [{"whole": 1}], [{"whole": Decimal(1)}, {"whole": 1.0}]])
def test_a_fraction_is_not_cut_off(number: object, others: list[dict[str, Any]]) -> None:
    with pytest.raises(TypeMismatch, match=r"^whole is .*, declared as int64") as caught:
        made(*others, {"whole": number}, *others)
    assert "round it" in str(caught.value.hint)


FULL = {"whole": 1, "at": datetime(2026, 1, 2, tzinfo=UTC), "day": date(2026, 1, 2), "some": [1]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("at", 1.5),
        ("at", Decimal("1.5")),
        ("day", 1.5),
        ("some", [1, 1.5]),
        ("some", np.array([1.5])),
        ("inner", {"whole": 1.5}),
        ("inner", (1.5, 1.5)),
        ("inner", [("whole", 1.5)]),
        ("inners", [{"whole": 1}, {"whole": Decimal("1.5")}]),
    ],
)
def test_a_fraction_inside_or_for_a_time_is_not_cut_off(field: str, value: object) -> None:
    with pytest.raises(TypeMismatch, match=rf"^{field} is .*1\.5"):
        made(FULL, {field: value}, FULL)


@pytest.mark.parametrize("value", ["1", True, 1 << 70, float("nan"), [1]])
def test_what_is_no_number_is_named_by_its_field(value: object) -> None:
    with pytest.raises(TypeMismatch, match=r"^whole (does not fit int64|is nan)"):
        made({"whole": value})
