"""Running pipelines in batch: claims, checkpoints, output."""

from __future__ import annotations

from penstock.runner.events import Event, Report
from penstock.runner.options import Checkpointing, EveryNStages, EveryStage, Never, RunnerConfig
from penstock.runner.output import Output
from penstock.runner.runner import Runner
from penstock.runner.verification import Verification, verify

__all__ = [
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
