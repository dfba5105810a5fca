"""One node of etcd as a client sees it: a gRPC channel, made when it is first used."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from penstock.config.tls import Tls
from penstock.errors import ConfigError
from penstock.store.etcd import wire_pb2 as pb

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)
Metadata = tuple[tuple[str, str | bytes], ...]

_OPTIONS: Sequence[tuple[str, int]] = (
    # Connections are shared neither with other handles nor, which would be fatal, with a forked parent.
    ("grpc.use_local_subchannel_pool", 1),
    # Whether a request may be sent again is decided above, where it is known what was asked for.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 1000),
    # etcd hangs up on clients that ping more often than every 5 seconds, or without a request.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """A method of etcd's by its path on the wire."""

    path: str
    request: type[Request]
    answer: type[Answer]


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
PUT = Method("/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
# A stream in etcd's definition. One message each way looks the same on the wire.
LEASE_KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)


class AnswerStream(Protocol):
    """Answers as they come, until somebody cancels."""

    def __iter__(self) -> Iterator[pb.WatchResponse]: ...

    def cancel(self) -> object: ...


class EtcdNode:
    """The channel to one endpoint. Safe for use by many threads."""

    def __init__(self, endpoint: str, tls: Tls | None) -> None:
        self.endpoint = endpoint
        self._tls = tls
        self._pems: tuple[bytes, bytes, bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._channel: grpc.Channel | None = None
        self._callables: dict[str, Callable[..., Any]] = {}

    def call(
        self, method: Method[Request, Answer], request: Request, timeout: float, metadata: Metadata
    ) -> Answer:
        """One request and its answer. Raises `grpc.RpcError`, and `ValueError` when this was closed."""
        ready = self._callables.get(method.path)
        if ready is None:
            ready = self._callables[method.path] = self._open().unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
        answer: Answer = ready(request, timeout=timeout, metadata=metadata)
        return answer

    def stream(self, requests: Iterator[pb.WatchRequest], metadata: Metadata) -> AnswerStream:
        """Answers to a watch, which raise `grpc.RpcError` when it breaks."""
        opened: AnswerStream = self._open().stream_stream(
            WATCH.path,
            request_serializer=WATCH.request.SerializeToString,
            response_deserializer=WATCH.answer.FromString,
        )(requests, metadata=metadata)
        return opened

    def renew(self) -> bool:
        """Connect anew if the certificates on disk were replaced since; whether they were."""
        with self._lock:
            if self._tls is None or self._closed or self._current(self._tls) == self._pems:
                return False
            # Not closed: other threads may still wait for an answer there.
            self._channel = None
            self._callables = {}
            return True

    def _current(self, tls: Tls) -> tuple[bytes, bytes, bytes] | None:
        """The certificates on disk, or those in use where what is on disk is no good."""
        try:
            return tls.credentials()
        except ConfigError as error:
            _log.warning("the certificates in use are kept: %s", error.what)
            return self._pems

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._channel is not None:
                self._channel.close()

    def abandon(self) -> None:
        """In a forked child: forget the parent's channel without touching it."""
        if self._channel is not None:
            _abandoned.append(self._channel)

    def _open(self) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise ValueError("closed")
            if self._channel is None:
                self._pems = None if self._tls is None else self._tls.credentials()
                self._channel = _connect(self.endpoint, self._pems)
            return self._channel


def _connect(endpoint: str, pems: tuple[bytes, bytes, bytes] | None) -> grpc.Channel:
    if pems is None:
        return grpc.insecure_channel(endpoint, _OPTIONS)
    ca, cert, key = pems
    return grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(ca, key, cert), _OPTIONS)


# Closing a channel of the parent here could end its connections, too.
_abandoned: list[grpc.Channel] = []
