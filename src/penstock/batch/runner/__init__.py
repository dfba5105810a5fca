"""Running pipelines in batch: claims, checkpoints, output."""

from __future__ import annotations

from penstock.batch.runner.events import Event, Report
from penstock.batch.runner.runner import Runner
from penstock.batch.runs.options import Auto, Checkpointing, EveryNStages, EveryStage, Never, RunnerConfig
from penstock.batch.runs.output import Output
from penstock.batch.runs.verification import Verification, verify

__all__ = [
    "Auto",
    "Checkpointing",
    "Event",
    "EveryNStages",
    "EveryStage",
    "Never",
    "Output",
    "Report",
    "Runner",
    "RunnerConfig",
    "Verification",
    "verify",
]
