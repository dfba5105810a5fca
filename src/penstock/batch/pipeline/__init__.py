"""Typed pipelines: transforms over tables, cut into stages."""

from __future__ import annotations

from penstock.pipeline.dataset import Dataset
from penstock.pipeline.pipeline import DatasetFactory, Pipeline
from penstock.pipeline.resources import Resource
from penstock.pipeline.stages import Bound, Stage
from penstock.pipeline.transforms import Retry, Transform, arrow_transform, transform

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
    "transform",
]
