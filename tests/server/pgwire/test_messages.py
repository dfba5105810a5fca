"""Messages are read with suspicion, and written as clients expect them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SqlError
from penstock.server.pgwire.protocol import messages
from penstock.server.pgwire.protocol.frontend import Frontend
from penstock.server.pgwire.protocol.requests import (
    Bind,
    CancelRequest,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Flush,
    FunctionCall,
    GssEncRequest,
    Parse,
    Password,
    ProtocolError,
    Query,
    SslRequest,
    Startup,
    Sync,
    Terminate,
)
from penstock.types.postgres import Column


def packet(body: bytes) -> bytes:
    return struct.pack(">i", len(body) + 4) + body


def startup(minor: int = 0, **parameters: str) -> bytes:
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items())
    return packet(struct.pack(">hh", 3, minor) + pairs + b"\0")


def started(limit: int = 1 << 20) -> Frontend:
    frontend = Frontend(limit)
    frontend.feed(startup(user="ann"))
    assert frontend.read() == Startup(0, {"user": "ann"})
    frontend.authenticated()
    return frontend


BIND = (
    b"p\0s\0"
    + struct.pack(">hhhhi", 2, 0, 1, 2, -1)
    + struct.pack(">i", 2)
    + b"\0\xff"
    + struct.pack(">hh", 1, 1)
)
GOOD = [
    (b"Q" + packet("SELECT 'é'\0".encode()), Query("SELECT 'é'")),
    (b"P" + packet(b"s\0SELECT $1\0" + struct.pack(">hII", 2, 23, 0)), Parse("s", "SELECT $1", (23, 0))),
    (b"B" + packet(BIND), Bind("p", "s", (0, 1), (None, b"\0\xff"), (1,))),
    (b"D" + packet(b"Ss\0"), Describe("S", "s")),
    (b"C" + packet(b"Pp\0"), Close("P", "p")),
    (b"E" + packet(b"p\0" + struct.pack(">i", 5)), Execute("p", 5)),
    (b"E" + packet(b"\0" + struct.pack(">i", -1)), Execute("", 0)),
    (b"H" + packet(b""), Flush()),
    (b"S" + packet(b""), Sync()),
    (b"X" + packet(b""), Terminate()),
    (b"p" + packet(b"secret\0"), Password(b"secret\0")),
    (b"d" + packet(b"\x00\x01"), CopyData(b"\x00\x01")),
    (b"c" + packet(b""), CopyDone()),
    (b"f" + packet(b"no\0"), CopyFail("no")),
    (b"F" + packet(struct.pack(">I", 7)), FunctionCall(7)),
]


def test_messages_are_read_byte_by_byte_as_well_as_at_once() -> None:
    everything = b"".join(raw for raw, _ in GOOD)
    expected = [message for _, message in GOOD]
    at_once, slowly = started(), started()
    at_once.feed(everything)
    assert [at_once.read() for _ in expected] == expected
    assert at_once.read() is None
    assert at_once.buffered == 0
    found = []
    for byte in everything:
        slowly.feed(bytes([byte]))
        if (message := slowly.read()) is not None:
            found.append(message)
    assert found == expected


def test_openings() -> None:
    frontend = Frontend()
    frontend.feed(packet(struct.pack(">i", 80877103)) + packet(struct.pack(">i", 80877104)))
    assert frontend.read() == SslRequest()
    assert frontend.buffered == 8
    assert frontend.read() == GssEncRequest()
    frontend.feed(packet(struct.pack(">iI", 80877102, 7) + b"k" * 256))
    assert frontend.read() == CancelRequest(7, b"k" * 256)
    frontend.feed(startup(2, user="ann", options=r"-c a.b=1 --search-path=x\ y -cz=3"))
    opening = frontend.read()
    assert isinstance(opening, Startup)
    assert (opening.minor, opening.parameters["user"]) == (2, "ann")
    assert opening.options == {"a.b": "1", "search_path": "x y", "z": "3"}


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">i", -5) + bytes(20),
        struct.pack(">i", 4) + bytes(20),
        struct.pack(">i", 10_001) + bytes(20),
        packet(struct.pack(">hh", 2, 0) + b"\0"),
        packet(struct.pack(">hh", 3, 0) + b"user\0ann"),
        packet(struct.pack(">hh", 3, 0) + b"user\0\xff\0\0"),
        packet(struct.pack(">hh", 3, 0) + b"user\0ann\0\0more"),
        packet(struct.pack(">hh", 3, 0) + b"user\0ann\0options\0-x\0\0"),
        packet(struct.pack(">iI", 80877102, 7) + b"k" * 257),
        packet(struct.pack(">iI", 80877102, 7)),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_bad_opening_ends_the_connection(raw: bytes) -> None:
    frontend = Frontend()
    frontend.feed(raw)
    for _ in range(2):
        with pytest.raises(ProtocolError) as caught:
            frontend.read()
        assert caught.value.fatal
    assert frontend.buffered == 0


@pytest.mark.parametrize(
    "raw", [b"Q" + struct.pack(">i", -1), b"Q" + struct.pack(">i", 3), b"Q\x7f\xff\xff\xff", b"\0"]
)
def test_without_a_length_to_trust_nothing_can_follow(raw: bytes) -> None:
    frontend = started()
    frontend.feed(raw)
    with pytest.raises(ProtocolError) as caught:
        frontend.read()
    assert caught.value.fatal
    assert caught.value.sqlstate == "08P01"


@pytest.mark.parametrize(
    ("raw", "sqlstate"),
    [
        (b"Q" + packet(b"SELECT 1"), "08P01"),
        (b"Q" + packet(b"SELECT \xff\0"), "22021"),
        (b"Q" + packet(b"SELECT 1\0more"), "08P01"),
        (b"P" + packet(b"s\0x\0" + struct.pack(">h", 30_000)), "08P01"),
        (b"B" + packet(b"\0\0" + struct.pack(">hhi", 0, 1, 1000)), "08P01"),
        (b"B" + packet(b"\0\0" + struct.pack(">hhih", 0, 1, -2, 0)), "08P01"),
        (b"B" + packet(b"\0\0" + struct.pack(">hhhhh", 2, 0, 0, 0, 0)), "08P01"),
        (b"B" + packet(b"\0\0" + struct.pack(">hhhh", 1, 7, 0, 0)), "22023"),
        (b"D" + packet(b"Xs\0"), "08P01"),
        (b"D" + packet(b""), "08P01"),
        (b"E" + packet(b"p\0"), "08P01"),
        (b"S" + packet(b"x"), "08P01"),
    ],
)
def test_after_a_message_that_is_wrong_inside_the_next_is_read(raw: bytes, sqlstate: str) -> None:
    frontend = started()
    frontend.feed(raw + b"S" + packet(b""))
    with pytest.raises(ProtocolError) as caught:
        frontend.read()
    assert (caught.value.sqlstate, caught.value.fatal) == (sqlstate, False)
    assert frontend.read() == Sync()


def test_before_authentication_messages_are_short() -> None:
    frontend = Frontend()
    frontend.feed(startup(user="ann"))
    frontend.read()
    frontend.feed(b"p" + struct.pack(">i", 20_000))
    with pytest.raises(ProtocolError, match="invalid message length"):
        frontend.read()
    allowed = started(limit=100_000)
    allowed.feed(b"Q" + packet(b"x" * 50_000 + b"\0"))
    assert allowed.read() == Query("x" * 50_000)


def test_passwords_and_sasl() -> None:
    assert Password(b"secret\0").password() == "secret"
    first = b"SCRAM-SHA-256\0" + struct.pack(">i", 3) + b"n,,"
    assert Password(first).sasl_initial() == ("SCRAM-SHA-256", b"n,,")
    assert "secret" not in repr(Password(b"secret\0"))
    for bad in (b"secret", b"a\0b", b"M\0" + struct.pack(">i", 9)):
        with pytest.raises(ProtocolError):
            Password(bad).sasl_initial()
    with pytest.raises(ProtocolError):
        Password(b"a\0b").password()


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for frontend in (Frontend(), started()):
        frontend.feed(data)
        for _ in range(50):
            try:
                if frontend.read() is None:
                    break
            except ProtocolError as error:
                if error.fatal:
                    break


@given(st.sampled_from([raw for raw, _ in GOOD]), st.binary(max_size=60))
def test_no_body_raises_anything_else(raw: bytes, body: bytes) -> None:
    frontend = started()
    frontend.feed(raw[:1] + packet(body))
    fatal = False
    try:
        frontend.read()
    except ProtocolError as error:
        fatal = error.fatal
    assert not fatal


def test_errors_tell_all_that_is_known() -> None:
    error = SqlError('no "x"\0', sqlstate="42703", position=7, hint="try y", left="nothing")
    body = messages.error_response(error)[5:]
    fields = {part[:1].decode(): part[1:].decode() for part in body[:-2].split(b"\0")}
    assert fields == {
        "S": "ERROR",
        "V": "ERROR",
        "C": "42703",
        "M": 'no "x"',
        "D": "nothing",
        "H": "try y",
        "P": "8",
    }
    assert body.endswith(b"\0\0")
    notice = messages.notice_response("careful", severity="WARNING", sqlstate="01000")
    assert notice[:1] == b"N"
    assert b"SWARNING\0VWARNING\0C01000\0Mcareful\0\0" in notice


def test_the_shape_of_answers() -> None:
    assert messages.ready_for_query("I") == b"Z\0\0\0\x05I"
    assert messages.command_complete("SELECT 1") == b"C\0\0\0\x0dSELECT 1\0"
    assert messages.AUTHENTICATION_OK == b"R\0\0\0\x08\0\0\0\0"
    assert messages.authentication_sasl(["A", "B"]) == b"R" + packet(struct.pack(">i", 10) + b"A\0B\0\0")
    assert messages.backend_key_data(1, b"abcd") == b"K" + packet(struct.pack(">i", 1) + b"abcd")
    assert (
        messages.negotiate_protocol_version(0, ["_pq_.x"])[5:] == struct.pack(">ii", 3 << 16, 1) + b"_pq_.x\0"
    )
    assert messages.data_row([None, b"x"])[5:] == struct.pack(">hii", 2, -1, 1) + b"x"
    assert messages.copy_out_response(True, 2)[5:] == struct.pack(">bhhh", 1, 2, 1, 1)
    assert messages.notification_response(1, "c", "p")[5:] == struct.pack(">i", 1) + b"c\0p\0"
    assert messages.parameter_description([23, 25])[5:] == struct.pack(">hII", 2, 23, 25)


def test_row_descriptions() -> None:
    import pyarrow as pa

    columns = [Column("a", pa.int32(), 23), Column("b", pa.string(), 25)]
    body = messages.row_description(columns, [1])[5:]
    first = b"a\0" + struct.pack(">IhIhih", 0, 0, 23, 4, -1, 1)
    assert body == struct.pack(">h", 2) + first + b"b\0" + struct.pack(">IhIhih", 0, 0, 25, -1, -1, 1)
    with pytest.raises(ProtocolError):
        messages.row_description(columns, [0, 1, 0])
