"""The supervisor of a stream with children that a test plays."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.config import Config, SparkConfig, StreamConfig
from penstock.errors import (
    HaltError,
    PenstockError,
    SourceFailed,
    StoreUnavailable,
    StreamError,
    TransientError,
)
from penstock.store.base import Document, Store
from penstock.store.memory import MemoryStore
from penstock.streams import registry
from penstock.streams.registry import StreamRecord
from penstock.streams.supervisors import Supervisors
from penstock.streams.views.events import StreamEvent, joined, problem
from penstock.workers import stream_instances
from penstock.workers.stream_instances import Deaths, StreamSupervisor, judge
from penstock.workers.stream_job import StreamJob

CONFIG = Config("memory:", "/nowhere")


class Actor:
    """A child as the supervisor sees it. A test says what it tells and how it ends."""

    def __init__(self, job: StreamJob) -> None:
        self.job = job
        self.name = job.member
        self.asked = False
        self.killed = False
        self.obedient = True
        self.result: Any = None
        self.error: PenstockError | None = None
        self.cause = "killed by SIGKILL"
        self._said: queue.Queue[Any] = queue.Queue()

    def tell(self, event: StreamEvent) -> None:
        self._said.put(event.to_json())

    def end(self, result: str | None = None, error: PenstockError | None = None) -> None:
        self.result, self.error = result, error
        self._said.put(None)

    def messages(self) -> Iterator[Any]:
        while (said := self._said.get()) is not None:
            yield said

    def leave(self) -> None:
        if not self.asked:
            self.asked = True
            if self.obedient:
                self.end("left")

    def kill(self) -> None:
        self.killed = True
        self.end()

    def close(self) -> None:
        """A real one that still runs would notice and leave."""
        if self.result is None and self.error is None:
            self.end()


class Stage:
    """A supervisor in a thread, and the children it has started."""

    def __init__(self, store: Store, record: StreamRecord) -> None:
        self.store = store
        self.record = record
        self.actors: list[Actor] = []
        self.told: list[StreamEvent] = []
        self.later = 0.0
        self.outcomes: list[object] = []
        self._threads: list[threading.Thread] = []
        self.supervisors: list[StreamSupervisor] = []

    def start(self, instances: int) -> StreamSupervisor:
        job = StreamJob("file.py:s", self.record.id, "", CONFIG)
        supervisor = StreamSupervisor(
            self.store, self.record, job, instances, self.told.append, clock=self.clock
        )
        self.supervisors.append(supervisor)
        thread = threading.Thread(target=self._run, args=(supervisor,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return supervisor

    def clock(self) -> float:
        return time.monotonic() + self.later

    def _run(self, supervisor: StreamSupervisor) -> None:
        try:
            self.outcomes.append(supervisor.run())
        except PenstockError as error:
            self.outcomes.append(error)

    def made(self, job: StreamJob) -> Actor:
        actor = Actor(job)
        self.actors.append(actor)
        return actor

    @property
    def working(self) -> list[str]:
        """The children that were not asked to leave and have not ended."""
        ended = [a for a in self.actors if a.result or a.error or a.killed]
        return [a.name for a in self.actors if not a.asked and a not in ended]

    def wait(self, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + 15
        while not ready():
            assert time.monotonic() < deadline, f"{self.working} {self.told} {self.outcomes}"
            time.sleep(0.01)

    def outcome(self) -> object:
        self.wait(lambda: self.outcomes)
        return self.outcomes[0]

    def finish(self) -> None:
        for supervisor in self.supervisors:
            supervisor.leave()
        for actor in self.actors:
            actor.end("left")
        for thread in self._threads:
            thread.join(15)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    store = MemoryStore()
    stage = Stage(store, registry.open_stream(store, "clicks", {"outputs": {}}))
    monkeypatch.setattr(stream_instances, "StreamChild", stage.made)
    monkeypatch.setattr(stream_instances, "_LOOK_EVERY", 0.02)
    yield stage
    stage.finish()


def test_a_job_travels_without_its_file() -> None:
    config = replace(
        CONFIG,
        spark=SparkConfig(conf={"spark.x": "1"}),
        stream=StreamConfig(max_rows=7),
        store_password="secret",
        origins={"store": "flag"},
    )
    job = StreamJob("f.py:s", "0badcafe", "a-1", config)
    back = StreamJob.from_json(json.loads(json.dumps(job.to_json())))
    assert back == replace(job, config=replace(config, origins={}))
    assert "secret" not in repr(job)


def test_children_are_started_and_asked_to_leave(stage: Stage) -> None:
    supervisor = stage.start(2)
    stage.wait(lambda: len(stage.working) == 2)
    assert [name.partition("-")[0] for name in stage.working] == ["a", "b"]
    assert [each.instances for each in Supervisors(stage.store, stage.record.layout).live()] == [2]
    supervisor.leave()
    assert stage.outcome() == "left"
    assert Supervisors(stage.store, stage.record.layout).live() == []
    assert all(actor.asked for actor in stage.actors)


def test_what_children_tell_is_passed_on_with_their_names(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.actors)
    (actor,) = stage.actors
    actor.tell(joined("clicks", actor.name))
    stage.wait(lambda: stage.told)
    assert stage.told[0].text == f"{actor.name}: joined stream clicks as {actor.name}"
    assert stage.told[0].values["instance"] == actor.name


def test_stopping_a_stream_ends_its_supervisors(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.working)
    registry.wish(stage.store, "clicks", wanted="stopped")
    assert stage.outcome() == "stopped"
    assert len(stage.actors) == 1


def test_suspending_keeps_the_children(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.working)
    registry.wish(stage.store, "clicks", wanted="suspended", instances=2)
    stage.wait(lambda: len(stage.working) == 2)
    assert not stage.outcomes


def test_rescaling_up_and_down_ends_the_newest_first(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.working)
    first = stage.working[0]
    registry.wish(stage.store, "clicks", instances=3)
    stage.wait(lambda: len(stage.working) == 3)
    registry.wish(stage.store, "clicks", instances=1)
    stage.wait(lambda: stage.working == [first])
    registry.wish(stage.store, "clicks", instances=2)
    stage.wait(lambda: len(stage.working) == 2)
    assert len({actor.name for actor in stage.actors}) == 4, "a name was used twice"


def test_supervisors_share_what_was_wished_for(stage: Stage) -> None:
    registry.wish(stage.store, "clicks", instances=3)
    stage.start(1)
    stage.wait(lambda: len(stage.working) == 3)
    second = stage.start(1)
    stage.wait(lambda: len(stage.working) == 3 and len(_families(stage)) == 2)
    second.leave()
    stage.wait(lambda: stage.outcomes == ["left"])
    stage.wait(lambda: len(stage.working) == 3 and len(_families(stage)) == 1)


def _families(stage: Stage) -> set[str]:
    return {name.split("-")[1] for name in stage.working}


def test_a_child_that_dies_is_followed_by_another_after_a_pause(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.actors)
    stage.actors[0].end()
    stage.wait(lambda: stage.told)
    assert "died (killed by SIGKILL); another one follows in 1 s" in stage.told[0].text
    assert len(stage.actors) == 1
    stage.later += 1.0
    stage.wait(lambda: len(stage.actors) == 2)
    assert stage.actors[1].name != stage.actors[0].name


def test_one_that_leaves_by_itself_is_replaced_too(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.actors)
    stage.actors[0].end("left")
    stage.wait(lambda: stage.told)
    assert "left without being asked" in stage.told[0].text


def test_a_fault_that_may_pass_is_tried_again_until_it_is_too_much(stage: Stage) -> None:
    stage.start(2)
    for number in range(1, 6):
        stage.wait(lambda number=number: len(_of_first_slot(stage)) == number)  # type: ignore[misc]
        _of_first_slot(stage)[-1].end(error=TransientError("no route"))
        stage.wait(lambda number=number: len(stage.told) == number or stage.outcomes)  # type: ignore[misc]
        stage.later += 8.0
    error = stage.outcome()
    assert isinstance(error, HaltError)
    assert "5 times in a row" in error.what and "no route" in error.what
    assert all(actor.asked for actor in stage.actors if actor.name.startswith("b-"))


def _of_first_slot(stage: Stage) -> list[Actor]:
    return [actor for actor in stage.actors if actor.name.startswith("a-")]


def test_what_trying_again_cannot_mend_ends_it_at_once(stage: Stage) -> None:
    stage.start(2)
    stage.wait(lambda: len(stage.actors) == 2)
    stage.actors[0].end(error=SourceFailed("source clicks: no such topic"))
    error = stage.outcome()
    assert isinstance(error, SourceFailed)
    assert stage.actors[1].asked and len(stage.actors) == 2


def test_the_end_of_the_stream_is_waited_for_in_every_child(stage: Stage) -> None:
    stage.start(2)
    stage.wait(lambda: len(stage.actors) == 2)
    stage.actors[0].end("ended")
    stage.actors[1].tell(problem("still writing"))
    stage.wait(lambda: stage.told)
    assert not stage.outcomes and not stage.actors[1].asked
    stage.actors[1].end("ended")
    assert stage.outcome() == "ended"
    assert len(stage.actors) == 2


def test_a_stream_that_was_dropped_ends_with_an_error(stage: Stage) -> None:
    stage.start(1)
    stage.wait(lambda: stage.working)
    found = stage.store.get("streams/clicks/stream")
    assert found is not None
    stage.store.cas(found.key, found.version, None)
    error = stage.outcome()
    assert isinstance(error, StreamError) and "removed meanwhile" in error.what
    assert stage.actors[0].asked


def test_killing_does_not_wait(stage: Stage) -> None:
    supervisor = stage.start(1)
    stage.wait(lambda: stage.actors)
    stage.actors[0].obedient = False
    supervisor.leave()
    stage.wait(lambda: stage.actors[0].asked)
    assert not stage.outcomes
    supervisor.kill()
    assert stage.outcome() == "left"


class Flaky(MemoryStore):
    """A store that does not answer while it is told so."""

    silent = False

    def get(self, key: str) -> Document | None:
        if self.silent:
            raise StoreUnavailable("no answer")
        return super().get(key)


def test_children_stay_while_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Flaky()
    stage = Stage(store, registry.open_stream(store, "clicks", {}))
    monkeypatch.setattr(stream_instances, "StreamChild", stage.made)
    monkeypatch.setattr(stream_instances, "_LOOK_EVERY", 0.02)
    stage.start(1)
    stage.wait(lambda: stage.working)
    store.silent = True
    stage.wait(lambda: stage.told)
    assert "does not answer" in stage.told[0].text
    store.silent = False
    stage.wait(lambda: len(stage.told) == 2)
    assert stage.told[1].text == "the store answers again"
    assert len(stage.working) == 1 and len(stage.actors) == 1
    stage.finish()
    assert stage.outcomes == ["left"]


def test_a_lost_session_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    store = MemoryStore(clock=lambda: now)
    stage = Stage(store, registry.open_stream(store, "clicks", {}))
    monkeypatch.setattr(stream_instances, "StreamChild", stage.made)
    monkeypatch.setattr(stream_instances, "_LOOK_EVERY", 0.02)
    stage.start(1)
    supervisors = Supervisors(store, stage.record.layout)
    stage.wait(lambda: stage.working and supervisors.live())
    (before,) = supervisors.live()
    now, stage.later = 100.0, 100.0
    stage.wait(lambda: supervisors.live() and supervisors.live()[0].session != before.session)
    assert len(stage.actors) == 1
    stage.finish()


def test_long_lives_are_forgiven() -> None:
    deaths = Deaths()
    for _ in range(4):
        deaths = deaths.after(3.0)
    assert (deaths.pause, deaths.too_many) == (8.0, False)
    assert deaths.after(3.0).too_many
    assert deaths.after(61.0) == Deaths(1)


def test_whoever_was_asked_has_left_however_it_went(stage: Stage) -> None:
    actor = Actor(StreamJob("f", "i", "a", CONFIG))
    actor.asked, actor.error = True, SourceFailed("x")
    assert judge(actor).kind == "gone"  # type: ignore[arg-type]
