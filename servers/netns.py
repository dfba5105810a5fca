"""Machines on a network of their own: namespaces on one switch, whose cables can be pulled.

Needs root, iproute2 and iptables. The switch is a bridge in a namespace of its own, so that a
firewall of this host has no say in it. Names carry the process id of their maker: what is left of
processes that are no more is removed when the next network is made.
"""

from __future__ import annotations

import fcntl
import ipaddress
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servers.packages import Missing, need

_NAME = re.compile(r"pn(\d+)-\d+(s|n\d+)")
_SUBNETS = 65_536
_numbers = itertools.count()
_open: set[str] = set()


class Network:
    """``size`` namespaces and this host on one subnet; raises `Missing` where that is not permitted.

    Loss is silent, as on a real network: whoever sends is not told that nothing arrives.
    """

    def __init__(self, size: int) -> None:
        self._ip = need("ip", "iproute2")
        self._iptables = need("iptables", "iptables")
        base = f"pn{os.getpid()}-{next(_numbers)}"
        self._switch = f"{base}s"
        self._names = [f"{base}n{i}" for i in range(size)]
        self._cable = f"{base}h"
        self._processes: list[subprocess.Popen[bytes]] = []
        if os.geteuid() != 0:
            raise Missing("network namespaces can only be made by root")
        with _alone():
            self._remove_leftovers()
            _open.update((self._switch, *self._names))
            try:
                self._build()
            except BaseException as error:
                self.close()
                if isinstance(error, subprocess.CalledProcessError):
                    raise Missing(f"network namespaces cannot be made here: {error.stderr}") from error
                raise

    @property
    def host(self) -> str:
        """The address of this host, as the namespaces see it."""
        return str(self._subnet[-2])

    def address(self, i: int) -> str:
        """The address of namespace ``i``, for the other ones and for this host."""
        return str(self._subnet[i + 1])

    def run(self, i: int, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process in namespace ``i``; the options are those of `Popen`. `close` ends it."""
        # `ip netns exec` becomes the command, so that its process id is the command's.
        started = subprocess.Popen([self._ip, "netns", "exec", self._names[i], *command], **options)
        self._processes.append(started)
        return started

    def cut(self, i: int) -> None:
        """Pull the cable of namespace ``i``: nothing gets to it or away from it."""
        self._run("-n", self._switch, "link", "set", f"port{i}", "nomaster")

    def cut_between(self, i: int, j: int) -> None:
        """Lose everything between ``i`` and ``j``, in both directions."""
        self.one_way(i, j)
        self.one_way(j, i)

    def one_way(self, i: int, j: int) -> None:
        """Lose what ``i`` sends to ``j``; what ``j`` sends to ``i`` arrives."""
        self._filter(j, "-A", "INPUT", "-s", self.address(i), "-j", "DROP")

    def heal(self) -> None:
        """Put all cables back and lose nothing any more."""
        for i in range(len(self._names)):
            self._filter(i, "-F")
            self._run("-n", self._switch, "link", "set", f"port{i}", "master", "switch")

    def close(self) -> None:
        """End what was started by `run`, and remove the network."""
        for process in self._processes:
            process.kill()
            process.wait()
        for name in (*self._names, self._switch):
            with suppress(subprocess.CalledProcessError):
                self._run("netns", "del", name)
            _open.discard(name)
        # It goes with the switch, but only a moment later.
        with suppress(subprocess.CalledProcessError):
            self._run("link", "del", self._cable)

    def _build(self) -> None:
        self._subnet = self._free_subnet()
        self._add_namespace(self._switch)
        self._run("-n", self._switch, "link", "add", "switch", "up", "type", "bridge")
        self._connect([], self._cable, "host", self.host)
        for i, name in enumerate(self._names):
            self._add_namespace(name)
            self._connect(["-n", name], "eth0", f"port{i}", self.address(i))
            self._filter(i, "-F")

    def _connect(self, at: Sequence[str], device: str, port: str, address: str) -> None:
        """Lay a cable from a new device to a new port of the switch."""
        cable = ["address", _hardware(address), "type", "veth", "peer", "name", port, "netns", self._switch]
        self._run(*at, "link", "add", device, *cable)
        self._run("-n", self._switch, "link", "set", port, "master", "switch", "up")
        self._run(*at, "addr", "add", f"{address}/24", "dev", device)
        self._run(*at, "link", "set", device, "up")
        # Who must ask for a hardware address keeps packets meanwhile, and would send them after `heal`.
        for other in (self.host, *map(self.address, range(len(self._names)))):
            self._run(*at, "neigh", "replace", other, "lladdr", _hardware(other), "dev", device)

    def _add_namespace(self, name: str) -> None:
        self._run("netns", "add", name)
        self._run("-n", name, "link", "set", "lo", "up")

    def _free_subnet(self) -> ipaddress.IPv4Network:
        """A subnet of 10.0.0.0/8 that nothing here is routed to; other processes begin to look elsewhere."""
        destinations = [route["dst"] for route in json.loads(self._run("-j", "-4", "route", "show"))]
        taken = [ipaddress.IPv4Network(each) for each in destinations if each != "default"]
        for number in range(os.getpid(), os.getpid() + _SUBNETS):
            subnet = ipaddress.IPv4Network(f"10.{number // 256 % 256}.{number % 256}.0/24")
            if not any(subnet.overlaps(each) for each in taken):
                return subnet
        raise Missing("no subnet of 10.0.0.0/8 is free here")

    def _remove_leftovers(self) -> None:
        listed = self._run("netns", "list").split()
        for name in filter(_is_leftover, listed):
            for process in self._run("netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            self._run("netns", "del", name)

    def _filter(self, i: int, *rule: str) -> None:
        self._run("netns", "exec", self._names[i], self._iptables, "-w", *rule)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([self._ip, *arguments], check=True, capture_output=True, text=True, timeout=30)
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _alone() -> Iterator[None]:
    """Nobody else chooses a subnet or looks for leftovers meanwhile."""
    with (Path(tempfile.gettempdir()) / "penstock-netns.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _hardware(address: str) -> str:
    return ":".join(f"{byte:02x}" for byte in (2, 0, *ipaddress.IPv4Address(address).packed))


def _is_leftover(name: str) -> bool:
    found = _NAME.fullmatch(name)
    if found is None or name in _open:
        return False
    return int(found[1]) == os.getpid() or not Path(f"/proc/{found[1]}").exists()
