"""Making keys and certificates, as values: nothing here touches a file or reads a clock."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from penstock.errors import UsageError

LOCAL = ("localhost", "127.0.0.1", "::1")
"""What every node is called on its own machine."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
# Clocks of machines differ a little: a certificate must not be too young for its first use.
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """PEM texts: certificates, of which the first belongs to the private key, and that key."""

    certificates: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Signer:
    """A CA at work."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)


def make_ca(name: str, days: int, now: datetime) -> Pair:
    """A new CA that trusts nobody but itself."""
    key, serial = ec.generate_private_key(ec.SECP256R1()), x509.random_serial_number()
    # Each CA has a subject of its own, so that an old and a new one can be told apart.
    subject = _subject(f"{name} CA {serial % 16**8:08x}", organization=name)
    builder = (
        _builder(subject, subject, key.public_key(), key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
    )
    return Pair(as_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def issue(signer: Signer, node: str, hosts: Sequence[str], days: int, now: datetime) -> Pair:
    """A new key and certificate for a node, followed by the CA's. It does not outlive its CA."""
    key, ca = ec.generate_private_key(ec.SECP256R1()), signer.certificate
    builder = (
        _builder(_subject(node), ca.subject, key.public_key(), signer.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - _SKEW, ca.not_valid_before_utc))
        .not_valid_after(min(now + timedelta(days=days), ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False)
    )
    return Pair(as_pem(builder.sign(signer.key, hashes.SHA256()), ca), _key_pem(key))


def hosts_for(node: str, given: Sequence[str]) -> tuple[str, ...]:
    """The names and addresses a node's certificate is good for: its own, those given, the local ones."""
    own = [node] if _is_host_name(node) or _address(node) else []
    return tuple(dict.fromkeys([*map(_host, [*own, *given]), *LOCAL]))


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses that a certificate is good for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def organization(certificate: x509.Certificate) -> str | None:
    """The name a CA was made with."""
    found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else None


def as_pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def _host(text: str) -> str:
    address = _address(text)
    if address is None and not _is_host_name(text):
        raise UsageError(
            f"{text!r} is neither a host name nor an IP address",
            left="nothing was written",
            hint="write --host db1.example.com or --host 10.0.0.7: no port, no URL, no wildcard",
        )
    return str(address) if address else text.lower()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        # A zone (fe80::1%eth0) means something on one machine only, and certificates cannot hold it.
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_host_name(text: str) -> bool:
    labels = text.split(".")
    # A last label of digits would be read as part of an address.
    return len(text) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdecimal()


def _general_name(host: str) -> x509.GeneralName:
    address = _address(host)
    return x509.IPAddress(address) if address else x509.DNSName(host)


def _subject(common_name: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    signing: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
