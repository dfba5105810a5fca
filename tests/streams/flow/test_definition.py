"""What a stream says about itself, and what it refuses while it is written down. No Spark is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import DefinitionError, DuplicateName, TypeMismatch, UnknownField
from penstock.sources import DirectorySource, RateSource, StatefulSource
from penstock.streams.api.stream import Rows, Stream
from penstock.streams.operators.query import spark_settings
from penstock.streams.views.changes import DefinitionChange, changes
from penstock.types.tables import Table, derived
from tests.streams.flow.support import Clicks, Counts, Nowhere, OnlyAppend, Source

if TYPE_CHECKING:
    import pyarrow as pa


class Plain(Table):
    user: str
    page: str
    price: int | None
    at: datetime


class Nullable(Table):
    user: str
    at: datetime | None


class PageCounts(Table):
    page: str
    clicks: int


class Pairs(Table):
    user: str
    page: str
    at: datetime


class Computed(Table):
    user: str
    seconds: int
    at: datetime = derived()


def timed(stream: Stream, **options: Any) -> Rows:
    return stream.source("clicks", Source()).assign_timestamps(Clicks.at, 10, **options)


def counted(rows: Rows) -> Rows:
    return rows.key_by("page").tumbling(60).count(to=Counts, start=Counts.begin)


def running(rows: Rows) -> Rows:
    return rows.key_by("page").count(to=PageCounts)


def copied(row: dict[str, Any]) -> dict[str, Any]:
    return row


# sources and time


def test_a_source_and_its_event_time(stream: Stream) -> None:
    rows = stream.source("plain", Source(Plain))
    assert rows.shape.time is None and rows.table is Plain
    stamped = rows.assign_timestamps(Plain.at, timedelta(minutes=1), late="keep")
    spec = stream.sources["plain"]
    assert spec.timestamps is not None and stamped.shape.time == "at"
    assert (spec.timestamps.field, spec.timestamps.lateness, spec.timestamps.late) == ("at", 60.0, "keep")


def test_a_computed_time_is_a_field_of_the_rows(stream: Stream) -> None:
    rows = stream.source("computed", Source(Computed))
    assert rows.shape.fields == ("user", "seconds")
    stamped = rows.assign_timestamps(Computed.at, 0, extract=lambda batch: batch["seconds"])
    assert stamped.shape.fields == ("user", "seconds", "at") == stream.sources["computed"].fields


@pytest.mark.parametrize(
    ("table", "arguments", "words"),
    [
        (Clicks, (Counts.begin, 1), "names counts.begin"),
        (Clicks, (Clicks.page, 1), "names <field clicks.page"),
        (Nullable, (Nullable.at, 1), "names <field nullable.at"),
        (Computed, (Computed.at, 1), "needs extract"),
        (Clicks, ("when", 1), "has no field 'when'"),
        (Clicks, (Clicks.at, -1), "lateness=-1"),
        (Clicks, (Clicks.at, 0.0001), "lateness=0.0001"),
        (Clicks, (Clicks.at, "1 minute"), "lateness='1 minute'"),
    ],
)
def test_an_event_time_that_is_none_is_refused(
    stream: Stream, table: type[Table], arguments: Any, words: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"test_definition.py:\d+: assign_timestamps.*{words}"):
        stream.source("rows", Source(table)).assign_timestamps(*arguments)
    assert stream.sources["rows"].timestamps is None


def test_event_time_is_assigned_once_and_right_after_the_source(stream: Stream) -> None:
    rows = stream.source("plain", Source(Plain))
    with pytest.raises(DefinitionError, match="comes after another operator") as raised:
        rows.filter("price > 1").assign_timestamps(Plain.at, 1)
    assert "each late row counts once" in (raised.value.hint or "")
    rows.assign_timestamps(Plain.at, 1)
    with pytest.raises(DefinitionError, match="a second time for source plain"):
        rows.assign_timestamps(Plain.at, 1)
    with pytest.raises(DefinitionError, match="as they were before assign_timestamps"):
        stream.output("out", rows, Nowhere())


def test_event_time_comes_before_the_outputs(stream: Stream) -> None:
    rows = stream.source("plain", Source(Plain))
    stream.output("out", rows, Nowhere())
    with pytest.raises(DefinitionError, match="comes after output out"):
        rows.assign_timestamps(Plain.at, 1)


def test_late_rows_are_had_where_they_are_kept(stream: Stream) -> None:
    kept = timed(stream, late="keep")
    assert kept.late().shape.time is None
    with pytest.raises(DefinitionError, match="comes after another operator"):
        kept.filter("price > 1").late()
    with pytest.raises(DefinitionError, match="late rows of plain, which are not kept"):
        stream.source("plain", Source(Plain)).assign_timestamps(Plain.at, 1).late()
    with pytest.raises(DefinitionError, match="late='throw'"):
        stream.source("other", Source(Plain)).assign_timestamps(Plain.at, 1, late="throw")  # type: ignore[arg-type]


def test_event_time_goes_on_by_name(stream: Stream) -> None:
    rows = timed(stream)
    assert rows.map(copied, to=Plain).shape.time == "at"
    assert rows.filter("price > 1").split("price > 2")[1].shape.time == "at"
    assert rows.map(copied, to=Nullable).shape.time is None
    assert counted(rows).shape.time is None


# what needs event time, or rows that are final


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rows: rows.key_by("page").tumbling(60),
        lambda rows: rows.key_by("page").sliding(60, 10),
        lambda rows: rows.key_by("page").session(60),
        lambda rows: rows.join(rows, on="user", within=5, to=Pairs),
    ],
    ids=["tumbling", "sliding", "session", "join"],
)
def test_windows_and_joins_need_event_time(stream: Stream, wrong: Callable[[Rows], Any]) -> None:
    with pytest.raises(DefinitionError, match=r"test_definition.py:\d+: \w+ needs event time") as raised:
        wrong(stream.source("clicks", Source()))
    assert "assign_timestamps" in (raised.value.hint or "")


def test_to_forget_nothing_must_be_asked_for(stream: Stream) -> None:
    rows = stream.source("clicks", Source())
    with pytest.raises(DefinitionError, match="deduplicate needs event time to know what it may forget"):
        rows.deduplicate("user")
    assert rows.deduplicate("user", forever=True).shape == rows.shape
    with pytest.raises(DefinitionError, match="names no field"):
        rows.deduplicate(forever=True)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rows: rows.deduplicate("page", forever=True),
        lambda rows: rows.key_by("page").count(to=PageCounts),
        lambda rows: rows.key_by("page").stateful_map(lambda k, r, s: (s, []), to=PageCounts),
    ],
    ids=["deduplicate", "count", "stateful_map"],
)
def test_no_state_is_kept_of_rows_that_are_replaced(stream: Stream, wrong: Callable[[Rows], Any]) -> None:
    with pytest.raises(DefinitionError, match="follows a running aggregate"):
        wrong(running(stream.source("clicks", Source())))


def test_a_running_aggregate_is_the_only_state(stream: Stream) -> None:
    with pytest.raises(DefinitionError, match="follows another operator with state"):
        running(counted(timed(stream)).map(copied, to=Plain))


def test_state_that_expires_does_not_go_with_batches_without_rows(stream: Stream) -> None:
    def keep(key: Any, row: Any, state: Any) -> Any:
        return state, []

    rows = timed(stream)
    with pytest.raises(DefinitionError, match="has a ttl, after an operator that brings rows when"):
        counted(rows).key_by("page").stateful_map(keep, to=PageCounts, ttl=5)
    expiring = rows.key_by("page").stateful_map(keep, to=PageCounts, ttl=5)
    output = stream.output("out", expiring, Nowhere())
    key = "spark.sql.streaming.noDataMicroBatches.enabled"
    assert spark_settings(expires=output.shape.expires)[key] == "false"
    assert spark_settings()[key] == "true"


# tables and fields


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (lambda r: r.key_by(Counts.page), DefinitionError, "names counts.page"),
        (lambda r: r.key_by("pge"), UnknownField, "did you mean 'page'"),
        (lambda r: r.key_by(), DefinitionError, "names no field"),
        (lambda r: r.key_by("page", "page"), DefinitionError, "names "),
        (lambda r: r.map(copied, to=dict), DefinitionError, "has to=<class 'dict'>"),
        (lambda r: r.map("copied", to=Plain), DefinitionError, "is given 'copied'"),
        (lambda r: r.filter(3), DefinitionError, "is given 3"),
        (lambda r: r.union(3), DefinitionError, "is given 3"),
        (lambda r: r.union(r.map(copied, to=Plain)), TypeMismatch, "rows of plain to rows of clicks"),
        (lambda r: r.key_by("page").tumbling(0), DefinitionError, "size=0"),
        (lambda r: r.key_by("page").tumbling(True), DefinitionError, "size=True"),
        (lambda r: r.key_by("page").sliding(5, 6), DefinitionError, "windows of 5 every 6"),
        (lambda r: r.key_by("user").tumbling(5).count(to=Counts), UnknownField, "has key user"),
        (lambda r: r.key_by("page").tumbling(5).count(to=Counts), DefinitionError, "finds begin, clicks"),
        (
            lambda r: r.key_by("page").tumbling(5).count(to=Counts, start=Counts.clicks),
            TypeMismatch,
            "start of the window into <field counts.clicks",
        ),
        (
            lambda r: r.key_by("page").tumbling(5).aggregate(to=Counts, start="begin"),
            UnknownField,
            "gives no clicks",
        ),
        (
            lambda r: r.key_by("page").tumbling(5).aggregate(to=Counts, start="begin", click="count(*)"),
            UnknownField,
            "gives click, which counts does not have",
        ),
        (
            lambda r: r.key_by("page").aggregate(to=PageCounts, clicks=5),
            DefinitionError,
            "has clicks=5",
        ),
        (
            lambda r: r.key_by("page").stateful_map(len, to=PageCounts, state={1}),
            DefinitionError,
            "a state at first that cannot be kept: state is of type set",
        ),
        (lambda r: r.join(r, on="user", within=5, to=Pairs), DefinitionError, "finds page on both sides"),
        (lambda r: r.join(r, on=[], within=5, to=Pairs), DefinitionError, "has no field in on"),
        (lambda r: r.join(r, on="user", within=5, to=Pairs, how="full"), DefinitionError, "how='full'"),
        (lambda r: r.join(r, on=("user", "price"), within=5, to=Pairs), TypeMismatch, "compares"),
        (lambda r: r.lookup(len, on="user", to=Counts), TypeMismatch, "leaves counts.begin null"),
    ],
)
def test_wrong_definitions_name_their_line(
    stream: Stream, wrong: Callable[[Any], Any], kind: type[DefinitionError], words: str
) -> None:
    rows = timed(stream)
    with pytest.raises(kind, match=words) as raised:
        wrong(rows)
    assert "test_definition.py:" in raised.value.what


# names, outputs and modes


def test_names_are_checked_and_there_once(stream: Stream) -> None:
    for wrong in (
        lambda: Stream("a b"),
        lambda: stream.source("a/b", Source()),
        lambda: stream.output("", stream.source("plain", Source(Plain)), Nowhere()),
    ):
        with pytest.raises(DefinitionError, match=r"test_definition.py:\d+: .*has the name"):
            wrong()
    with pytest.raises(DuplicateName, match=r"source plain has the name of the one at .*test_definition.py"):
        stream.source("plain", Source())
    rows = stream.source("other", Source(Plain))
    stream.output("out", rows, Nowhere())
    with pytest.raises(DuplicateName, match="has the name out"):
        stream.output("out", rows, Nowhere())


def test_rows_belong_to_their_stream(stream: Stream) -> None:
    theirs = Stream("theirs").source("plain", Source(Plain))
    mine = stream.source("plain", Source(Plain))
    with pytest.raises(DefinitionError, match="is given rows of stream 'theirs'"):
        stream.output("out", theirs, Nowhere())
    with pytest.raises(DefinitionError, match="is given rows of stream 'theirs'"):
        mine.union(theirs)
    with pytest.raises(DefinitionError, match="is given KeyedRows") as raised:
        stream.output("out", mine.key_by("page"), Nowhere())  # type: ignore[arg-type]
    assert "of keyed rows, an aggregate" in (raised.value.hint or "")


def test_an_output_has_all_fields_of_its_table(stream: Stream) -> None:
    with pytest.raises(UnknownField, match="nothing writes double"):
        stream.output("out", stream.source("clicks", Source()), Nowhere())


def test_modes_and_keys_follow_from_the_rows(stream: Stream) -> None:
    rows = timed(stream)
    plain = rows.map(copied, to=Plain)
    for name, made, mode, keys in (
        ("plain", plain, "append", ()),
        ("windows", counted(rows), "append", ()),
        ("running", running(rows), "update", ("page",)),
        ("filtered", running(rows).filter("clicks > 1"), "update", ("page",)),
    ):
        output = stream.output(name, made, Nowhere())
        assert (output.mode, output.keys) == (mode, keys)
    assert stream.output("u1", counted(rows), Nowhere(), mode="update").keys == ("page", "begin")
    assert stream.output("u2", plain, Nowhere(), mode="update", keys=[Plain.user]).keys == ("user",)
    assert stream.output("c1", running(rows), Nowhere(), mode="complete").keys == ()


def plain(rows: Rows) -> Rows:
    return rows.map(copied, to=Plain)


def sessions(rows: Rows) -> Rows:
    return rows.key_by("page").session(5).count(to=Counts, start="begin")


@pytest.mark.parametrize(
    ("made", "sink", "options", "words"),
    [
        (plain, Nowhere(), {"mode": "complete"}, "cannot have mode 'complete'"),
        (
            plain,
            Nowhere(),
            {"mode": "update"},
            "has mode 'update', and it is not known which fields identify",
        ),
        (plain, Nowhere(), {"keys": ["user"]}, "has keys in mode 'append'"),
        (plain, "nowhere", {}, "is given 'nowhere' for a sink"),
        (running, Nowhere(), {"mode": "append"}, "cannot have mode 'append'"),
        (running, OnlyAppend(), {}, "has mode 'update', which OnlyAppend cannot take"),
        (running, Nowhere(), {"keys": [Plain.user]}, "names plain.user"),
        (sessions, Nowhere(), {"mode": "update"}, "cannot have mode 'update'"),
    ],
)
def test_modes_that_rows_or_sinks_cannot_have_are_refused(
    stream: Stream, made: Callable[[Rows], Rows], sink: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"test_definition.py:\d+: output out {words}"):
        stream.output("out", made(timed(stream)), sink, **options)
    assert not stream.outputs


def test_everything_goes_somewhere(stream: Stream) -> None:
    with pytest.raises(DefinitionError, match="stream 'clicks' has no output"):
        stream.describe()
    kept = timed(stream, late="keep").map(copied, to=Plain)
    stream.source("unused", Source(Plain))
    stream.output("out", kept, Nowhere())
    with pytest.raises(
        DefinitionError, match="source clicks keeps its late rows, and they go into no output"
    ):
        stream.check()


def test_a_source_that_nobody_uses_is_named(stream: Stream) -> None:
    stream.source("unused", Source(Plain))
    stream.output("out", stream.source("used", Source(Plain)), Nowhere())
    with pytest.raises(
        DefinitionError, match=r"test_definition.py:\d+: source unused .* goes into no output"
    ):
        stream.check()


# the plan


def plan(lateness: float = 10, size: float = 60, function: Callable[..., Any] = copied) -> dict[str, Any]:
    stream = Stream("clicks")
    rows = stream.source("clicks", Source()).assign_timestamps(Clicks.at, lateness)
    yes, no = rows.map(function, to=Plain).split("price > 5")
    counts = yes.union(no).key_by("page").tumbling(size).count(to=Counts, start="begin")
    stream.output("counts", counts, Nowhere())
    return stream.describe()


def test_a_plan_is_data_that_tells_every_operator_once(stream: Stream) -> None:
    found = plan()
    assert json.loads(json.dumps(found)) == found
    assert found["sources"]["clicks"]["table"]["name"] == "clicks"
    assert found["sources"]["clicks"]["timestamps"] == {"field": "at", "lateness": 10.0, "late": "drop"}
    output = found["outputs"]["counts"]
    assert (output["mode"], output["keys"], output["sink"]) == ("append", [], {"kind": "nowhere"})
    assert {name: each.get("of") for name, each in output["operators"].items()} == {
        "01 source": None,
        "02 map": ["01"],
        "03 filter": ["02"],
        "04 filter": ["02"],
        "05 union": ["03", "04"],
        "06 aggregate": ["05"],
    }
    assert output["operators"]["06 aggregate"]["size"] == 60.0


def test_a_plan_changes_with_what_it_does_and_with_nothing_else() -> None:
    def other(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "price": 1}

    assert plan() == plan()
    assert plan(lateness=11)["sources"] != plan()["sources"]
    assert plan(size=61) != plan() != plan(function=other)


def test_the_place_of_a_source_is_part_of_the_plan() -> None:
    def described(source: StatefulSource) -> Any:
        stream = Stream("places")
        stream.output("out", stream.source("rows", source), Nowhere())
        found = stream.describe()
        assert json.loads(json.dumps(found)) == found
        return found

    assert described(Source(Plain))["sources"]["rows"]["place"] == {}
    here, there = (described(DirectorySource(f"/data/{name}", Plain)) for name in ("here", "there"))
    assert changes(here, here) == []
    assert changes(here, there) == [
        DefinitionChange("source rows: place files is /data/there, and was /data/here", acceptable=True)
    ]
    more = [
        DefinitionChange("source rows: place parts is 5, and was 4"),
        DefinitionChange("source rows: place rows is 7, and was 9"),
    ]
    assert changes(described(RateSource(rows=9)), described(RateSource(parts=5, rows=7))) == more


def test_code_that_extracts_the_time_is_part_of_the_plan() -> None:
    def described(extract: Callable[[pa.RecordBatch], pa.Array]) -> Any:
        stream = Stream("computed")
        rows = stream.source("computed", Source(Computed)).assign_timestamps("at", 1, extract=extract)
        stream.output("out", rows, Nowhere())
        return stream.describe()["sources"]["computed"]["timestamps"]["extract"]

    assert described(lambda batch: batch["seconds"]) != described(lambda batch: batch["user"])


def test_to_define_a_stream_spark_is_not_imported() -> None:
    program = (
        "import sys\n"
        "import penstock.streams.api.stream\n"
        "assert not {'pyspark', 'pandas', 'py4j'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
