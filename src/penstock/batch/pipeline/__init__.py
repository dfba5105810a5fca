"""Typed pipelines: transforms over tables, cut into stages."""

from __future__ import annotations

from penstock.batch.pipeline.dataset import Dataset
from penstock.batch.pipeline.pipeline import DatasetFactory, Pipeline
from penstock.batch.pipeline.resources import Resource
from penstock.batch.pipeline.stages import Bound, Stage
from penstock.batch.pipeline.transforms import (
    Retry,
    Transform,
    arrow_transform,
    everything,
    partition,
    transform,
)

__all__ = [
    "Bound",
    "Dataset",
    "DatasetFactory",
    "Pipeline",
    "Resource",
    "Retry",
    "Stage",
    "Transform",
    "arrow_transform",
    "everything",
    "partition",
    "transform",
]
