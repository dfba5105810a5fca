"""The three servers of a process: all of their ports, or none."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.config import ClusterConfig, Config, ServeConfig
from penstock.errors import UsageError
from penstock.server.access import Access, Users
from penstock.server.http.sources import StoreSources
from penstock.server.process.listeners import ProtocolServers
from penstock.server.process.switch import EngineSwitch
from penstock.storage import Storage
from penstock.store.memory import MemoryStore


@pytest.mark.parametrize("setting", ["serve.port", "cluster.rpc_port", "serve.web_port"])
def test_a_port_that_is_taken(setting: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = MemoryStore()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ports = {name: taken if name == setting else 0 for name in ("serve.port", "serve.web_port")}
        config = Config(
            store="",
            storage="",
            serve=ServeConfig(port=ports["serve.port"], web_port=ports["serve.web_port"]),
            cluster=ClusterConfig(rpc_port=taken if setting == "cluster.rpc_port" else 0),
        )
        sources = StoreSources(store, Storage(tmp_path), config)
        servers = ProtocolServers(config, EngineSwitch("not yet"), Access(Users(store)), sources)
        with pytest.raises(UsageError) as caught:
            servers.start()
    assert caught.value.what == f"cannot listen on 127.0.0.1:{taken}: Address already in use"
    assert setting in str(caught.value.hint)
    assert capfd.readouterr().err == "", "nobody else says it in other words"
    for port in servers.ports.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
