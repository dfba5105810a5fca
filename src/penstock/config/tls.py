"""The certificates of this process: who it is towards others, and whom it believes.

The files are read again for every use, so that certificates can be replaced while processes run: whoever
opens a connection asks for new credentials and does not keep old ones.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from penstock.core.names import is_name
from penstock.core.packages import need
from penstock.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    import grpc
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

_log = logging.getLogger(__name__)
# How often files that are being replaced are read again before they are taken for broken.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: the CAs that sign members, this process's certificate, and its key.

    The CA file may hold several certificates, and each is trusted: that is how one CA replaces another.
    """

    ca: str
    cert: str
    key: str

    def credentials(self) -> tuple[bytes, bytes, bytes]:
        """The CAs, the certificate with its chain, and the private key, as PEM.

        Raises `ConfigError` unless the key is kept private, belongs to the certificate, and the certificate
        is signed by one of the CAs and in force.
        """
        ca, cert, key = self._read()
        self._check(ca, cert, key)
        return ca, cert, key

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """What a gRPC client shows and believes. A channel keeps it, also when it connects again."""
        import grpc

        ca, cert, key = self.credentials()
        return grpc.ssl_channel_credentials(ca, key, cert)

    def server_credentials(self) -> grpc.ServerCredentials:
        """What a gRPC server shows and believes; a client without a certificate is refused.

        Files that were replaced are used for each connection that comes after. Should they be wrong, the
        server goes on with the last that were right.
        """
        import grpc

        first = self._server_configuration()
        fetch = _or_last(first, self._server_configuration)
        return grpc.dynamic_ssl_server_credentials(first, fetch, require_client_authentication=True)

    def client_context(self) -> ssl.SSLContext:
        """What the calling side of a socket shows and believes; it checks the name of the server too."""
        import ssl

        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def server_context(self) -> ssl.SSLContext:
        """What the listening side of a socket shows and believes; it wants a certificate of every client."""
        import ssl

        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        # Whoever comes back with a ticket is not asked for a certificate again, expired or not.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        return context

    def _read(self) -> tuple[bytes, bytes, bytes]:
        for _ in range(_TRIES):
            cert = read(_label("cert", self.cert), self.cert, _ISSUE)
            key = read_private(_label("key", self.key), self.key, _ISSUE)
            ca = read(_label("ca", self.ca), self.ca, _INIT)
            # The same certificate before and after: nobody replaced it while the others were read.
            if read(_label("cert", self.cert), self.cert, _ISSUE) == cert:
                break
        return ca, cert, key

    def _check(self, ca: bytes, cert: bytes, key: bytes) -> None:
        trusted = certificates(_label("ca", self.ca), ca, _INIT)
        own, *chain = certificates(_label("cert", self.cert), cert, _ISSUE)
        if private_key(_label("key", self.key), key, _ISSUE).public_key() != own.public_key():
            raise ConfigError(
                f"{_label('key', self.key)} is not the key of {_label('cert', self.cert)}",
                hint=f"name two files that were issued together; {_rotate(own)} makes such a pair",
            )
        check_dates(_label("cert", self.cert), own, _rotate(own))
        signers = signers_of(own, chain, trusted)
        if not signers:
            raise ConfigError(
                f"{_label('cert', self.cert)} is not signed by a CA in {_label('ca', self.ca)}",
                hint=f"name the ca.pem of the CA that issued it, or issue it again with {_rotate(own)}",
            )
        for signer in signers:
            label = f"the CA {common_name(signer)} of {_label('cert', self.cert)}"
            check_dates(label, signer, "`penstock certs rotate --ca`, then rotate every node")

    def _server_configuration(self) -> grpc.ServerCertificateConfiguration:
        import grpc

        ca, cert, key = self.credentials()
        return grpc.ssl_server_certificate_configuration([(key, cert)], ca)

    def _context(self, protocol: int) -> ssl.SSLContext:
        import ssl

        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        ca, _, _ = self.credentials()
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
        self._load_pair(context)
        return context

    def _load_pair(self, context: ssl.SSLContext) -> None:
        # The standard library takes paths only, and may see one file before a replacement and one after it.
        for _ in range(_TRIES):
            try:
                context.load_cert_chain(self.cert, self.key)
                return
            except OSError as error:
                failure = error
        raise ConfigError(f"{_label('cert', self.cert)} cannot be used: {failure}") from failure


def read(label: str, path: str | Path, hint: str) -> bytes:
    """The bytes of a file; `ConfigError` if it cannot be read, with what to do if it is not there."""
    return _contents(label, path, hint)[0]


def read_private(label: str, path: str | Path, hint: str) -> bytes:
    """The bytes of a file that must be closed to everybody but its owner."""
    data, mode = _contents(label, path, hint)
    if mode & 0o077:
        raise ConfigError(
            f"{label} is a private key, and others may use it (mode {mode & 0o777:04o})",
            hint=f"chmod 600 {shlex.quote(str(path))}",
        )
    return data


def certificates(label: str, pem: bytes, hint: str) -> list[Certificate]:
    """The certificates in a PEM file, at least one."""
    need("cluster", "a certificate", "cryptography")
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ConfigError(f"{label} holds no PEM certificate", hint=hint) from None


def private_key(label: str, pem: bytes, hint: str) -> PrivateKeyTypes:
    """The private key in a PEM file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, password=None)
    except TypeError:
        raise ConfigError(
            f"{label} is encrypted, and nobody is there to type its password",
            hint="decrypt it with `openssl pkey -in ENCRYPTED -out KEY`, and chmod 600 KEY",
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{label} holds no PEM private key", hint=hint) from None


def check_dates(label: str, certificate: Certificate, hint: str, now: datetime | None = None) -> None:
    """Raise `ConfigError` unless the certificate is in force; ``hint`` is for one that has expired."""
    now = now or datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now >= end:
        raise ConfigError(f"{label} expired on {end:%Y-%m-%d %H:%M} UTC", hint=hint)
    if now < begin:
        raise ConfigError(
            f"{label} is not valid before {begin:%Y-%m-%d %H:%M} UTC, and here it is {now:%Y-%m-%d %H:%M}",
            hint="set the clock of this machine, or of the one that issued it",
        )


def signer_of(certificate: Certificate, candidates: Sequence[Certificate]) -> Certificate | None:
    """The candidate whose key signed the certificate."""
    return next((c for c in candidates if _signed(certificate, c)), None)


def signers_of(
    own: Certificate, chain: Sequence[Certificate], trusted: Sequence[Certificate]
) -> list[Certificate]:
    """The CAs from the one that signed ``own`` up to a trusted one; empty if none is trusted.

    Whoever has a certificate can sign others with its key: in between, only what may sign counts.
    """
    path = [own]
    while True:
        below = len(path) - 1
        anchors = [c for c in trusted if c == path[-1] or _may_sign(c, below, anchor=True)]
        if (signer := signer_of(path[-1], anchors)) is not None:
            return [*path[1:], signer]
        between = signer_of(path[-1], [c for c in chain if c not in path and _may_sign(c, below)])
        if between is None:
            return []
        path.append(between)


def shows_clients(certificate: Certificate) -> bool:
    """Whether the certificate may be shown by a client: those that do not say may."""
    from cryptography.x509 import ExtendedKeyUsage, ExtensionNotFound
    from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

    try:
        usages = certificate.extensions.get_extension_for_class(ExtendedKeyUsage).value
    except ExtensionNotFound:
        return True
    return Usage.CLIENT_AUTH in usages or Usage.ANY_EXTENDED_KEY_USAGE in usages


def common_name(certificate: Certificate) -> str:
    """Whom a certificate is for; empty if it does not say."""
    from cryptography.x509.oid import NameOID

    return next((str(a.value) for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


_INIT = "make a CA with `penstock certs init`, or name the CA that your certificates are from"
_ISSUE = "make a certificate with `penstock certs issue NODE`, or name one that exists"


def _label(name: str, path: str) -> str:
    return f"tls.{name} = {path}"


def _rotate(certificate: Certificate) -> str:
    name = common_name(certificate)
    return f"`penstock certs rotate {name if is_name(name) else 'NODE'}`"


def _contents(label: str, path: str | Path, hint: str) -> tuple[bytes, int]:
    try:
        with _open(path) as file:
            return file.read(), os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        raise ConfigError(f"{label}: there is no such file", hint=hint) from None
    except OSError as error:
        raise ConfigError(
            f"{label} cannot be read: {error.strerror}", hint="see that it is a file of yours"
        ) from None


def _open(path: str | Path) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        # The folder behind a link may be replaced and removed just when we walk through it.
        return Path(path).open("rb")


def _may_sign(certificate: Certificate, below: int, *, anchor: bool = False) -> bool:
    """Whether it is a CA's that allows so many CAs below it. Old anchors do not say that they are one."""
    from cryptography.x509 import BasicConstraints, ExtensionNotFound, KeyUsage

    try:
        extensions = certificate.extensions
        limits = extensions.get_extension_for_class(BasicConstraints).value
    except ExtensionNotFound:
        return anchor
    except ValueError:
        return False
    try:
        signs = extensions.get_extension_for_class(KeyUsage).value.key_cert_sign
    except ExtensionNotFound:
        signs = True
    return limits.ca and signs and (limits.path_length is None or below <= limits.path_length)


def _signed(certificate: Certificate, signer: Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _or_last(
    last: grpc.ServerCertificateConfiguration, fetch: Callable[[], grpc.ServerCertificateConfiguration]
) -> Callable[[], grpc.ServerCertificateConfiguration]:
    def fetched() -> grpc.ServerCertificateConfiguration:
        nonlocal last
        try:
            last = fetch()
        except ConfigError as error:
            _log.warning("certificates on disk are wrong, the last good ones stay in use: %s", error)
        return last

    return fetched
