"""What a committed epoch says of the shuffle of journals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.codec import DocumentFormat
from penstock.journals.shuffle.visibility.coordinator import ShuffleState, SliceReport
from penstock.storage import Storage
from penstock.streams.model import Pointer, Standing


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A file with a `SliceReport`, which has a version of its own."""

    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A file with a `ShuffleState`, which has a version of its own."""

    session: Mapping[str, Any]


REPORT = DocumentFormat(ReportFile, "a report about journals", ignores_unknown=True)
SESSION = DocumentFormat(SessionFile, "the state of a shuffle", ignores_unknown=True)


def read_session(
    storage: Storage,
    standings: Sequence[Standing],
    known: Mapping[Pointer, ShuffleState | SliceReport] | None = None,
) -> tuple[ShuffleState, Pointer | None, list[SliceReport]]:
    """What an epoch committed of the shuffle: where it stood before, which file says so, and all reports.

    ``known`` is what need not be read.
    """
    known = known or {}
    found: list[tuple[ShuffleState, Pointer | None]] = []
    reports = []
    for standing in standings:
        if standing.session is not None:
            session = known.get(standing.session)
            if not isinstance(session, ShuffleState):
                session = ShuffleState.from_json(standing.session.read(storage, SESSION).session)
            found.append((session, standing.session))
        if standing.report is not None:
            report = known.get(standing.report)
            if not isinstance(report, SliceReport):
                report = SliceReport.from_json(standing.report.read(storage, REPORT).report)
            reports.append(report)
    session, pointer = max(found, key=lambda pair: pair[0].taken, default=(ShuffleState(), None))
    return session, pointer, reports


def waiting_runs(storage: Storage, standings: Iterable[Standing]) -> set[str]:
    """The run files that an epoch refers to, also those that it made needless."""
    session, _, reports = read_session(storage, list(standings))
    files = (*session.waiting, *(file for each in reports for file in (*each.files, *each.held)))
    return {*(file.record.path for file in files), *session.spent}
