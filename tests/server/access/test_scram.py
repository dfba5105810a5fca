from __future__ import annotations

import base64
import hashlib
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding

from penstock.errors import SqlError
from penstock.server.access.passwords import Verifier, generate, mock, prepared
from penstock.server.access.scram import PLAIN, PLUS, ScramServer, end_point
from penstock.server.access.users import ACCOUNT, Account
from penstock.server.base import User
from tests.server.access.scram_client import ScramClient

ANNA = User("anna")
VERIFIER = Verifier.of("right horse", iterations=4096)


def server(verifier: Verifier = VERIFIER, binding: bytes | None = None) -> ScramServer:
    return ScramServer("anna", verifier, lambda right: ANNA if right else None, binding=binding)


def log_in(client: ScramClient, to: ScramServer, mechanism: str = PLAIN) -> bool:
    return client.believes(to.final(client.final(to.first(client.first(), mechanism))))


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = Verifier.of("pencil", salt=salt, iterations=4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    login = ScramServer("user", verifier, lambda right: ANNA if right else None, nonce=nonce)
    answer = login.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert answer == f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    done = login.final(f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p={proof}".encode())
    assert done == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert login.user == ANNA


def test_right_and_wrong_passwords() -> None:
    assert log_in(ScramClient("right horse"), server())
    login = server()
    with pytest.raises(SqlError, match='password authentication failed for user "anna"') as caught:
        log_in(ScramClient("wrong horse"), login)
    assert caught.value.sqlstate == "28P01"
    with pytest.raises(SqlError):
        _ = login.user


def test_binding_to_the_channel() -> None:
    bound = hashlib.sha256(b"certificate").digest()
    flag = "p=tls-server-end-point"
    assert server(binding=bound).mechanisms(tls=True) == (PLUS, PLAIN)
    assert server(binding=bound).mechanisms(tls=False) == (PLAIN,)
    assert server().mechanisms(tls=True) == (PLAIN,)
    assert log_in(ScramClient("right horse", flag=flag, bound=bound), server(binding=bound), PLUS)
    with pytest.raises(SqlError) as caught:
        log_in(ScramClient("right horse", flag=flag, bound=b"of another"), server(binding=bound), PLUS)
    assert caught.value.sqlstate == "28P01"
    # A client that cannot bind may come; one that was told we cannot was lied to.
    assert log_in(ScramClient("right horse"), server(binding=bound))
    with pytest.raises(SqlError, match="channel binding"):
        log_in(ScramClient("right horse", flag="y"), server(binding=bound))
    assert log_in(ScramClient("right horse", flag="y"), server())


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=x",
        b"n,,n=x,r=",
        b"n,,m=ext,n=x,r=abc",
        b"x,,n=x,r=abc",
        b"p=tls-unique,,n=x,r=abc",
        b"\xff\xfe,,n=,r=abc",
        b"n,,n=,r=" + b"a" * 5000,
        b"n,,n=,r=a\x00b",
    ],
)
def test_malformed_first_messages(first: bytes) -> None:
    with pytest.raises(SqlError) as caught:
        server().first(first)
    assert caught.value.sqlstate == "08P01"


def test_acting_as_another_is_refused() -> None:
    with pytest.raises(SqlError, match="not supported"):
        server().first(b"n,a=root,n=,r=abc")


def test_malformed_proofs_and_wrong_order() -> None:
    with pytest.raises(SqlError, match="before"):
        server().final(b"c=biws,r=abc,p=AAAA")
    with pytest.raises(SqlError, match="not offered"):
        server().first(b"n,,n=,r=abc", "PLAIN")
    for change in (
        lambda text: text.rpartition(",")[0],
        lambda text: text[:-8] + "!!!!!!!!",
        lambda text: text.partition(",p=")[0] + ",p=AAAA",
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace("r=abc", "r=abd"),
        lambda text: "",
    ):
        login, client = server(), ScramClient("right horse")
        text = client.final(login.first(client.first())).decode()
        with pytest.raises(SqlError):
            login.final(change(text).encode())
    login, client = server(), ScramClient("right horse")
    proof = client.final(login.first(client.first()))
    login.final(proof)
    with pytest.raises(SqlError):
        login.final(proof)


def test_random_bytes_only_ever_make_sql_errors() -> None:
    generator = random.Random(7)
    alphabet = b"nyp=,rcs\x00\xff" + bytes(range(48, 60))
    for _ in range(2000):
        login = server()
        data = bytes(generator.choices(alphabet, k=generator.randrange(30)))
        with suppress(SqlError):
            login.first(data)
        with pytest.raises(SqlError):
            login.final(data)


def test_passwords_are_prepared_as_clients_do() -> None:
    assert prepared("plain") == b"plain"
    assert prepared("I\u00adX") == b"IX"
    assert prepared("\u00aa") == b"a"
    assert prepared("\u2168") == b"IX"
    assert prepared("a\u00a0b") == b"a b"
    # Not allowed by SASLprep: taken as they are.
    assert prepared("é\u0007") == "é\u0007".encode()
    assert prepared("\u0627\u0031") == "\u0627\u0031".encode()
    assert prepared("\u00ad") == "\u00ad".encode()
    assert Verifier.of("Ⅸ", iterations=4096).matches("IX")


def test_an_unknown_user_is_asked_like_a_known_one() -> None:
    one, two = mock(b"secret", "nobody"), mock(b"secret", "nobody")
    assert one.salt == two.salt != mock(b"secret", "somebody").salt
    assert len(one.salt) == len(VERIFIER.salt)
    assert not one.matches("")
    assert len({generate() for _ in range(20)}) == 20


def test_what_is_kept_is_no_password() -> None:
    written = ACCOUNT.encode(Account("anna", VERIFIER))
    assert ACCOUNT.decode("k", written).verifier == VERIFIER
    assert "stored_key" not in repr(VERIFIER)
    assert "right horse" not in written.decode()


def test_the_hash_of_a_certificate_is_the_one_it_is_signed_with() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    now = datetime.now(UTC)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    for algorithm in (SHA256(), SHA384()):
        der = builder.sign(key, algorithm).public_bytes(Encoding.DER)
        assert end_point(der) == hashlib.new(algorithm.name, der).digest()
