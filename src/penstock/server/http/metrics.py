"""Metrics in Prometheus' text format, and the counting of queries that end between two looks."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.server.base import QueryInfo, QueryState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_FINAL = (QueryState.FINISHED, QueryState.FAILED, QueryState.CANCELED)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric with all its values. ``kind`` is ``counter``, with a name in _total, or ``gauge``."""

    name: str
    kind: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def one(name: str, kind: str, text: str, value: float) -> Metric:
    """A metric without labels."""
    return Metric(name, kind, text, [({}, value)])


def labelled(name: str, kind: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A metric with one label."""
    return Metric(name, kind, text, [({label: key}, value) for key, value in values.items()])


def render(metrics: Iterable[Metric]) -> str:
    """The text of an answer to a scrape."""
    lines = []
    for metric in metrics:
        if not _NAME.fullmatch(metric.name):
            raise ValueError(f"{metric.name!r} cannot name a metric")
        lines.append(f"# HELP {metric.name} {_escaped(metric.help)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.samples:
            pairs = ",".join(f'{key}="{_escaped(text, quotes=True)}"' for key, text in labels.items())
            lines.append(f"{metric.name}{f'{{{pairs}}}' if pairs else ''} {_number(value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


class Tally:
    """Counts queries, rows and bytes from lists of the last queries, each once, however often it is seen."""

    def __init__(self) -> None:
        self._ended: Counter[str] = Counter()
        self._rows = 0
        self._bytes = 0
        self._seen: dict[str, QueryInfo] = {}
        self._lock = threading.Lock()

    def look(self, infos: Sequence[QueryInfo]) -> None:
        """Take in what is known of queries now."""
        with self._lock:
            for info in infos:
                before = self._seen.get(info.id)
                # A list that was made before the one seen last must not make a counter go back.
                self._rows += max(0, info.rows - (before.rows if before else 0))
                self._bytes += max(0, info.bytes - (before.bytes if before else 0))
                if info.state in _FINAL and (before is None or before.state not in _FINAL):
                    self._ended[info.state] += 1
            self._seen = {info.id: info for info in infos}

    def metrics(self) -> list[Metric]:
        now = Counter(info.state for info in self._seen.values() if info.state not in _FINAL)
        live = {state.value.lower(): float(now[state]) for state in QueryState if state not in _FINAL}
        ended = {state.value.lower(): float(self._ended[state]) for state in _FINAL}
        return [
            labelled("penstock_queries", "gauge", "Queries that wait or run.", "state", live),
            labelled("penstock_queries_ended_total", "counter", "Queries that ended.", "state", ended),
            one("penstock_result_rows_total", "counter", "Rows of results.", self._rows),
            one("penstock_result_bytes_total", "counter", "Bytes of results as Arrow.", self._bytes),
        ]


def process() -> list[Metric]:
    """What the process takes; nothing where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return []
    size = pages * os.sysconf("SC_PAGE_SIZE")
    return [one("process_resident_memory_bytes", "gauge", "Memory of the server process.", size)]
