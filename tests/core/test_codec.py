"""What a document has to be to be read, and what is said of one that is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from penstock.core.codec import READABLE, SORTED, SPACED, DocumentFormat, Older
from penstock.errors import CorruptFile, UsageError
from penstock.storage import FileRecord


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str = ""


@dataclass(frozen=True, slots=True)
class Inner:
    name: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"{self.size} is no size")


@dataclass(frozen=True, slots=True)
class Outer:
    id: int
    ratio: float
    ready: bool
    colour: Colour
    inner: Inner
    pairs: tuple[Pair, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    some: tuple[Inner, ...] = ()
    maybe: Inner | None = None


VALUE = Outer(7, 0.5, True, Colour.RED, Inner("ä", 1), (Pair(1, "x"),), {"k": Inner("b")}, (Inner("c"),))
BODY: dict[str, Any] = {
    "format": 1,
    "id": 7,
    "ratio": 0.5,
    "ready": True,
    "colour": "red",
    "inner": {"name": "ä", "size": 1},
    "pairs": [[1, "x"]],
    "by_name": {"k": {"name": "b", "size": 0}},
    "some": [{"name": "c", "size": 0}],
    "maybe": None,
}
OUTER = DocumentFormat(Outer, "an example", left="it is as it was", hint="write another")


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in BODY.items() if key != name}


def data_of(body: object) -> bytes:
    return json.dumps(body).encode()


def test_a_value_comes_back_as_it_was() -> None:
    found = OUTER.decode("k", OUTER.encode(VALUE))
    assert found == VALUE
    assert type(found.pairs[0]) is Pair
    assert type(found.colour) is Colour
    assert OUTER.decode("k", OUTER.encode(VALUE).decode()) == VALUE


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        (OUTER.text, {"separators": (",", ":")}),
        (SPACED, {}),
        (SORTED, {"separators": (",", ":"), "sort_keys": True}),
        (READABLE, {"separators": (",", ":"), "ensure_ascii": False}),
    ],
)
def test_bytes_are_those_of_the_standard_library(encoder: json.JSONEncoder, options: dict[str, Any]) -> None:
    assert (
        DocumentFormat(Outer, "an example", text=encoder).encode(VALUE)
        == json.dumps(BODY, **options).encode()
    )


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({**BODY, "id": "7"}, r"Expected `int`, got `str` - at `\$.id`"),
        ({**BODY, "id": True}, "Expected `int`, got `bool`"),
        ({**BODY, "id": 7.5}, "Expected `int`, got `float`"),
        ({**BODY, "id": None}, "got `null`"),
        ({**BODY, "ready": 1}, "Expected `bool`, got `int`"),
        ({**BODY, "ratio": "half"}, "Expected `float`"),
        ({**BODY, "colour": "blue"}, "Invalid enum value 'blue'"),
        ({**BODY, "inner": []}, "Expected `object`, got `array`"),
        ({**BODY, "inner": {"name": 3}}, r"at `\$.inner.name`"),
        ({**BODY, "inner": {"name": "a", "size": -1}}, "-1 is no size"),
        ({**BODY, "inner": {"size": 1}}, "missing required field `name`"),
        ({**BODY, "inner": {"name": "a"}}, "it lacks size"),
        ({**BODY, "by_name": {"x": {"name": "a"}}}, "it lacks size"),
        ({**BODY, "pairs": [[]]}, "length 1 to 2"),
        ({**BODY, "pairs": [[1, "x", 2]]}, "length 1 to 2"),
        ({**BODY, "pairs": [["x"]]}, "Expected `int`"),
        ({**BODY, "some": {}}, "Expected `array`"),
        (without("id"), "missing required field `id`"),
        (without("some"), "it lacks some"),
        ({**BODY, "more": 1}, "more is not known"),
        ({**BODY, "inner": {"name": "a", "size": 0, "more": 1}}, "more is not known"),
        ({**BODY, "maybe": {"name": "a", "size": 0, "more": 1}}, "more is not known"),
        (
            {**BODY, "some": [{"name": "a", "size": 0}, {"name": "a", "size": 0, "more": 1}]},
            "more is not known",
        ),
        ({**BODY, "by_name": {"x": {"name": "a", "size": 0, "more": 1}}}, "more is not known"),
        (without("format"), "its format is None"),
        ({**BODY, "format": True}, "its format is True"),
        ({**BODY, "format": "1"}, "its format is '1'"),
        ([BODY], "not a JSON object"),
        (None, "not a JSON object"),
    ],
)
def test_a_malformed_document_is_refused(body: object, why: str) -> None:
    with pytest.raises(CorruptFile, match=why) as caught:
        OUTER.decode("a/key", data_of(body))
    assert caught.value.what.startswith("an example, a/key, cannot be read: ")
    assert (caught.value.left, caught.value.hint) == ("it is as it was", "write another")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\x00", b"not JSON", b"[" * 100_000, b'{"format":1} x'])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="cannot be read"):
        OUTER.decode("a/key", data)


def test_every_truncated_document_is_refused() -> None:
    data = OUTER.encode(VALUE)
    for end in range(len(data)):
        with pytest.raises(CorruptFile):
            OUTER.decode("a/key", data[:end])


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_that_never_was_is_no_matter_of_an_upgrade(number: int) -> None:
    with pytest.raises(CorruptFile, match=f"its format is {number}, which never was"):
        OUTER.decode("a/key", data_of({**BODY, "format": number}))


@pytest.mark.parametrize("number", [2, 99])
def test_another_format_is_not_read(number: int) -> None:
    """Whatever else is in it: a later version may have changed everything."""
    with pytest.raises(
        UsageError, match=f"an example, a/key, has format {number}, and .* format 1"
    ) as caught:
        OUTER.decode("a/key", data_of({"format": number, "new": []}))
    assert "upgrade Penstock" in (caught.value.hint or "")


def test_unknown_members_are_passed_over_where_that_is_said() -> None:
    lenient = DocumentFormat(Outer, "an example", ignores_unknown=True)
    body = {**BODY, "more": 1, "inner": {"name": "ä", "size": 1, "more": 2}}
    assert lenient.decode("k", data_of(body)) == VALUE


def test_a_later_field_may_be_missing() -> None:
    grown = DocumentFormat(Inner, "an example", later={"size": 5})
    assert grown.decode("k", b'{"format":1,"name":"a"}') == Inner("a", 5)
    assert grown.decode("k", b'{"format":1,"name":"a","size":6}') == Inner("a", 6)
    with pytest.raises(CorruptFile, match="missing required field `name`"):
        grown.decode("k", b'{"format":1,"size":5}')


def test_the_format_before_is_read() -> None:
    first = DocumentFormat(Inner, "an example")
    second = DocumentFormat(
        Outer, "an example", number=2, older=Older(first, lambda inner: Outer(*VALUES, inner))
    )
    third = DocumentFormat(Inner, "an example", number=3, older=Older(second, lambda outer: outer.inner))
    assert second.decode("k", first.encode(Inner("a"))).inner == Inner("a")
    assert second.decode("k", second.encode(VALUE)) == VALUE
    assert third.decode("k", first.encode(Inner("a"))) == Inner("a")
    with pytest.raises(UsageError, match="knows format 2"):
        second.decode("k", third.encode(Inner("a")))
    with pytest.raises(CorruptFile):
        third.decode("k", b'{"format":0}')


VALUES = (1, 0.5, True, Colour.RED)


@dataclass(frozen=True, slots=True)
class Sparse:
    count: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    flag: bool = False


def test_what_has_no_value_is_left_out_where_that_is_said() -> None:
    sparse = DocumentFormat(Sparse, "an example", omits=("count", "names"))
    assert sparse.encode(Sparse()) == b'{"format":1,"flag":false}'
    assert sparse.decode("k", b'{"format":1,"flag":true}') == Sparse(flag=True)
    with pytest.raises(CorruptFile, match="lacks flag"):
        sparse.decode("k", b'{"format":1}')
    with pytest.raises(CorruptFile, match="more is not known"):
        sparse.decode("k", b'{"format":1,"flag":true,"more":1}')


@dataclass(frozen=True, slots=True)
class Odd:
    schema: pa.Schema
    clock: int
    path: str
    seconds: float


ODD = DocumentFormat(Odd, "an example", member="layout")


def test_schemas_large_numbers_and_names_that_are_not_unicode() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False)])
    for clock in (2**64, -(2**63) - 1):
        value = Odd(schema, clock, "caf\udce9.csv", 1e22)
        assert ODD.decode("k", ODD.encode(value)) == value


@pytest.mark.parametrize("schema", ["bm8gc2NoZW1h", "!", "", 7, None])
def test_what_is_no_schema_is_refused(schema: object) -> None:
    body = {"layout": 1, "schema": schema, "clock": 1, "path": "p", "seconds": 1}
    with pytest.raises(CorruptFile, match="cannot be read"):
        ODD.decode("k", data_of(body))


def test_another_name_for_the_number() -> None:
    with pytest.raises(UsageError, match="has layout 2, and this version of Penstock knows layout 1"):
        ODD.decode("k", b'{"layout":2}')


def test_what_is_made_of_a_document_may_refuse_it() -> None:
    data = OUTER.encode(VALUE)
    assert OUTER.read("k", data, lambda value: value.inner.name) == "ä"
    with pytest.raises(CorruptFile, match=r"cannot be read: .*'gone'"):
        OUTER.read("k", data, lambda value: value.by_name["gone"])


@dataclass(frozen=True, slots=True)
class Listed:
    files: tuple[FileRecord, ...]


def test_a_file_list_that_leads_elsewhere_is_named() -> None:
    listed = DocumentFormat(Listed, "a list")
    file = {"path": "../../etc/passwd", "rows": 1, "bytes": 1, "sha256": ""}
    with pytest.raises(CorruptFile, match=r"a list, a/key, cannot be read: .*etc/passwd") as caught:
        listed.decode("a/key", data_of({"format": 1, "files": [file]}))
    assert caught.value.hint == "restore it from a backup"


def test_numbers_of_numpy_are_written() -> None:
    import numpy as np

    assert json.loads(DocumentFormat(Sparse, "x").encode(Sparse(names={"a": np.str_("b")})))["names"] == {
        "a": "b"
    }


@pytest.mark.parametrize(
    "value", [b"raw", object(), MappingProxyType({"a": "b"}), datetime(2026, 1, 2), {1j}]
)
def test_what_would_come_back_as_something_else_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        DocumentFormat(Sparse, "an example").encode(Sparse(names={"a": value}))


def test_declaring_documents_does_not_import_msgspec() -> None:
    program = "import sys, penstock.cli, penstock.core.codec; assert 'msgspec' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
