"""The role *worker*: asks a coordinator to be let in, runs Spark's worker for it, and says that it lives.

It serves no SQL and needs no store: all that it knows comes from the coordinator.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.config import Config
from penstock.config.tls import Tls
from penstock.errors import ConfigError, PeerUnreachable, PenstockError
from penstock.server.roles import processes
from penstock.server.roles.proof import prove
from penstock.server.roles.worker_admission import BEAT, CHALLENGE, JOIN, LEAVE
from penstock.server.roles.workers import Offer

_log = logging.getLogger(__name__)

_CALL = 10.0
_LOOK_EVERY = 0.2
_LONGEST_PAUSE = 10.0


class WorkerRole:
    """A worker from its start to its end. ``tell`` gets what people may want to know."""

    def __init__(self, config: Config, folder: Path, tell: Callable[[str], None]) -> None:
        cluster = config.cluster
        self._config = config
        self._tell = tell
        self._folder = folder
        self._addresses = cluster.coordinator_address.split(",")
        self._stopping = threading.Event()
        name = cluster.worker_id or f"{socket.gethostname()}-{random.getrandbits(16):04x}"
        host = config.serve.bind_address
        self.offer = Offer(name, host, cluster.worker_cores, cluster.worker_memory, __version__)
        if cluster.join_token is None and config.tls is None:
            raise ConfigError(
                "a worker needs a join token or a certificate",
                hint="set cluster.join_token to what `penstock cluster token` prints on a coordinator "
                "(or PENSTOCK_CLUSTER_JOIN_TOKEN), or make a certificate with `penstock certs issue`",
            )

    def stop(self) -> None:
        """Leave: `run` returns soon."""
        self._stopping.set()

    def run(self) -> None:
        """Compute for whichever coordinator leads, until asked to stop."""
        pause, told = 0.5, ""
        while not self._stopping.is_set():
            for address in self._addresses:
                try:
                    self._serve(address)
                    pause, told = 0.5, ""
                except PenstockError as error:
                    if str(error) != told:
                        self._tell(f"{address}: {error}")
                    told = str(error)
                if self._stopping.is_set():
                    return
            self._stopping.wait(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def invited(self, address: str) -> dict[str, Any]:
        """Ask a coordinator to be let in: what it tells, with the address and secret of Spark's master."""
        return self._ask(address, JOIN, {"offer": _plain(self.offer), **self._proof(address)})

    def _serve(self, address: str) -> None:
        """One time under one coordinator, from joining it to losing it."""
        invited = self.invited(address)
        self._tell(f"joined {address}: Spark's master is {invited['master']}")
        folder = processes.working_folder(self._folder, "worker")
        try:
            worker = processes.start_worker(
                folder,
                self.offer.host,
                invited["secret"],
                invited["master"],
                cores=self.offer.cores,
                memory=self.offer.memory,
            )
            try:
                self._beat(address, invited, worker)
            finally:
                worker.stop()
        finally:
            with suppress(PenstockError):
                self._ask(address, LEAVE, self._own(invited))
            processes.remove(folder)

    def _beat(self, address: str, invited: Mapping[str, Any], worker: processes.SparkProcess) -> None:
        """Say that this worker lives, from its first moment to its last: starting takes a while."""
        heard = time.monotonic()
        due, ready = heard, False
        while not self._stopping.wait(_LOOK_EVERY):
            if not ready and worker.told(processes.REGISTERED):
                ready = True
                self._tell(f"ready: worker {self.offer.id} computes")
            if not worker.runs:
                raise PeerUnreachable("Spark's worker has ended", hint="it is started again")
            now = time.monotonic()
            if now < due:
                continue
            due = now + float(invited["heartbeat_every"])
            try:
                answer = self._ask(address, BEAT, self._own(invited))
            except PeerUnreachable:
                if now - heard > self._config.cluster.dead_after:
                    raise
                due = now + 1.0
                continue
            heard = now
            if not answer.get("known"):
                raise PeerUnreachable(f"{address} does not know this worker any more", hint="it joins again")

    def _own(self, invited: Mapping[str, Any]) -> dict[str, Any]:
        """By what the coordinator knows this worker again."""
        return {"id": self.offer.id, "number": invited["number"], "key": invited["key"]}

    def _proof(self, address: str) -> dict[str, str]:
        """What shows that this worker may join: the token, or that it has the key of a certificate."""
        token, tls = self._config.cluster.join_token, self._config.tls
        if token is not None or tls is None:
            return {"token": token or ""}
        return prove(tls, str(self._ask(address, CHALLENGE, {}).get("nonce", "")), self.offer.id)

    def _ask(self, address: str, action: str, request: Mapping[str, Any]) -> dict[str, Any]:
        from pyarrow import flight

        body = json.dumps(request).encode()
        try:
            with _client(address, self._config.tls) as client:
                options = flight.FlightCallOptions(timeout=_CALL)
                answers = list(client.do_action(flight.Action(action, body), options))
        except flight.FlightUnavailableError as error:
            raise PeerUnreachable(
                f"{address} cannot be reached, or does not lead: {_first_line(error)}",
                hint="is a coordinator running there (`penstock serve --role coordinator`)?",
            ) from error
        except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
            raise PenstockError(
                f"{address} does not let this worker in: {_first_line(error)}",
                hint="set cluster.join_token to what `penstock cluster token` prints on a coordinator",
            ) from error
        except flight.FlightTimedOutError as error:
            raise PeerUnreachable(f"{address} does not answer") from error
        except (flight.FlightError, OSError, ValueError) as error:
            raise PenstockError(f"{address} refuses: {_first_line(error)}") from error
        found = json.loads(answers[0].body.to_pybytes()) if answers else {}
        return found if isinstance(found, dict) else {}


def _client(address: str, tls: Tls | None) -> Any:
    from pyarrow import flight

    if tls is None:
        return flight.FlightClient(f"grpc://{address}")
    ca, cert, key = tls.credentials()
    return flight.FlightClient(f"grpc+tls://{address}", tls_root_certs=ca, cert_chain=cert, private_key=key)


def _plain(offer: Offer) -> dict[str, Any]:
    return {
        "id": offer.id,
        "host": offer.host,
        "cores": offer.cores,
        "memory": offer.memory,
        "version": offer.version,
    }


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
