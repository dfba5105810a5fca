"""A thin client of etcd: several endpoints, a short deadline for each try, and logging in.

Whatever one node cannot answer is asked of the next. A call gives up after some seconds, at once
where trying again cannot help.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from penstock.config.tls import Tls
from penstock.errors import UsageError
from penstock.store.etcd import errors
from penstock.store.etcd.channel import AUTHENTICATE, RANGE, Answer, EtcdNode, Metadata, Method, Request
from penstock.store.etcd.url import EtcdAddress
from penstock.store.etcd.wire_pb2 import AuthenticateRequest, RangeRequest

TRY = 1.0
"""How many seconds one node has for an answer."""

PATIENCE = 6.0
"""After how many seconds of asking around a call gives up."""

_PAUSE = 0.1
# With this, a node that knows no leader says so at once instead of waiting for one.
_WITH_LEADER = ("hasleader", "true")

Result = TypeVar("Result")


class EtcdClient:
    """Asks the nodes of one cluster. Safe for use by many threads."""

    def __init__(self, address: EtcdAddress, tls: Tls | None) -> None:
        if tls is not None:
            # Nodes read the files when they connect. A wrong path is better known now.
            tls.credentials()
        self._address = address
        self._tls = tls
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._nodes = [EtcdNode(endpoint, self._tls) for endpoint in self._address.endpoints]
        self._first = 0
        self._logging_in = threading.Lock()
        # None before the first login; empty where etcd knows no users.
        self._token: str | None = None

    def call(self, method: Method[Request, Answer], request: Request) -> Answer:
        """The answer of the first node that gives one. The request may be carried out more than once."""
        return self.ask(method, request)[0]

    def ask(self, method: Method[Request, Answer], request: Request) -> tuple[Answer, bool]:
        """The same, and whether an earlier try, whose answer was lost, may have been carried out."""
        return self.attempt(lambda node: self.call_at(node, method, request))

    def attempt(self, action: Callable[[EtcdNode], Result]) -> tuple[Result, bool]:
        """Do something at one node after the other until it succeeds; and whether it failed before.

        The action fails with `grpc.RpcError` or `Broken`.
        """
        deadline = time.monotonic() + PATIENCE
        faults: dict[str, Exception] = {}
        for node in self._rotation():
            self._check_open()
            try:
                result = action(node)
            except (grpc.RpcError, errors.Broken) as error:
                faults[node.endpoint] = error
                self._check_open()
                errors.raise_if_final(error, node.endpoint)
                if not node.renew():
                    errors.raise_if_refused(faults, len(self._nodes))
                if time.monotonic() >= deadline:
                    raise errors.unavailable(faults, PATIENCE) from error
            except ValueError:
                # So gRPC calls it when another thread has closed the channel.
                self._check_open()
                raise
            else:
                self._first = self._nodes.index(node)
                return result, bool(faults)
        raise AssertionError("the rotation never ends")

    def call_at(self, node: EtcdNode, method: Method[Request, Answer], request: Request) -> Answer:
        """One try at one node, after logging in there if need be. Raises `grpc.RpcError`."""
        if self._address.user is None:
            return node.call(method, request, TRY, self.metadata())
        token = self._log_in(node, stale=None)
        try:
            return node.call(method, request, TRY, self.metadata())
        except grpc.RpcError as error:
            if not errors.is_stale_token(error):
                raise
        self._log_in(node, stale=token)
        return node.call(method, request, TRY, self.metadata())

    def answers(self, node: EtcdNode) -> bool:
        """Whether this node, together with most others, still answers."""
        try:
            self.call_at(node, RANGE, RangeRequest(key=b"\0", keys_only=True))
        except grpc.RpcError as error:
            return errors.code(error) not in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            )
        except ValueError:
            return False
        return True

    def leave(self, node: EtcdNode) -> None:
        """Begin the next calls at another node than this one."""
        if self._nodes[self._first] is node:
            self._first = (self._first + 1) % len(self._nodes)

    def metadata(self) -> Metadata:
        """What goes with every request."""
        return (_WITH_LEADER, ("token", self._token)) if self._token else (_WITH_LEADER,)

    def close(self) -> None:
        self._closed = True
        for node in self._nodes:
            node.close()

    def after_fork(self) -> None:
        """In a forked child: start anew, since neither locks nor connections survive a fork."""
        for node in self._nodes:
            node.abandon()
        self._reset()

    def _rotation(self) -> Iterator[EtcdNode]:
        """All nodes, over and over, from the one that answered last; with a pause after each round."""
        nodes, first = self._nodes, self._first
        order = nodes[first:] + nodes[:first]
        for turn in itertools.count():
            if turn:
                time.sleep(_PAUSE)
            yield from order

    def _log_in(self, node: EtcdNode, stale: str | None) -> str | None:
        """A token other than ``stale``."""
        with self._logging_in:
            if self._token == stale:
                self._token = self._authenticate(node)
            return self._token

    def _authenticate(self, node: EtcdNode) -> str:
        request = AuthenticateRequest(name=self._address.user or "", password=self._address.password or "")
        try:
            return node.call(AUTHENTICATE, request, TRY, (_WITH_LEADER,)).token
        except grpc.RpcError as error:
            if errors.is_without_passwords(error):
                return ""
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"{self._address.url} was closed", hint="open the store again")
