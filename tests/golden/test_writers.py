"""Every module that makes JSON or Arrow files is known: what it writes has golden files, or does not last."""

from __future__ import annotations

import re
from pathlib import Path

import penstock.errors
from tests.golden.formats import GOLDEN

ROOT = Path(penstock.errors.__file__).parent
WRITES = re.compile(
    r"\b(?:(?:json|pickle|cloudpickle)\.(?:dumps?|JSONEncoder)|pa\.ipc\.new_\w+)\("
    r"|(?:=|return) DocumentFormat\(|\b(?:COMPACT|SPACED|SORTED|READABLE)\.encode\("
)

# By module, what of the golden files it writes.
LASTING = {
    "control/catalog/codec.py": ["catalog/head.json"],
    "certs/records.py": ["certs/issued.json"],
    "control/claims/codec.py": ["claims/shard.txt"],
    "control/claims/geometry.py": ["claims/board.json"],
    "control/cluster/documents/codec.py": [
        "cluster/control.json",
        "cluster/decision.json",
        "cluster/ack.json",
    ],
    "server/access/tokens.py": ["gateway/bearer-token.txt"],
    "server/access/users.py": ["gateway/user.json"],
    "server/roles/worker_records.py": ["gateway/worker.json"],
    "server/relations/spec.py": ["catalog/table.sql", "catalog/view.sql"],
    "batch/inputs/index.py": ["inputs/index.arrow"],
    "batch/inputs/model.py": ["inputs/document.json", "inputs/files.json", "inputs/digests.txt"],
    "batch/inputs/replaced.py": ["inputs/document.json"],
    "journals/format/documents.py": ["journals/document.jsonl", "journals/ack.jsonl"],
    "batch/pipeline/resources.py": ["pipeline/fingerprint.json"],
    "batch/runs/manifests.py": ["runs/checkpoint.json", "runs/output.json"],
    "batch/runs/runs.py": ["runs/run.json", "runs/run-phases.json", "runs/dropped.json"],
    "batch/exchange/ordering.py": ["runs/exchange-plan-sorted.json"],
    "batch/exchange/packing.py": ["runs/exchange-plan.json"],
    "batch/exchange/run_files.py": ["runs/output-exchange.json"],
    "batch/runs/pacing.py": ["runs/costs.json"],
    "journals/shuffle/queues/run_files.py": ["streams/run.arrow"],
    "sources/journals.py": ["streams/definition.json"],
    "sources/state.py": ["sources/state.txt"],
    "store/objects/sessions.py": ["stores/object-session.json"],
    "store/objects/versions.py": ["stores/object.json"],
    "streams/outputs/claims.py": ["streams/output-claim.json"],
    "streams/log/readers.py": ["streams/position.json", "streams/hold.json"],
    "streams/ingest/jobs/intake.py": ["streams/rows.arrow"],
    "streams/model.py": ["streams/portion.json", "streams/brought.json", "streams/standing.json"],
    "streams/log/source_options.py": ["streams/options.json"],
    "streams/place.py": ["streams/place.json"],
    "streams/registry.py": ["streams/record.json"],
    "streams/ingest/absent_journals.py": ["streams/absent.json"],
    "streams/ingest/finished_parts.py": ["streams/states.json", "streams/finished.json"],
    "streams/ingest/part_lists.py": ["streams/listing.json"],
    "streams/log/segments.py": ["streams/log.json", "streams/segment.json"],
    "streams/ingest/journal_states.py": ["sources/journal.txt"],
    "streams/ingest/shuffle_files.py": ["streams/report.json", "streams/session.json"],
    "sinks/parquet/document.py": ["sinks/table.json"],
    "sinks/parquet/manifests.py": ["sinks/manifest.json"],
    "streams/supervisors.py": ["streams/supervisor.json"],
}
# What is said to another process or to a person, lasts no longer than a process, has a format of others, or
# is declared elsewhere.
PASSING = {
    "core/codec.py",
    "workers/children.py",
    "control/claims/model.py",
    "cli/commands/certs.py",
    "cli/commands/instance.py",
    "cli/commands/serve.py",
    "cli/actions/joining.py",
    "cli/output.py",
    "cli/watching.py",
    "control/cluster/peer.py",
    "sql/rules/json/text.py",
    "server/engine/planning/explaining.py",
    "server/engine/planning/inlining.py",
    "server/engine/results/spool.py",
    "server/flight/faults.py",
    "server/flight/identity.py",
    "server/pgwire/encode/text.py",
    "server/roles/worker_admission.py",
    "server/roles/worker.py",
    "server/shadow/catalog/session_tables.py",
    "server/system/shapes.py",
    "server/http/encoding.py",
    "server/http/parameters.py",
    "server/http/queries.py",
    "batch/inputs/counting.py",
    "batch/inputs/materialise.py",
    "batch/runs/output.py",
    "sources/conformance.py",
    "spark/faults.py",
    "spark/plans/local_analysis.py",
    "spark/files.py",
    "spark/session.py",
    "streams/ingest/jobs/poll_watch.py",
    "streams/ingest/jobs/task_results.py",
    "streams/log/spark_source.py",
    "sinks/conformance.py",
    "sinks/delta/files.py",
    "sinks/delta/stats.py",
    "sinks/delta/table.py",
}


def writes(path: Path) -> bool:
    return WRITES.search(path.read_text()) is not None


def test_every_writer_is_known() -> None:
    """A module that is new, or was moved, gets its line above; if what it writes lasts, with golden files."""
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if writes(path)}
    assert found == LASTING.keys() | PASSING


def test_what_lasts_has_golden_files() -> None:
    assert not LASTING.keys() & PASSING
    assert {path for each in LASTING.values() for path in each} <= {golden.path for golden in GOLDEN}
