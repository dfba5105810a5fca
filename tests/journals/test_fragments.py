from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput, JournalGap
from penstock.journals.format.fragments import (
    Codec,
    Fragment,
    cover,
    head,
    is_of_journal,
    name_of,
    parse,
    plan,
    spool_begin,
    spool_name,
)

SHA = "0123456789abcdef0123456789abcdef01234567"


def fragment(begin: int, end: int, extension: str = ".raw", sha1: str = SHA) -> Fragment:
    return Fragment(begin, end, sha1, extension, f"j/{name_of(begin, end, sha1, extension)}")


def covered(*fragments: Fragment, offset: int = 0) -> list[tuple[int, int, int]]:
    return [(p.begin, p.end, p.fragment.begin) for p in cover(fragments, offset)]


@pytest.mark.parametrize(
    ("extension", "codec"),
    [(".raw", Codec.RAW), (".gz", Codec.GZIP), ("", Codec.GZIP), (".zst", Codec.ZSTD), (".gzod", Codec.GZIP)],
)
def test_names(extension: str, codec: Codec) -> None:
    name = f"00000000000000ff-7fffffffffffffff-{SHA}{extension}"
    found = parse(f"a/b/{name}")
    assert found == Fragment(255, (1 << 63) - 1, SHA, extension, f"a/b/{name}")
    assert found.codec is codec
    assert name_of(255, (1 << 63) - 1, SHA, extension) == name


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        ".DS_Store",
        spool_name(7),
        f".{0:016x}-{7:016x}.tmp",
        f".partial-{name_of(0, 1, SHA, '.gz')}",
        f"..{0:016x}.spool.Xa81kQ",
        "utc_date=2026-01-05_$folder$",
    ],
)
def test_files_that_are_harmless_in_the_folder_of_a_journal(name: str) -> None:
    assert parse(name, size=0) is None


@pytest.mark.parametrize("name", ["x", "README.md", "a-b-c", "notes.gz", "part-00000.raw", "_SUCCESS"])
def test_other_files_are_not_passed_over_in_the_folder_of_a_journal(name: str) -> None:
    assert not is_of_journal(name)
    with pytest.raises(BadInput, match="no fragment"):
        parse(f"j/{name}")


@pytest.mark.parametrize(
    "name",
    [
        name_of(5, 4, SHA, ".raw"),
        name_of(0, 1 << 63, SHA, ".raw"),
        name_of((1 << 64) - 2, (1 << 64) - 1, SHA, ".raw"),
        name_of(0, 4, SHA[1:], ".raw"),
        name_of(0, 4, SHA.upper(), ".raw"),
        name_of(0, 4, SHA, ".raw.bak"),
        f"{0:015x}-{4:016x}-{SHA}.raw",
        f"00000000000000XX-{4:016x}-{SHA}.raw",
        f"{0:016x}-00000000000000zz-{SHA}.raw",
        f"{0:016x}-{4:016x}-{'g' * 40}.raw",
        f"{0:016x}-{4:016x}.raw",
        f"{0:016x}_{4:016x}_{SHA}.zst",
        f"{0:016x}.zst",
        f"{name_of(0, 4, SHA, '.zst')} (1)",
        f"{name_of(0, 4, SHA, '.zst')}.6e4fAb12",
    ],
)
def test_a_name_that_is_almost_right_is_not_passed_over(name: str) -> None:
    assert is_of_journal(name)
    with pytest.raises(BadInput, match="like a fragment"):
        parse(f"j/{name}")


@pytest.mark.parametrize(
    "name", [".000000000000000X.spool", ".0.spool", f".{0:017x}.spool", f".{1 << 63:016x}.spool"]
)
def test_a_spool_whose_name_is_broken_is_not_passed_over(name: str) -> None:
    assert is_of_journal(name)
    with pytest.raises(BadInput, match="almost like a spool"):
        parse(f"j/{name}")


def test_an_unknown_extension_is_told_when_it_matters() -> None:
    found = parse(name_of(0, 4, SHA, ".sz"))
    assert found is not None
    with pytest.raises(BadInput, match=r"not known here \(\.sz\)"):
        _ = found.codec


def test_spools() -> None:
    assert spool_begin(spool_name(255)) == 255
    assert spool_begin(".00000000000000ff.spool.tmp") is None


def test_one_after_the_other() -> None:
    assert covered() == []
    assert covered(fragment(10, 20), fragment(0, 10)) == [(0, 10, 0), (10, 20, 10)]
    assert covered(fragment(10, 20), fragment(0, 10), offset=5) == [(5, 10, 0), (10, 20, 10)]
    assert covered(fragment(10, 20), fragment(0, 10), offset=10) == [(10, 20, 10)]
    assert covered(fragment(0, 10), offset=10) == covered(fragment(0, 10), offset=99) == []


def test_overlaps() -> None:
    # A longer one wins, from where it is needed on.
    assert covered(fragment(0, 10), fragment(0, 20)) == [(0, 20, 0)]
    assert covered(fragment(0, 10), fragment(5, 20)) == [(0, 10, 0), (10, 20, 5)]
    assert covered(fragment(0, 30), fragment(5, 20), fragment(30, 40)) == [(0, 30, 0), (30, 40, 30)]
    assert covered(fragment(0, 10), fragment(2, 12), fragment(4, 20), fragment(6, 15)) == [
        (0, 10, 0),
        (10, 20, 4),
    ]


def test_of_equal_ones_the_spool_comes_last_and_raw_first() -> None:
    spool = Fragment(0, 10, "", ".spool", "j/.0000000000000000.spool")
    assert cover([spool, fragment(0, 10, ".gz"), fragment(0, 10, ".raw")], 0)[0].fragment.extension == ".raw"
    assert cover([spool, fragment(0, 10, ".gz")], 0)[0].fragment.extension == ".gz"
    assert cover([Fragment(0, 12, "", ".spool", spool.path), fragment(0, 10, ".gz")], 0)[0].fragment.is_spool


def test_gaps_name_both_ends() -> None:
    apart = [fragment(0, 10), fragment(15, 20), fragment(30, 40)]
    assert covered(*apart) == [(0, 10, 0)]
    with pytest.raises(JournalGap, match="the bytes 10 to 15 are in no fragment") as caught:
        cover(apart, 10)
    assert (caught.value.begin, caught.value.end) == (10, 15)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.begin, again.end, str(again)) == (10, 15, str(caught.value))
    with pytest.raises(JournalGap, match="the bytes 12 to 15"):
        cover(apart, 12)
    with pytest.raises(JournalGap, match="the bytes 0 to 7"):
        cover([fragment(7, 9)], 0)
    assert [(gap.begin, gap.end) for gap in plan(apart, 0)[1]] == [(10, 15), (20, 30)]


def test_an_empty_fragment_says_where_the_head_is() -> None:
    empty = fragment(10, 10)
    assert covered(fragment(0, 10), empty) == [(0, 10, 0)]
    assert head([fragment(0, 10), fragment(25, 25)]) == 25
    assert head([]) is None
    with pytest.raises(JournalGap, match="the bytes 10 to 25"):
        cover([fragment(0, 10), fragment(25, 25)], 10)


RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda r: (r[0], r[0] + r[1])), max_size=12
)


@settings(deadline=None)
@given(RANGES, st.integers(0, 50))
def test_every_byte_is_in_a_piece_or_in_a_gap(ranges: list[tuple[int, int]], offset: int) -> None:
    pieces, gaps = plan([fragment(begin, end) for begin, end in ranges], offset)
    have = {byte for begin, end in ranges for byte in range(max(begin, offset), end)}
    got = [byte for piece in pieces for byte in range(piece.begin, piece.end)]
    missing = [byte for gap in gaps for byte in range(gap.begin, gap.end)]
    assert got == sorted(have)
    assert missing == [
        byte for byte in range(offset, max((e for _, e in ranges), default=0)) if byte not in have
    ]
    for piece in pieces:
        assert piece.fragment.begin <= piece.begin and piece.end == piece.fragment.end
