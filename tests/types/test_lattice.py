"""Which type may stand for which: a table of all answers, and the laws that they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise, product

import pyarrow as pa
import pytest

from penstock.types.lattice import fits, is_of_one_kind, is_same, loosens, widens

Relation = Callable[[pa.DataType, pa.DataType], bool]

TYPES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "u8": pa.uint8(),
    "u16": pa.uint16(),
    "u32": pa.uint32(),
    "u64": pa.uint64(),
    "f16": pa.float16(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "d3": pa.decimal128(3),
    "d10": pa.decimal128(10),
    "d19": pa.decimal128(19),
    "d20": pa.decimal256(20),
    "d10.2": pa.decimal128(10, 2),
    "d12.4": pa.decimal128(12, 4),
    "d38.18": pa.decimal128(38, 18),
    "text": pa.string(),
    "large-text": pa.large_string(),
    "view-text": pa.string_view(),
    "bytes": pa.binary(),
    "large-bytes": pa.large_binary(),
    "view-bytes": pa.binary_view(),
    "bytes-4": pa.binary(4),
    "bytes-16": pa.binary(16),
    "day": pa.date32(),
    "day-ms": pa.date64(),
    "time-ms": pa.time32("ms"),
    "time-us": pa.time64("us"),
    "instant": pa.timestamp("us", "UTC"),
    "instant-ns": pa.timestamp("ns", "UTC"),
    "instant-berlin": pa.timestamp("us", "Europe/Berlin"),
    "local": pa.timestamp("us"),
    "local-s": pa.timestamp("s"),
    "duration": pa.duration("us"),
    "interval": pa.month_day_nano_interval(),
    "uuid": pa.uuid(),
    "dict-text": pa.dictionary(pa.int32(), pa.string()),
    "dict-i32": pa.dictionary(pa.int8(), pa.int32()),
    "[i32]": pa.list_(pa.int32()),
    "[i64]": pa.list_(pa.int64()),
    "large-[i64]": pa.large_list(pa.int64()),
    "3-[i32]": pa.list_(pa.int32(), 3),
    "[text]": pa.list_(pa.string()),
    "[day]": pa.list_(pa.date32()),
    "{a}": pa.struct([("a", pa.int32())]),
    "{a:i64}": pa.struct([("a", pa.int64())]),
    "{a,b}": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "{b,a}": pa.struct([("b", pa.string()), ("a", pa.int32())]),
    "map-i32": pa.map_(pa.string(), pa.int32()),
    "map-i64": pa.map_(pa.string(), pa.int64()),
}
SAME = (
    {"text", "large-text", "view-text"},
    {"bytes", "large-bytes", "view-bytes"},
    {"[i64]", "large-[i64]"},
)
# Besides itself and what is the same.
WIDER = {
    "null": " ".join(TYPES),
    "i8": "i16 i32 i64",
    "i16": "i32 i64",
    "i32": "i64",
    "u8": "u16 u32 u64 i16 i32 i64",
    "u16": "u32 u64 i32 i64",
    "u32": "u64 i64",
    "f16": "f32 f64",
    "f32": "f64",
    "d3": "d10 d19 d20 d10.2 d12.4 d38.18",
    "d10": "d19 d20 d38.18",
    "d19": "d20 d38.18",
    "d20": "d38.18",
    "d10.2": "d12.4 d38.18",
    "d12.4": "d38.18",
    "dict-text": "text large-text view-text",
    "dict-i32": "i32 i64",
}
_DAYS_AND_TIMES = "day time-ms time-us instant instant-ns instant-berlin local local-s"
_TEXTS = "text large-text view-text"
_ALL_BYTES = "bytes large-bytes view-bytes bytes-4 bytes-16"
_NUMBERS = "f64 d10 d19 d20 d38.18"
# Besides what is wider.
READ_AS = {
    "i8": f"d3 d10.2 d12.4 {_NUMBERS}",
    "i16": f"d10.2 d12.4 {_NUMBERS}",
    "i32": _NUMBERS,
    "i64": "f64 d19 d20 d38.18",
    "u8": f"d3 d10.2 d12.4 {_NUMBERS}",
    "u16": f"d10.2 d12.4 {_NUMBERS}",
    "u32": _NUMBERS,
    "u64": "i64 f64 d20 d38.18",
    "dict-i32": _NUMBERS,
    "text": _DAYS_AND_TIMES,
    "large-text": _DAYS_AND_TIMES,
    "view-text": _DAYS_AND_TIMES,
    "dict-text": _DAYS_AND_TIMES,
    "bytes": f"{_ALL_BYTES} {_TEXTS}",
    "large-bytes": f"{_ALL_BYTES} {_TEXTS}",
    "view-bytes": f"{_ALL_BYTES} {_TEXTS}",
    "bytes-4": f"{_ALL_BYTES} {_TEXTS}",
    "bytes-16": f"{_ALL_BYTES} {_TEXTS}",
    "day": "day-ms",
    "day-ms": "day",
    "time-ms": "time-us",
    "time-us": "time-ms",
    "instant": "instant-ns instant-berlin",
    "instant-ns": "instant instant-berlin",
    "instant-berlin": "instant instant-ns",
    "local": "local-s instant instant-ns instant-berlin",
    "local-s": "local instant instant-ns instant-berlin",
    "[i32]": "[i64] large-[i64]",
    "3-[i32]": "[i32] [i64] large-[i64]",
    "[text]": "[day]",
    "{a}": "{a:i64} {a,b} {b,a}",
    "{a:i64}": "",
    "{a,b}": "{a} {a:i64} {b,a}",
    "{b,a}": "{a} {a:i64} {a,b}",
    "map-i32": "map-i64",
}
KINDS = (
    {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"},
    {"f16", "f32", "f64"},
    {"d3", "d10", "d19", "d20", "d10.2", "d12.4", "d38.18"},
    set(_TEXTS.split()),
    {"bytes", "large-bytes", "view-bytes"},
    {"day", "day-ms"},
    {"time-ms", "time-us"},
    {"instant", "instant-ns", "instant-berlin"},
    {"local", "local-s"},
    {"[i32]", "[i64]", "large-[i64]"},
    {"{a}", "{a:i64}"},
    {"{a,b}", "{b,a}"},
)
CAST_AS_THEIR_VALUES = {"null": set(TYPES), "dict-text": KINDS[3], "dict-i32": KINDS[0]}


def answers(relation: Relation) -> dict[str, set[str]]:
    return {a: {b for b in TYPES if relation(TYPES[a], TYPES[b])} for a in TYPES}


def groups(groups: tuple[set[str], ...]) -> dict[str, set[str]]:
    return {name: {name}.union(*(group for group in groups if name in group)) for name in TYPES}


def with_more(known: Mapping[str, set[str]], more: Mapping[str, str]) -> dict[str, set[str]]:
    return {name: found | set(more.get(name, "").split()) for name, found in known.items()}


def test_what_is_the_same() -> None:
    assert answers(is_same) == groups(SAME)


def test_what_widens() -> None:
    assert answers(widens) == with_more(groups(SAME), WIDER)


def test_what_fits() -> None:
    assert answers(fits) == with_more(with_more(groups(SAME), WIDER), READ_AS)


def test_what_is_of_one_kind() -> None:
    expected = {name: found | CAST_AS_THEIR_VALUES.get(name, set()) for name, found in groups(KINDS).items()}
    assert answers(is_of_one_kind) == expected


@pytest.mark.parametrize("relation", [is_same, loosens, widens, is_of_one_kind, fits])
def test_every_type_may_stand_for_itself(relation: Relation) -> None:
    assert all(relation(kind, kind) for kind in TYPES.values())


@pytest.mark.parametrize("relation", [is_same, loosens, widens])
def test_the_relations_of_types_alone_are_transitive(relation: Relation) -> None:
    found = answers(relation)
    assert all(found[b] <= found[a] for a in TYPES for b in found[a])


def test_two_types_that_widen_to_each_other_are_the_same() -> None:
    wider, same = answers(widens), answers(is_same)
    assert all(b in same[a] for a, b in product(TYPES, TYPES) if b in wider[a] and a in wider[b])


def test_the_looser_relations_contain_the_stricter_ones() -> None:
    found = [answers(relation) for relation in (loosens, is_same, widens, fits)]
    for stricter, looser in pairwise(found):
        assert all(stricter[name] <= looser[name] for name in TYPES)


def test_what_widens_by_its_values_stays_within_its_kind() -> None:
    wider, kinds = answers(widens), answers(is_of_one_kind)
    assert all(wider[name] <= kinds[name] for name in TYPES)


def test_what_fits_goes_together_with_what_widens() -> None:
    wider, fitting = answers(widens), answers(fits)
    for a, b in product(TYPES, TYPES):
        if b in wider[a]:
            assert fitting[b] <= fitting[a], f"{a} is narrower than {b}"
        if b in fitting[a]:
            assert wider[b] <= fitting[a], f"{a} fits {b}"


def _inside(*, nullable: bool) -> list[pa.DataType]:
    field = pa.field("a", pa.int64(), nullable)
    return [
        pa.list_(field),
        pa.struct([field]),
        pa.list_(pa.struct([field])),
        pa.map_(pa.string(), field.with_name("value")),
    ]


@pytest.mark.parametrize("number", range(4))
def test_nulls_inside(number: int) -> None:
    some, none = _inside(nullable=True)[number], _inside(nullable=False)[number]
    assert is_same(some, none)
    assert is_same(none, some)
    assert loosens(none, some)
    assert not loosens(some, none)
    assert fits(some, none)


def test_a_part_that_is_missing_is_null() -> None:
    wanted = [
        pa.struct([("a", pa.int32()), pa.field("b", pa.string(), nullable)]) for nullable in (True, False)
    ]
    assert [fits(TYPES["{a}"], each) for each in wanted] == [True, False]
    assert not any(is_of_one_kind(TYPES["{a}"], each) for each in wanted)
