"""What gRPC's and etcd's errors mean: try elsewhere, give up with advice, or tell the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import grpc

from penstock.errors import ConfigError, PenstockError, StorageFull, StoreUnavailable, UsageError


class Broken(Exception):
    """A node gave no answer, or stopped in the middle of one."""


class LeaseGone(Exception):
    """The lease is over."""


class Compacted(Exception):
    """History before ``revision`` is no longer kept."""

    def __init__(self, revision: int = 0) -> None:
        super().__init__(revision)
        self.revision = revision


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What an error with this code and these words in its text means: nothing that passes by itself."""

    code: grpc.StatusCode
    words: str
    kind: type[PenstockError]
    what: str
    hint: str
    left: str | None = None


_OLD_LOGIN = "revision of auth store is old"
_TOO_LARGE = "put data into storage, and its path into the store"
_DENIED = "etcd does not let this user read and write here"
_GRANT = "allow it with `etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/`"
# The first that fits counts.
_FINAL = (
    _Verdict(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "space exceeded",
        StorageFull,
        "the space quota of etcd is used up",
        "make room with `etcdctl compact REVISION`, then `etcdctl defrag` and `etcdctl alarm disarm`",
        "everything that was committed is kept",
    ),
    _Verdict(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max", UsageError, "too large for etcd", _TOO_LARGE
    ),
    _Verdict(grpc.StatusCode.INVALID_ARGUMENT, "is too large", UsageError, "too large for etcd", _TOO_LARGE),
    _Verdict(
        grpc.StatusCode.INVALID_ARGUMENT,
        "too many operations",
        UsageError,
        "etcd takes fewer operations at once than Penstock sends",
        "start etcd with --max-txn-ops=128, which is its default, or more",
    ),
    _Verdict(
        grpc.StatusCode.INVALID_ARGUMENT,
        "authentication failed",
        ConfigError,
        "etcd does not accept the user name or the password",
        "check them in the store's URL: etcd://user:password@host/prefix",
    ),
    _Verdict(
        grpc.StatusCode.INVALID_ARGUMENT,
        "user name is empty",
        ConfigError,
        "etcd wants a user name and a password",
        "put them into the store's URL: etcd://user:password@host/prefix",
    ),
    _Verdict(
        grpc.StatusCode.INVALID_ARGUMENT,
        "",
        UsageError,
        "etcd does not accept the request",
        "check that etcd is 3.4 or newer, and its own settings",
    ),
    _Verdict(grpc.StatusCode.PERMISSION_DENIED, "", ConfigError, _DENIED, _GRANT),
    _Verdict(
        grpc.StatusCode.OUT_OF_RANGE,
        "lease TTL",
        UsageError,
        "a session cannot live that long",
        "give fewer seconds",
    ),
    _Verdict(
        grpc.StatusCode.UNIMPLEMENTED,
        "",
        ConfigError,
        "what answers there is not etcd 3.4 or newer",
        "check the hosts and ports of the store's URL",
    ),
)
# Seen in gRPC's text only: it has no code for what a handshake failed of. The first that fits counts.
_REFUSED = "check that `cert` and `key` in [tls] are signed by the CA that etcd trusts (--trusted-ca-file)"
_HANDSHAKES = (
    ("TSI_DATA_CORRUPTED", "it refuses our certificate", _REFUSED),
    ("_ALERT_", "it refuses our certificate", _REFUSED),
    (
        "Hostname Verification",
        "its certificate is made out to another host",
        "name the host as in the certificate, or add the name to the certificate's alternative names",
    ),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS", "leave [tls] out, or start etcd with certificates"),
    (
        "TSI_PROTOCOL_FAILURE",
        "its certificate is not signed by the CA that we trust, or has expired",
        "check that `ca` in [tls] is the CA of etcd's certificate, and how long both are valid",
    ),
)


def code(error: Exception) -> grpc.StatusCode | None:
    """The status of an answer, or None when there was no answer."""
    return error.code() if isinstance(error, grpc.Call) else None


def text(error: Exception) -> str:
    """What went wrong, in gRPC's or etcd's words."""
    details = (error.details() or "no details") if isinstance(error, grpc.Call) else str(error)
    return details.removeprefix("failed to connect to all addresses; last error: ")[:300]


def is_stale_token(error: grpc.RpcError) -> bool:
    """Whether somebody who has a password should log in again."""
    signs = (_OLD_LOGIN, "user name is empty")
    return code(error) is grpc.StatusCode.UNAUTHENTICATED or any(sign in text(error) for sign in signs)


def is_without_passwords(error: grpc.RpcError) -> bool:
    """Whether etcd knows no users at all, so that there is nothing to log in to."""
    return "authentication is not enabled" in text(error)


def raise_if_final(error: Exception, endpoint: str) -> None:
    """Raise what trying again, here or at another node, cannot change."""
    status, words = code(error), text(error)
    if status is grpc.StatusCode.NOT_FOUND and "lease" in words:
        raise LeaseGone from error
    if status is grpc.StatusCode.OUT_OF_RANGE and "compacted" in words:
        raise Compacted from error
    for verdict in () if _OLD_LOGIN in words else _FINAL:
        if status is verdict.code and verdict.words in words:
            what = f"{verdict.what} ({endpoint}: {words})"
            raise verdict.kind(what, left=verdict.left, hint=verdict.hint) from error


def raise_canceled(reason: str, endpoint: str) -> NoReturn:
    """Raise what a watch means that a node ended, for this reason, before it began."""
    if "permission denied" in reason:
        raise ConfigError(f"{_DENIED} ({endpoint}: {reason})", hint=_GRANT)
    raise Broken(reason or "the watch was ended")


def raise_if_refused(faults: Mapping[str, Exception], endpoints: int) -> None:
    """Raise when every node was asked and each handshake failed of a certificate."""
    reasons = {endpoint: reason for endpoint, error in faults.items() if (reason := _handshake(error))}
    if len(reasons) == endpoints:
        whats = ", ".join(f"{endpoint}: {what}" for endpoint, (what, _) in reasons.items())
        hint = next(hint for _, hint in reasons.values())
        raise ConfigError(f"no trust between Penstock and etcd ({whats})", hint=hint)


def _handshake(error: Exception) -> tuple[str, str] | None:
    words = text(error)
    detail = words.rpartition("OPENSSL_internal:")[2].removesuffix(": OK")
    return next(((f"{what} ({detail})", hint) for sign, what, hint in _HANDSHAKES if sign in words), None)


def unavailable(faults: Mapping[str, Exception], patience: float) -> StoreUnavailable:
    """No node answered in time: who said what."""
    said = ", ".join(f"{endpoint}: {text(error)}" for endpoint, error in faults.items())
    return StoreUnavailable(
        f"etcd did not answer within {patience:g} s ({said})",
        hint="check that most of its nodes run and that both sides use TLS or neither: "
        f"etcdctl --endpoints={','.join(faults)} endpoint health",
    )
