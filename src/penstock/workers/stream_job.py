"""An instance's part in a stream: what it is told, and how it does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.config import ClusterConfig, Config, RunConfig, SparkConfig, StreamConfig
from penstock.config.tls import Tls
from penstock.core.json_values import plain
from penstock.workers.jobs import Job, Stop, divided, revived

if TYPE_CHECKING:
    from penstock.streams.api.stream import Stream
    from penstock.streams.views.events import Listener


_SETTINGS = {
    "run": RunConfig,
    "spark": SparkConfig,
    "cluster": ClusterConfig,
    "stream": StreamConfig,
    "tls": Tls,
}


@dataclass(frozen=True, slots=True)
class StreamJob(Job):
    """One instance's part in a stream."""

    kind: ClassVar[str] = "stream"
    source: str
    id: str
    """Of the stream: one that was dropped and made anew under its name has another."""
    member: str
    config: Config = field(repr=False)
    """Without the file that it came from, which is nobody's business in another process."""

    @property
    def name(self) -> str:
        return self.member

    def shared(self, name: str, instances: int) -> StreamJob:
        config = replace(self.config, spark=divided(self.config.spark, instances))
        return replace(self, member=name, config=config)

    def to_json(self) -> dict[str, Any]:
        # What only `penstock serve` reads stays behind.
        config = plain(replace(self.config, path=None, origins={}, tables=()))
        del config["serve"], config["tables"]
        return {"source": self.source, "id": self.id, "member": self.member, "config": config}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamJob:
        config = Config(**revived(value["config"], _SETTINGS))
        return cls(value["source"], value["id"], value["member"], config)


def perform(job: StreamJob, stream: Stream, listener: Listener, stop: Stop) -> str:
    """Take part in the stream until it ends or ``stop`` says so.

    How it ended: ``ended``, ``stopped`` or ``left`` (see `StreamInstance.run`). The file may have changed
    since the stream was started: other code than the stream's own is refused.
    """
    from penstock.store import open_store
    from penstock.streams.instance import StreamInstance
    from penstock.streams.place import Place
    from penstock.streams.registry import check_current

    config = job.config
    with open_store(config.store, tls=config.tls, password=config.store_password) as store:
        check_current(store, stream.name, job.id, stream.describe())
    place = Place(config.store, config.storage, stream.name, job.id, config.tls)
    instance = StreamInstance(stream, place, config, job.member, listener=listener)
    stop.attach(instance)
    return instance.run()
