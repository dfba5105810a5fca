"""``penstock cluster join``: a member in the foreground, which tells what happens to it."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from penstock.cli import exits
from penstock.cli.output import JsonOutput, Output
from penstock.cli.screens import member_events
from penstock.cli.screens.member_events import MemberEvent, SeenCluster
from penstock.cli.signals import Signals
from penstock.config import ClusterConfig
from penstock.config.tls import Tls
from penstock.control.catalog import Follower, Handler, Statement
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import Bystander
from penstock.control.cluster.peer import ADDRESS, PeerServer, introduce
from penstock.control.cluster.rules.model import Member
from penstock.control.cluster.views.observation import Sight
from penstock.control.cluster.views.observer import Observer
from penstock.control.cluster.views.views import Decided
from penstock.core.clocks import wall_clock
from penstock.core.json_values import plain
from penstock.errors import PenstockError, StoreUnavailable
from penstock.store import Store

SCOPE = "cluster"
"""The scope of the heartbeat: its epochs carry nothing, and show that the way to a commit is free."""

_LOOK_EVERY = 0.5
_HURRY = 2.0
# A busy cluster changes all the time; looking must not become the main work.
_BREATH = 0.1


class Teller:
    """Prints events: a line of text, or of JSON, each with its time. For use by many threads."""

    def __init__(self, output: Output) -> None:
        self._out = output.out
        self._json = isinstance(output, JsonOutput)
        self._lock = threading.RLock()  # a signal may come while its thread is telling something

    def tell(self, event: MemberEvent) -> None:
        line = self._as_json(event) if self._json else f"{time.strftime('%H:%M:%S')}  {event.text}"
        # A member does not leave because nobody reads any more, or because the disk with its log is full.
        with self._lock, suppress(OSError, ValueError):
            print(line, file=self._out, flush=True)

    def _as_json(self, event: MemberEvent) -> str:
        head = {"at": wall_clock(), "event": event.kind, "text": event.text}
        return json.dumps({**head, **plain(event.values)})


class Joining:
    """One member from its joining to its leaving. `run` belongs into the main thread, which gets signals.

    That thread only waits: what a signal interrupts must not hold a lock of the store.
    """

    def __init__(
        self,
        store: Store,
        config: ClusterConfig,
        member: Member,
        every: float,
        teller: Teller,
        *,
        listen: str | None,
        tls: Tls | None,
        verbose: bool,
    ) -> None:
        self._store = store
        self._config = config
        self._node = Node(store, member, config, {SCOPE: Bystander()}, {SCOPE: steady(every)})
        self._server = PeerServer(listen, lambda: introduce(self._node), tls) if listen else None
        self._observer = Observer(store, config)
        self._follower = Follower(store, _Onlooker())
        self._teller = teller
        self._verbose = verbose
        self._asked = threading.Event()
        self._gone = threading.Event()
        self._seen: SeenCluster | None = None
        self._told = 0

    def run(self) -> int:
        """Take part until a signal asks to leave."""
        with _logged(self._teller, self._verbose), Signals(self._ask, self._hurry), self._listening():
            self._replay()
            self._await_id()
            if not self._asked.is_set():
                # Here and not in a thread: an id that is taken is an error of this command.
                self._node.pulse()
                self._node.start()
                threads = [_thread(self._watch), _thread(self._follow)]
                self._asked.wait()
                _thread(self._leave).join()
                for thread in threads:
                    thread.join()
        return exits.COMPLETE

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if self._server is None:
            yield
            return
        addresses = {ADDRESS: self._server.address, **self._node.member.addresses}
        self._node.member = replace(self._node.member, addresses=addresses)
        self._server.start()
        try:
            yield
        finally:
            self._server.stop()

    def _await_id(self) -> None:
        """An instance that died a moment ago keeps its id until its session has run out."""
        name, deadline = self._node.member.id, time.monotonic() + self._config.member_ttl + 1
        if self._is_taken():
            text = f"{name} is still a member, waiting up to {self._config.member_ttl:g} s for it to be gone"
            self._teller.tell(MemberEvent("waiting", text, {"member": name}))
        while self._is_taken() and time.monotonic() < deadline and not self._asked.wait(_LOOK_EVERY):
            pass

    def _is_taken(self) -> bool:
        return any(member.id == self._node.member.id for member in self._node.roster.live())

    # threads

    def _watch(self) -> None:
        """Tell what happens."""
        silent = False
        while not self._gone.is_set():
            try:
                since = self._store.revision()
                self._look()
                self._store.watch(self._observer.keys.root, since, _LOOK_EVERY)
                if silent:
                    self._teller.tell(MemberEvent("store-back", "the store answers again"))
                silent = False
                self._gone.wait(_BREATH)
            except StoreUnavailable as error:
                if not silent:
                    self._teller.tell(MemberEvent("store-lost", f"the store does not answer: {error.what}"))
                silent = True
                self._gone.wait(_LOOK_EVERY)
            except PenstockError as error:
                self._complain(error)

    def _look(self) -> None:
        session, before = self._node.session, self._seen
        if session is None:
            return  # between two lives
        if before is None or before.session != session:
            cluster, member = self._config.name, self._node.member.id
            self._teller.tell(member_events.joined(cluster, member, session, again=before is not None))
        sight = self._observer.look()
        if before is None:
            self._told = sight.control.scope(SCOPE).next - 1
        decisions = self._news(sight)
        self._seen = SeenCluster(self._node.member.id, session, sight, decisions)
        for event in member_events.happened(before, self._seen, verbose=self._verbose):
            self._teller.tell(event)

    def _news(self, sight: Sight) -> tuple[Decided, ...]:
        """The epochs that ended since the last look."""
        if sight.control.scope(SCOPE).next - 1 <= self._told:
            return ()
        decisions = self._observer.decided_since(SCOPE, self._told)
        self._told = decisions[-1].epoch if decisions else self._told
        return decisions

    def _follow(self) -> None:
        """Follow the catalog, and let the others see how far."""
        while not self._gone.is_set():
            try:
                if self._follower.poll(_LOOK_EVERY):
                    self._replayed()
            except StoreUnavailable:
                self._gone.wait(_LOOK_EVERY)
            except PenstockError as error:
                self._complain(error)

    def _replay(self) -> None:
        self._follower.catch_up()
        self._node.member = replace(self._node.member, catalog=self._follower.version)

    def _replayed(self) -> None:
        version = self._follower.version
        self._node.member = replace(self._node.member, catalog=version)
        self._teller.tell(
            MemberEvent("catalog", f"the catalog is at version {version}", {"version": version})
        )

    def _complain(self, error: PenstockError) -> None:
        self._teller.tell(MemberEvent("problem", error.what, {"code": error.code}))
        self._gone.wait(_LOOK_EVERY)

    def _leave(self) -> None:
        try:
            handed_over = self._node.leave()
            text = "left the cluster" if handed_over else "left the cluster before all was handed over"
        except PenstockError as error:
            handed_over = False
            text = f"left without a word, the others notice when the session has run out: {error.what}"
        self._gone.set()
        self._teller.tell(MemberEvent("left", text, {"handed_over": handed_over}))

    # signals

    def _ask(self, name: str) -> None:
        text = f"{name}: handing over (once more to leave at once)"
        self._teller.tell(MemberEvent("leaving", text, {"signal": name}))
        self._asked.set()

    def _hurry(self) -> None:
        """End the session without waiting for anybody, and for a store that does not answer only briefly."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _thread(lambda: self._node.leave(timeout=0)).join(_HURRY)
        self._teller.tell(MemberEvent("left", "left the cluster at once", {"handed_over": False}))
        os._exit(exits.COMPLETE)


class _Onlooker(Handler):
    """Builds nothing: this member runs no queries, and only shows which version it knows."""

    def build(self, statement: Statement) -> None:
        """Nothing to build."""

    def drop(self, statement: Statement) -> None:
        """Nothing to drop."""


class _Log(logging.Handler):
    """What the library has to say, among the events."""

    def __init__(self, teller: Teller) -> None:
        super().__init__()
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]):
            text += f": {type(error).__name__}: {error}"
        kind = "problem" if record.levelno >= logging.WARNING else "log"
        self._teller.tell(MemberEvent(kind, " ".join(text.split())))


@contextmanager
def _logged(teller: Teller, verbose: bool) -> Iterator[None]:
    log, handler = logging.getLogger("penstock"), _Log(teller)
    level = log.level
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
