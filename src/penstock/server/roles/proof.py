"""How a worker shows with a certificate that it belongs here: it signs what the coordinator made up for it.

The Flight port cannot tell whose certificate a connection showed, and certificates of our CA may also name
people who use SQL: so a worker sends its own, proves that it has the key, and must not be named like a user.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.config.tls import (
    Tls,
    certificates,
    check_dates,
    common_name,
    private_key,
    shows_clients,
    signers_of,
)
from penstock.errors import ConfigError, SqlError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_PURPOSE = "penstock worker joins"


def prove(tls: Tls, nonce: str, worker: str) -> dict[str, str]:
    """What a worker sends to show that it has the key of its certificate."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    _, cert, key = tls.credentials()
    signer, text = private_key("tls.key", key, "name a key of another kind"), _text(nonce, worker)
    if isinstance(signer, ec.EllipticCurvePrivateKey):
        signature = signer.sign(text, ec.ECDSA(SHA256()))
    elif isinstance(signer, rsa.RSAPrivateKey):
        signature = signer.sign(text, PKCS1v15(), SHA256())
    elif isinstance(signer, ed25519.Ed25519PrivateKey):
        signature = signer.sign(text)
    else:
        raise ConfigError(f"tls.key is a {type(signer).__name__}", hint="use a key of EC, RSA or Ed25519")
    return {
        "nonce": nonce,
        "certificate": cert.decode("ascii", "ignore"),
        "signature": base64.b64encode(signature).decode(),
    }


def check(tls: Tls, request: Mapping[str, Any], worker: str, is_user: Callable[[str], bool]) -> None:
    """Raise `SqlError` 28000 unless the request proves a certificate of our CA that is no user's."""
    ca, _, _ = tls.credentials()
    try:
        own, *chain = certificates("it", str(request["certificate"]).encode(), "")
        signature = base64.b64decode(str(request["signature"]), validate=True)
        trusted = certificates("the CA", ca, "")
        signers = signers_of(own, chain, trusted)
        check_dates("the worker's certificate", own, "`penstock certs rotate` it")
        for signer in signers:
            check_dates(f"its CA {common_name(signer)}", signer, "")
        client = shows_clients(own)
    except (KeyError, ConfigError, ValueError) as error:
        what = error.what if isinstance(error, ConfigError) else "it is not complete"
        raise _refused(f"its certificate cannot be used: {what}") from None
    if not signers:
        raise _refused("its certificate is not of this cluster's CA")
    if not client:
        raise _refused("its certificate is for servers alone")
    if not _is_signed(own, signature, _text(str(request["nonce"]), worker)):
        raise _refused("it does not have the key of its certificate")
    name = common_name(own)
    if not name or is_user(name):
        raise _refused(f"its certificate is that of the user {name!r}")


def _is_signed(own: Certificate, signature: bytes, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    key = own.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, text, ec.ECDSA(SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, text, PKCS1v15(), SHA256())
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, text)
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _text(nonce: str, worker: str) -> bytes:
    return f"{_PURPOSE}\n{nonce}\n{worker}".encode()


def _refused(why: str) -> SqlError:
    return SqlError(
        f"this worker is not let in: {why}",
        sqlstate="28000",
        hint="issue one for it with `penstock certs issue NODE`, or set cluster.join_token",
    )
