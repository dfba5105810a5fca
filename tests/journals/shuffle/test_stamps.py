"""UUIDs as columns, against those that are decoded one by one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.journals.format.uuids import Stamp, decode, encode
from penstock.journals.shuffle.sequencing.stamps import Stamps

MULTICAST = 1 << 40
GOOD = st.builds(
    lambda producer, clock, flags: encode(Stamp(producer | MULTICAST, clock, flags)),
    st.integers(0, (1 << 48) - 1),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 1023).filter(lambda flags: flags & 3 != 3),
)
SHAPED = st.from_regex(
    r"[0-9a-fA-Fg]{8}-[0-9a-f]{4}-[0-2][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-fA-F]{12}", fullmatch=True
)
SPOILT = st.builds(
    lambda text, place, other: text[:place] + other + text[place + 1 :],
    GOOD,
    st.integers(0, 36),
    st.sampled_from(["", "-", "0", "g", " ", "\n", "é", "€", "\uff10", "\x00", "--"]),
)
ANY = st.one_of(GOOD, SHAPED, SPOILT, GOOD.map(str.upper), st.text(max_size=40), st.none())


def decoded(text: str | None) -> tuple[int, int, int] | None:
    try:
        stamp = decode(text)
    except BadInput:
        return None
    return stamp.producer, stamp.clock, stamp.kind


def parsed(texts: pa.Array) -> list[tuple[int, int, int] | None]:
    found = Stamps.parse(texts)
    assert len(found.producer) == len(found.clock) == len(found.flag) == len(found.bad) == len(texts)
    rows = zip(found.producer, found.clock, found.flag, found.bad, strict=True)
    return [None if bad else (int(producer), int(clock), int(flag)) for producer, clock, flag, bad in rows]


@given(st.lists(ANY, max_size=8))
@example([])
@example([None])
@example(["", None])
@example(["0" * 36])
@example(["é" * 18, "€" * 12, "é" * 36])
@example(["-" * 36])
@example([encode(Stamp(MULTICAST, (1 << 64) - 1, 2)), None])
def test_columns_say_the_same_as_single_uuids(texts: list[str | None]) -> None:
    assert parsed(pa.array(texts, pa.string())) == list(map(decoded, texts))


@given(st.lists(GOOD, min_size=1, max_size=20))
def test_good_uuids_are_all_good(texts: list[str]) -> None:
    assert not Stamps.parse(pa.array(texts)).bad.any()


@given(st.lists(ANY, max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_a_part_of_an_array_says_the_same(texts: list[str | None], begin: int, length: int) -> None:
    part = pa.array(texts, pa.string()).slice(min(begin, len(texts)), length)
    assert parsed(part) == [decoded(text) for text in part.to_pylist()]


def test_no_texts_are_no_stamps() -> None:
    assert parsed(pa.array([], pa.string())) == []
    assert parsed(pa.array(["x"]).slice(1)) == []
    assert parsed(pa.nulls(3, pa.string())) == [None] * 3
