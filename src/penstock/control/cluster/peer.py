"""Instances asking each other directly: is it there, who is it, and whom does it believe to lead?

Nothing is decided by this; what is true stands in the store. It tells a member that is alive for the store
from one that others can also reach. With a ``[tls]`` section both sides show a certificate of the same CA,
and whoever has none is refused; without one only loopback addresses are served.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from penstock.control.cluster.rules.model import Member
from penstock.core.packages import need
from penstock.errors import PeerUnreachable, PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.config.tls import Tls
    from penstock.control.cluster.node import Node

ADDRESS = "peer"
"""The name under which a member shows the address that `ask` takes."""

_METHOD = "/penstock.Peer/Hello"
_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Hello:
    """What an instance says of itself."""

    member: str
    session: str
    version: str
    leader: str | None
    token: int
    leads: bool
    catalog: int


def introduce(node: Node) -> Hello:
    """What ``node`` says now, from what it last saw."""
    lease, member = node.control.lease, node.member
    return Hello(
        member=member.id,
        session=node.session or "",
        version=member.version,
        leader=lease.member if lease.owner else None,
        token=lease.token,
        leads=node.leadership is not None,
        catalog=member.catalog,
    )


class PeerServer:
    """Answers `ask` on ``host:port``; port 0 takes a free one. Certificates are read anew while it runs."""

    def __init__(self, address: str, answer: Callable[[], Hello], tls: Tls | None) -> None:
        need("cluster", "an instance that answers others")
        import grpc

        host, _ = split(address)
        if tls is None and not _is_loopback(host):
            raise UsageError(
                f"{address} can be reached from other machines, and there is no [tls] section",
                hint="listen on 127.0.0.1, or make certificates with `penstock certs init` and `certs issue`",
            )
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: _dump(answer())
        )
        self._server = grpc.server(
            ThreadPoolExecutor(2, thread_name_prefix="penstock-peer"),
            handlers=[grpc.method_handlers_generic_handler("penstock.Peer", {"Hello": handler})],
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", _MAX_BYTES)],
            maximum_concurrent_rpcs=32,
        )
        self.port = self._bind(address, tls)
        self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def _bind(self, address: str, tls: Tls | None) -> int:
        try:
            if tls is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, tls.server_credentials())
        except RuntimeError as error:
            raise UsageError(f"cannot listen on {address}", hint="choose a free port, or port 0") from error

    def start(self) -> Self:
        self._server.start()
        return self

    def stop(self) -> None:
        self._server.stop(grace=0.5).wait()


def ask(address: str, tls: Tls | None, timeout: float = 1.0) -> tuple[Hello, float]:
    """What the instance at ``address`` says, and how many seconds that took. Raises `PeerUnreachable`."""
    need("cluster", "asking another instance")
    import grpc

    split(address)
    channel = (
        grpc.secure_channel(address, tls.channel_credentials()) if tls else grpc.insecure_channel(address)
    )
    began = time.monotonic()
    with channel:
        try:
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
            answer = call(b"", timeout=timeout)
        except grpc.RpcError as error:
            raise _unreachable(address, error.details() or "no answer") from error
    return _load(address, answer), time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Ping:
    """What asking a member directly gave: its answer after so many milliseconds, or why there is none."""

    member: str
    address: str | None
    milliseconds: float | None = None
    hello: Hello | None = None
    problem: str = ""

    @property
    def reached(self) -> bool:
        return self.hello is not None


def ping(members: Sequence[Member], tls: Tls | None, timeout: float = 1.0) -> tuple[Ping, ...]:
    """Ask every member that has an address for it, all at once."""
    if not members:
        return ()
    with ThreadPoolExecutor(min(16, len(members))) as pool:
        return tuple(pool.map(lambda member: _ping(member, tls, timeout), members))


def _ping(member: Member, tls: Tls | None, timeout: float) -> Ping:
    address = member.addresses.get(ADDRESS)
    if address is None:
        return Ping(member.id, None, problem="it does not listen")
    try:
        hello, seconds = ask(address, tls, timeout)
    except PenstockError as error:
        return Ping(member.id, address, problem=error.what)
    if (hello.member, hello.session) != (member.id, member.session):
        return Ping(member.id, address, problem=f"{hello.member} answers there under another session")
    return Ping(member.id, address, round(seconds * 1e3, 1), hello)


def split(address: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``; `UsageError` for anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{address!r} is no address", hint="write HOST:PORT, such as 127.0.0.1:9090")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _unreachable(address: str, details: str) -> PeerUnreachable:
    return PeerUnreachable(
        f"{address} cannot be reached: {details}",
        hint="is the instance running, is the port open, and do both sides have certificates of the same CA "
        "(`penstock certs show`)?",
    )


def _dump(hello: Hello) -> bytes:
    return json.dumps(asdict(hello)).encode()


def _load(address: str, answer: bytes) -> Hello:
    try:
        return Hello(**json.loads(answer))
    except (ValueError, TypeError) as error:
        raise PeerUnreachable(f"{address} answers, but is no instance of this version: {error}") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
