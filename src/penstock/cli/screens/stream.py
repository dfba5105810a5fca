"""How streams look as text. What is in the views, `penstock.streams.views.views` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Block, Facts, Grid, amount, count, size
from penstock.cli.screens.cluster import moment
from penstock.core.json_values import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.streams.log.readers import ReaderPosition
    from penstock.streams.registry import StreamRecord
    from penstock.streams.views.views import OutputView, RescaleView, StreamView

_WIDEST = 60


def status(view: StreamView) -> list[Block]:
    pairs = [
        ("stream", f"{view.name} ({view.id}): {_state(view)}"),
        ("created", moment(view.created)),
        ("epoch", _epoch(view)),
        ("rows", f"{amount(view.rows)} retained ({size(view.bytes)}){_speed(view)}"),
        ("queue", _queue(view)),
        ("parts", f"{amount(view.parts)}, {amount(view.finished)} finished"),
        ("instances", _instances(view)),
    ]
    if view.late:
        pairs.insert(4, ("late rows", amount(view.late)))
    if view.rescale is not None:
        pairs.append(("last rescale", _rescale(view.rescale)))
    blocks: list[Block] = [Facts(pairs)]
    for grid in (_members(view), _sources(view), _outputs(view.outputs)):
        if grid.rows:
            blocks += ["", grid]
    problems = [each.problem for each in view.sources if each.problem]
    problems += [f"output {each.name}: {each.problem}" for each in view.outputs if each.problem]
    return [*blocks, *([""] if problems else []), *problems]


def every(views: Sequence[StreamView]) -> list[Block]:
    """All streams: the whole screen where there is one, a line for each where there are several."""
    return status(views[0]) if len(views) == 1 else listing(views)


def listing(views: Sequence[StreamView]) -> list[Block]:
    headers = ("stream", "state", "wanted", "instances", "epoch", "rows/s", "retained", "outputs behind")
    rows = [
        (
            view.name,
            view.state,
            view.wanted,
            str(len(view.instances)),
            str(view.epoch),
            "-" if view.speed is None else amount(view.speed),
            size(view.bytes),
            amount(sum(each.behind_rows for each in view.outputs)),
        )
        for view in views
    ]
    return [Grid(headers, rows, right=("instances", "epoch", "rows/s", "retained", "outputs behind"))]


def readers(found: Sequence[ReaderPosition]) -> list[Block]:
    rows = [(each.reader, _kept(each), str(each.epoch), moment(each.at)) for each in found]
    return [Grid(("reader", "kept", "has epochs up to", "since"), rows, right=("has epochs up to",))]


def _kept(position: ReaderPosition) -> str:
    if position.session:
        return "until it ends"
    return f"output {position.output}" if position.output else "named"


def definition(found: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    for name, source in found["sources"].items():
        blocks += [f"source {name}", Facts(_settings(source)), ""]
    for name, output in found["outputs"].items():
        rest = {key: value for key, value in output.items() if key != "operators"}
        blocks += [f"output {name}", Facts(_settings(rest)), _operators(output["operators"]), ""]
    return blocks[:-1]


def _operators(found: Mapping[str, Any]) -> Grid:
    """What is made of the rows, step by step."""
    rows = [
        (*key.split(" ", 1), ", ".join(each.get("of", ())) or "-", _told(each)) for key, each in found.items()
    ]
    return Grid(("step", "operator", "takes", "with"), rows)


def _told(operator: Mapping[str, Any]) -> str:
    settings = _settings({key: value for key, value in operator.items() if key != "of"})
    return "; ".join(f"{name.strip()} {text}" for name, text in settings)


def _settings(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Named values; a digest says nothing to people, and the name of a table says it all."""
    return [
        (f"  {' '.join(path)}", text)
        for path, text in _flat(value)
        if path[-1] not in ("schema", "code") and text != "-"
    ]


def _flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _flat(each, (*path, str(key)))
    elif isinstance(value, list | tuple):
        yield path, ", ".join(map(str, value)) or "-"
    else:
        yield path, "-" if value in (None, {}, "") else str(value)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a stream is wanted to do from now on."""

    record: StreamRecord
    done: str

    def to_json(self) -> dict[str, Any]:
        record = self.record
        return {
            "stream": record.name,
            "id": record.id,
            "wanted": record.wanted,
            "instances": record.instances,
        }

    def blocks(self) -> list[Block]:
        return [f"{self.record.name}: {self.done}"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A stream that is gone, with its files."""

    record: StreamRecord
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.record.name,
            "id": self.record.id,
            "files": self.files,
            "bytes": self.bytes,
        }

    def blocks(self) -> list[Block]:
        return [f"{self.record.name}: removed, with {count(self.files, 'file')} ({size(self.bytes)})"]


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Some rows, the newest last."""

    table: pa.Table | None

    def to_json(self) -> list[dict[str, Any]]:
        rows = self.table.to_pylist() if self.table is not None else []
        return [{name: _json(value) for name, value in row.items()} for row in rows]

    def blocks(self) -> list[Block]:
        if self.table is None:
            return ["no rows"]
        rows = [[_cell(value) for value in row.values()] for row in self.table.to_pylist()]
        return [Grid(self.table.column_names, rows)]


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return plain(value)


def _cell(value: Any) -> str:
    text = "-" if value is None else str(_json(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _state(view: StreamView) -> str:
    text = view.state.upper() if view.state == "failing" else str(view.state)
    if view.state not in (view.wanted, "ended", "starting", "failing", "stopping"):
        text += f" (wanted: {view.wanted})"
    return f"{text}: {view.reason}" if view.reason and view.state == "failing" else text


def _epoch(view: StreamView) -> str:
    if not view.epoch:
        return "none yet"
    return f"{amount(view.epoch)}, readable from {amount(view.oldest)}"


def _queue(view: StreamView) -> str:
    text = f"{view.queue:.0%} of {size(view.queue_bytes)}"
    return f"{text}, kept for {', '.join(view.held_back)}" if view.held_back else text


def _speed(view: StreamView) -> str:
    return "" if view.speed is None else f", {amount(view.speed)} rows/s lately"


def _instances(view: StreamView) -> str:
    wanted = "" if view.instances_wanted is None else f" of {view.instances_wanted} wanted"
    text = f"{len(view.instances)}{wanted}, {f'{view.leader} leads' if view.leader else 'nobody leads'}"
    hosts = ", ".join(f"{each.host} (process {each.pid})" for each in view.supervisors)
    return f"{text}\nsupervised on {hosts}" if hosts else text


def _rescale(found: RescaleView) -> str:
    """What is known of it: the records that figures are computed from are not kept for ever."""
    share = "" if found.moved is None else f"{found.moved:.0%} of the parts moved"
    pause = "" if found.pause is None else f"paused for {found.pause:.2f} s"
    known = ", ".join(filter(None, (share, pause)))
    return f"to {', '.join(found.members)}{f': {known}' if known else ''}"


def _members(view: StreamView) -> Grid:
    headers = ("instance", "state", "parts", "finished")
    rows = [
        (
            each.member,
            f"{each.state}, leads" if each.leads else each.state,
            amount(each.parts),
            amount(each.finished),
        )
        for each in view.instances
    ]
    return Grid(headers, rows, right=("parts", "finished"))


def _sources(view: StreamView) -> Grid:
    headers = ("source", "parts", "finished", "newest event", "lag")
    rows = [
        (
            each.name,
            amount(each.parts),
            amount(each.finished),
            moment(each.newest) if each.newest else "-",
            "-" if each.lag is None else f"{each.lag:,.1f} s",
        )
        for each in view.sources
    ]
    return Grid(headers, rows, right=("parts", "finished", "lag"))


def _outputs(outputs: Sequence[OutputView]) -> Grid:
    headers = ("output", "run by", "batch", "epoch", "behind", "sink", "delivery")
    rows = [
        (
            each.name,
            "finished" if each.finished else each.owner or "nobody",
            "-" if each.batch is None else str(each.batch),
            str(each.epoch) if each.epoch else "-",
            f"{count(each.behind_epochs, 'epoch')}, {count(each.behind_rows, 'row')}",
            ", ".join(each.sink.values()) or "-",
            _delivery(each),
        )
        for each in outputs
    ]
    return Grid(headers, rows, right=("batch", "epoch"))


def _delivery(output: OutputView) -> str:
    if output.exactly_once is None:
        return "-"
    return "exactly once" if output.exactly_once else "at least once"
