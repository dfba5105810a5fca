"""Mutual TLS: what is checked before anything connects, and who is refused when it does."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.certs import Authority
from penstock.config import tls as tls_module
from penstock.config.tls import Tls
from penstock.errors import ConfigError

Credentials = tuple[bytes, bytes, bytes]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "certs")
    made.create()
    made.issue("server")
    made.issue("client")
    return made


@pytest.fixture
def stranger(tmp_path: Path) -> Tls:
    """A node of another CA that trusts ours."""
    other = Authority(tmp_path / "other")
    other.create()
    other.issue("client")
    return tls(other, "client")


def tls(authority: Authority, node: str) -> Tls:
    folder = authority.folder
    return Tls(str(folder / "ca.pem"), str(folder / f"{node}.pem"), str(folder / f"{node}.key"))


def at(authority: Authority, now: datetime) -> Authority:
    return replace(authority, clock=lambda: now)


def expired(authority: Authority) -> Tls:
    """A node whose certificate ran out, from the CA as it was when the certificate was made."""
    folder = authority.folder.parent / "early"
    early = at(Authority(folder), datetime.now(UTC) - timedelta(days=30))
    early.create()
    early.issue("server", days=365)
    early.issue("late", days=10)
    return tls(early, "late")


# --- what is checked ---


def test_credentials_are_the_three_files(authority: Authority) -> None:
    ours = tls(authority, "client")
    assert ours.credentials() == tuple(Path(path).read_bytes() for path in (ours.ca, ours.cert, ours.key))


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "there is no such file"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read: Is a directory"),
        (lambda path: path.write_text("garbage"), "holds no PEM"),
        (lambda path: path.write_text(""), "holds no PEM"),
    ],
)
def test_a_bad_file_is_named(
    authority: Authority, name: str, spoil: Callable[[Path], object], message: str
) -> None:
    ours = tls(authority, "client")
    path = Path(getattr(ours, name))
    spoil(path)
    for use in (ours.credentials, ours.channel_credentials, ours.server_credentials, ours.client_context):
        with pytest.raises(ConfigError) as caught:
            use()
        assert f"tls.{name} = {path}" in caught.value.what
        assert message in caught.value.what
        assert caught.value.hint


def test_files_that_were_mixed_up_are_named(authority: Authority) -> None:
    ours = tls(authority, "client")
    with pytest.raises(ConfigError, match=r"tls\.key = .*client\.pem"):
        replace(ours, key=ours.cert).credentials()
    with pytest.raises(ConfigError, match=r"tls\.cert = .*client\.key holds no PEM certificate"):
        replace(ours, cert=ours.key).credentials()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_that_others_can_use_is_refused(authority: Authority, mode: int) -> None:
    ours = tls(authority, "client")
    Path(ours.key).chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}") as caught:
        ours.credentials()
    assert caught.value.hint == f"chmod 600 {ours.key}"


def test_an_encrypted_key_does_not_ask_for_a_password(authority: Authority) -> None:
    ours = tls(authority, "client")
    key = serialization.load_pem_private_key(Path(ours.key).read_bytes(), None)
    Path(ours.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with pytest.raises(ConfigError, match="is encrypted"):
        ours.client_context()


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    ours = replace(tls(authority, "client"), key=tls(authority, "server").key)
    with pytest.raises(ConfigError, match=r"tls\.key = .*server\.key is not the key of tls\.cert") as caught:
        ours.credentials()
    assert "penstock certs rotate client" in (caught.value.hint or "")


def test_a_certificate_of_another_ca_is_refused(authority: Authority, stranger: Tls) -> None:
    mixed = replace(stranger, ca=tls(authority, "client").ca)
    with pytest.raises(ConfigError, match=r"tls\.cert = .* is not signed by a CA in tls\.ca = "):
        mixed.credentials()


def test_an_expired_certificate_says_since_when(authority: Authority) -> None:
    late = expired(authority)
    end = x509.load_pem_x509_certificate(Path(late.cert).read_bytes()).not_valid_after_utc
    with pytest.raises(ConfigError, match=f"expired on {end:%Y-%m-%d %H:%M} UTC") as caught:
        late.credentials()
    assert caught.value.hint == "`penstock certs rotate late`"


def test_an_expired_ca_is_told_from_an_expired_certificate(tmp_path: Path) -> None:
    early = at(Authority(tmp_path), datetime.now(UTC) - timedelta(days=30))
    early.create(days=10)
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    signing = serialization.load_pem_private_key((tmp_path / "ca.key").read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    ours = signed_by_hand(tmp_path, "longer", ca, signing)
    with pytest.raises(ConfigError, match=r"the CA penstock CA \w+ of tls\.cert = .* expired on") as caught:
        ours.credentials()
    assert "penstock certs rotate --ca" in (caught.value.hint or "")


def test_a_certificate_from_the_future_points_to_the_clock(authority: Authority) -> None:
    at(authority, datetime.now(UTC) + timedelta(days=2)).rotate("client")
    with pytest.raises(ConfigError, match="is not valid before") as caught:
        tls(authority, "client").credentials()
    assert "clock" in (caught.value.hint or "")


def signed_by_hand(
    folder: Path, name: str, ca: x509.Certificate, signing: ec.EllipticCurvePrivateKey, *, is_ca: bool = False
) -> Tls:
    """What another tool might make: a certificate without the extensions that ours have."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    ours = Tls(str(folder / "ca.pem"), str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    Path(ours.cert).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    Path(ours.key).touch(mode=0o600)
    Path(ours.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return ours


def test_a_chain_with_a_ca_in_between_is_followed(tmp_path: Path) -> None:
    signing = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])
    now = datetime.now(UTC)
    root = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(signing.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    (tmp_path / "ca.pem").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    between = signed_by_hand(tmp_path, "between", root, signing, is_ca=True)
    middle = x509.load_pem_x509_certificate(Path(between.cert).read_bytes())
    middle_key = serialization.load_pem_private_key(Path(between.key).read_bytes(), None)
    assert isinstance(middle_key, ec.EllipticCurvePrivateKey)
    leaf = signed_by_hand(tmp_path, "leaf", middle, middle_key)
    with pytest.raises(ConfigError, match="is not signed by a CA"):
        leaf.credentials()
    with Path(leaf.cert).open("ab") as file:
        file.write(Path(between.cert).read_bytes())
    leaf.credentials()
    assert talk(leaf.server_context(), leaf.client_context()) == b"HELLO"


# --- files that are replaced while they are read ---


def test_a_replacement_is_seen_at_once(authority: Authority) -> None:
    ours = tls(authority, "client")
    before = ours.credentials()
    authority.rotate("client")
    after = ours.credentials()
    assert after[0] == before[0]
    assert after[1] != before[1] and after[2] != before[2]


def test_a_replacement_between_two_reads_gives_no_mixed_pair(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, read = tls(authority, "client"), tls_module.read_private
    waiting = [lambda: authority.rotate("client"), lambda: authority.rotate("client")]

    def interrupted(label: str, path: str | Path, hint: str) -> bytes:
        if waiting and path == ours.key:
            waiting.pop()()
        return read(label, path, hint)

    monkeypatch.setattr(tls_module, "read_private", interrupted)
    ours.credentials()
    assert not waiting


def test_contexts_and_credentials_hold_while_certificates_are_replaced(authority: Authority) -> None:
    ours, over = tls(authority, "client"), threading.Event()

    def rotate() -> None:
        for _ in range(40):
            authority.rotate("client")
        over.set()

    thread = threading.Thread(target=rotate)
    thread.start()
    count = 0
    while not over.is_set():
        ours.credentials()
        ours.client_context()
        count += 1
    thread.join()
    assert count


# --- sockets ---


def talk(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> bytes | str:
    """What a server on the loopback answers, or who of both refused the other and why."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as other:
        listener.settimeout(10)
        served = other.submit(_serve, listener, server)
        try:
            raw = socket.create_connection(listener.getsockname(), 10)
            with raw, client.wrap_socket(raw, server_hostname=name) as link:
                link.sendall(b"hello")
                answer = link.recv(100)
        except ssl.SSLCertVerificationError as error:
            return f"client: {error.verify_message}"
        except OSError:
            answer = b""
        refusal = served.result()
    assert bool(answer) is (refusal is None), "who is refused gets no answer"
    return answer or f"server: {refusal}"


def _serve(listener: socket.socket, context: ssl.SSLContext) -> str | None:
    raw, _ = listener.accept()
    raw.settimeout(10)
    try:
        with raw, context.wrap_socket(raw, server_side=True) as link:
            link.sendall(link.recv(100).upper())
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except OSError as error:
        return str(error)
    return None


def raw_context(ca: str, shown: Tls | None) -> ssl.SSLContext:
    """A client that checks nothing of its own, as another program might."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    if shown:
        context.load_cert_chain(shown.cert, shown.key)
    return context


def test_two_nodes_of_a_ca_talk(authority: Authority) -> None:
    server, client = tls(authority, "server").server_context(), tls(authority, "client").client_context()
    for context in (server, client):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert client.check_hostname
    assert talk(server, client) == b"HELLO"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_certificate_is_refused(authority: Authority, version: ssl.TLSVersion) -> None:
    ours = tls(authority, "server")
    client = raw_context(ours.ca, None)
    client.maximum_version = version
    assert "peer did not return a certificate" in str(talk(ours.server_context(), client))


def test_a_client_of_another_ca_is_refused(authority: Authority, stranger: Tls) -> None:
    ours = tls(authority, "server")
    assert str(talk(ours.server_context(), raw_context(ours.ca, stranger))).startswith("server: self")


def test_a_server_of_another_ca_is_refused(authority: Authority, stranger: Tls) -> None:
    ours = tls(authority, "client")
    assert str(talk(stranger.server_context(), ours.client_context())).startswith("client: self")


def test_a_client_whose_certificate_expired_is_refused(authority: Authority) -> None:
    late = expired(authority)
    server = replace(
        late, cert=late.cert.replace("late", "server"), key=late.key.replace("late", "server")
    ).server_context()
    assert talk(server, raw_context(late.ca, late)) == "server: certificate has expired"


def test_a_server_under_another_name_is_refused(authority: Authority) -> None:
    server, client = tls(authority, "server").server_context(), tls(authority, "client").client_context()
    assert talk(server, client, "server") == b"HELLO"
    assert str(talk(server, client, "elsewhere")).startswith("client: Hostname mismatch")


def test_the_ca_is_replaced_step_by_step(authority: Authority, tmp_path: Path) -> None:
    server, client = tls(authority, "server"), tls(authority, "client")
    kept = keep(client, tmp_path / "kept")
    authority.rotate_ca()
    assert talk(server.server_context(), client.client_context()) == b"HELLO"
    authority.rotate("server")
    authority.rotate("client")
    assert talk(server.server_context(), client.client_context()) == b"HELLO"
    # Until the end, a process that still has its old certificate takes part.
    assert talk(server.server_context(), raw_context(server.ca, kept)) == b"HELLO"
    authority.finish()
    assert talk(server.server_context(), client.client_context()) == b"HELLO"
    assert str(talk(server.server_context(), raw_context(server.ca, kept))).startswith("server: self")


def keep(of: Tls, folder: Path) -> Tls:
    """Copies that nobody replaces."""
    folder.mkdir()
    for name in ("ca", "cert", "key"):
        copy = folder / name
        copy.touch(mode=0o600)
        copy.write_bytes(Path(getattr(of, name)).read_bytes())
    return Tls(str(folder / "ca"), str(folder / "cert"), str(folder / "key"))


# --- gRPC ---


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


@contextmanager
def serving(ours: Tls) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Echo()])
    port = server.add_secure_port("127.0.0.1:0", ours.server_credentials())
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait(10)


def call(port: int, credentials: grpc.ChannelCredentials) -> bytes | grpc.StatusCode:
    """What the server answers on a connection of its own, or how it is refused."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        echo: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/penstock.Test/Echo")
        try:
            return bytes(echo(b"hello", timeout=10))
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code


def raw_credentials(ca: str, shown: Tls | None) -> grpc.ChannelCredentials:
    root = Path(ca).read_bytes()
    if shown is None:
        return grpc.ssl_channel_credentials(root)
    return grpc.ssl_channel_credentials(root, Path(shown.key).read_bytes(), Path(shown.cert).read_bytes())


REFUSED = grpc.StatusCode.UNAVAILABLE


def test_grpc_wants_a_certificate_of_the_same_ca(authority: Authority, stranger: Tls) -> None:
    ours = tls(authority, "server")
    with serving(ours) as port:
        assert call(port, tls(authority, "client").channel_credentials()) == b"hello"
        assert call(port, raw_credentials(ours.ca, None)) is REFUSED
        assert call(port, raw_credentials(ours.ca, stranger)) is REFUSED
        assert call(port, raw_credentials(stranger.ca, tls(authority, "client"))) is REFUSED
        assert call(port, tls(authority, "client").channel_credentials()) == b"hello"


def test_grpc_refuses_an_expired_certificate(authority: Authority) -> None:
    late = expired(authority)
    ours = replace(late, cert=late.cert.replace("late", "server"), key=late.key.replace("late", "server"))
    with serving(ours) as port:
        assert call(port, ours.channel_credentials()) == b"hello"
        assert call(port, raw_credentials(late.ca, late)) is REFUSED


def test_a_grpc_server_follows_replacements_while_it_runs(authority: Authority, tmp_path: Path) -> None:
    ours, client = tls(authority, "server"), tls(authority, "client")
    kept = keep(client, tmp_path / "kept")
    with serving(ours) as port:
        authority.rotate_ca()
        assert call(port, client.channel_credentials()) == b"hello"
        authority.rotate("client")
        assert call(port, client.channel_credentials()) == b"hello"
        authority.rotate("server")
        assert call(port, client.channel_credentials()) == b"hello"
        assert call(port, raw_credentials(ours.ca, kept)) == b"hello"
        # One that knows only the old CA no longer believes the server's new certificate.
        assert call(port, kept.channel_credentials()) is REFUSED
        authority.finish()
        assert call(port, client.channel_credentials()) == b"hello"
        assert call(port, raw_credentials(ours.ca, kept)) is REFUSED


def test_a_grpc_server_goes_on_with_what_was_right(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, client = keep(tls(authority, "server"), tmp_path / "server"), tls(authority, "client")
    with serving(ours) as port:
        Path(ours.cert).write_text("garbage")
        with caplog.at_level(logging.WARNING, "penstock"):
            assert call(port, client.channel_credentials()) == b"hello"
        assert "the last good ones stay in use" in caplog.text


def test_importing_it_is_cheap() -> None:
    heavy = "{'grpc', 'cryptography', 'ssl'}"
    program = f"import sys, penstock.config.tls; assert not {heavy} & set(sys.modules), set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
