"""The runner does not know which store it runs on: the same steps, killed and resumed, on each."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from servers.etcd import EtcdCluster
from servers.seaweed import Seaweed
from tests.batch.runner.conftest import Place, opened
from tests.marks import soaked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 64 * 1024


@pytest.fixture(params=["etcd", *soaked(["directory", "s3"])])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    with opened(tmp_path, spark, _url(request, tmp_path, monkeypatch)) as place:
        yield place


def _url(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return f"file://{path}/shared"
    if request.param == "etcd":
        etcd: EtcdCluster = request.getfixturevalue("etcd")
        return f"etcd://{','.join(etcd.endpoints)}/{path.name}"
    s3: Seaweed = request.getfixturevalue("s3")
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.bucket}/{path.name}"


def test_a_killed_instance_is_taken_over_and_the_output_is_exact(place: Place) -> None:
    child = place.child(failpoints="checkpoint.after=kill")
    assert child.wait() == -signal.SIGKILL
    roster = Roster(place.store, Keys("default"))
    (member,) = roster.all()
    assert (member.id, member.role, member.capacity, member.serves) == ("child", "batch", 1, False)
    report = place.run()
    assert (report.ending, report.acked) == ("complete", 4)
    assert [(event.stage, event.token) for event in place.seen("resumed")] == [(1, 2)]
    place.assert_exact()
    assert roster.live() == []
    # Data does not go into the store.
    assert max(len(document.value) for document in place.store.scan("")) < SMALL
