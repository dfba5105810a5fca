"""Stream jobs: everything an instance of a stream is told, as one value that can travel elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.config import ClusterConfig, Config, RunConfig, SparkConfig, StreamConfig
from penstock.job import Stop
from penstock.tls import Tls

if TYPE_CHECKING:
    from penstock.streams.events import Listener
    from penstock.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class StreamJob:
    """One instance's part in a stream."""

    source: str
    """``FILE:name``, as `penstock.project.load_stream` takes it."""
    id: str
    """Of the stream: one that was dropped and made anew under its name has another."""
    member: str
    config: Config = field(repr=False)
    """Without the file that it came from, which is nobody's business in another process."""

    def to_json(self) -> dict[str, Any]:
        config = replace(self.config, spark=replace(self.config.spark, conf={}), path=None, origins={})
        value = asdict(config)
        value["spark"]["conf"] = dict(self.config.spark.conf)
        # What only `penstock serve` reads stays behind.
        del value["serve"], value["tables"]
        return {"source": self.source, "id": self.id, "member": self.member, "config": value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamJob:
        told = value["config"]
        config = Config(
            **{
                **told,
                "run": RunConfig(**told["run"]),
                "spark": SparkConfig(**told["spark"]),
                "cluster": ClusterConfig(**told["cluster"]),
                "stream": StreamConfig(**told["stream"]),
                "tls": Tls(**told["tls"]) if told["tls"] else None,
            }
        )
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
