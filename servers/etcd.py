"""An etcd cluster on loopback or in network namespaces; nodes can be killed, paused and started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.config.tls import Tls
from servers.netns import Network
from servers.packages import need
from servers.ports import free_ports

_START_TIMEOUT = 30.0
_ROOM = 1 << 30


def _memory() -> Path | None:
    """A folder in memory, where there is one: a slow disk makes etcd elect again and again.

    What is tested is that processes die, not that power fails: nothing is lost in memory either.
    """
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > _ROOM else None


class EtcdCluster:
    """``size`` nodes, each with a data directory of its own, below one temporary folder.

    With ``tls`` the nodes show that certificate, and refuse clients without one of the same authority.
    With ``password`` there is a user ``root`` who has it, and nobody else may do anything.
    With ``network`` each node runs in the namespace of its number, and not on loopback.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        tls: Tls | None = None,
        password: str | None = None,
        flags: tuple[str, ...] = (),
        network: Network | None = None,
    ) -> None:
        self._program = need("etcd", "etcd-server")
        self._tls = tls
        self._password = password
        self._flags = flags
        self._scheme = "http" if tls is None else "https"
        self._network = network
        self._hosts = [network.address(i) if network else "127.0.0.1" for i in range(size)]
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-etcd-", dir=_memory()))
        ports = free_ports(3 * size)
        self._clients, self._peers, self._metrics = ports[:size], ports[size : 2 * size], ports[2 * size :]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def endpoints(self) -> list[str]:
        """``host:port`` of each node, as a client is told them."""
        return [f"{host}:{port}" for host, port in zip(self._hosts, self._clients, strict=True)]

    def start(self) -> Self:
        """Start all nodes and wait until each of them answers."""
        try:
            for node in range(len(self._clients)):
                self._processes.append(self._launch(node))
            self.wait_healthy()
            if self._password is not None:
                self._enable_passwords(self._password)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all nodes and remove their data."""
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self._processes:
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, node: int) -> None:
        """End a node as a crash would."""
        self._processes[node].kill()
        self._processes[node].wait()

    def pause(self, node: int) -> None:
        """Stop a node in the middle of what it does; its connections stay open."""
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Start a node that was killed; `wait_healthy` tells when it is back."""
        self._processes[node] = self._launch(node)

    def heal(self) -> None:
        """Bring every node back, whatever was done to it, and wait until all of them answer."""
        for node, process in enumerate(self._processes):
            if process.poll() is None:
                self.resume(node)
            else:
                self.restart(node)
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Wait until every node knows a leader and answers."""
        deadline = time.monotonic() + _START_TIMEOUT
        for node in range(len(self._clients)):
            while not self.healthy(node):
                if time.monotonic() > deadline or self._processes[node].poll() is not None:
                    raise TimeoutError(f"etcd node {node} does not get healthy:\n{self._log(node)}")
                time.sleep(0.05)

    def healthy(self, node: int) -> bool:
        """Whether a node knows a leader and can answer, as far as one can tell from here."""
        return b'"true"' in self._read(node, "/health")

    def leader(self) -> int:
        """The node that leads now; waits until there is one."""
        deadline = time.monotonic() + _START_TIMEOUT
        while time.monotonic() < deadline:
            for node in range(len(self._clients)):
                if b"\netcd_server_is_leader 1" in self._read(node, "/metrics"):
                    return node
            time.sleep(0.05)
        raise TimeoutError("no etcd node leads")

    def request(self, path: str, body: dict[str, Any], token: str | None = None) -> dict[str, Any]:
        """What the first node answers to a JSON request, for what Penstock itself never asks for."""
        url = f"{self._scheme}://{self.endpoints[0]}/v3/{path}"
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=5, context=self._context()) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def _launch(self, node: int) -> subprocess.Popen[bytes]:
        client = f"{self._scheme}://{self.endpoints[node]}"
        peers = [f"http://{host}:{port}" for host, port in zip(self._hosts, self._peers, strict=True)]
        options = {
            "name": f"n{node}",
            "data-dir": str(self._folder / f"n{node}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peers[node],
            "initial-advertise-peer-urls": peers[node],
            "initial-cluster": ",".join(f"n{i}={peer}" for i, peer in enumerate(peers)),
            "listen-metrics-urls": self._metrics_url(node),
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "1h",
            "logger": "zap",
            "log-level": "warn",
        }
        if self._tls is not None:
            files = {"cert-file": self._tls.cert, "key-file": self._tls.key, "trusted-ca-file": self._tls.ca}
            options |= files | {"client-cert-auth": "true"}
        command = [self._program, *(f"--{name}={value}" for name, value in options.items()), *self._flags]
        with self._log_file(node).open("ab") as log:
            # etcd 3.4 wants to hear that one knows what one does on such a machine.
            environment = {**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"}
            if self._network is not None:
                return self._network.run(node, command, stdout=log, stderr=log, env=environment)
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _enable_passwords(self, password: str) -> None:
        self.request("auth/user/add", {"name": "root", "password": password})
        self.request("auth/role/add", {"name": "root"})
        self.request("auth/user/grant", {"user": "root", "role": "root"})
        self.request("auth/enable", {})

    def _context(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        context = ssl.create_default_context(cafile=self._tls.ca)
        context.load_cert_chain(self._tls.cert, self._tls.key)
        return context

    def _read(self, node: int, path: str) -> bytes:
        """What a node tells without asking who one is; nothing when it does not answer."""
        try:
            with urllib.request.urlopen(self._metrics_url(node) + path, timeout=1) as answer:
                content: bytes = answer.read()
                return content
        except OSError:
            return b""

    def _metrics_url(self, node: int) -> str:
        return f"http://{self._hosts[node]}:{self._metrics[node]}"

    def _log_file(self, node: int) -> Path:
        return self._folder / f"n{node}.log"

    def _log(self, node: int) -> str:
        return self._log_file(node).read_text(errors="replace")[-2000:]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
