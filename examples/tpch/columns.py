"""What several queries share."""

from __future__ import annotations

import os
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock import Resource


def revenue() -> Column:
    """What a line item brings in."""
    return F.col("l_extendedprice") * (1 - F.col("l_discount"))


scale = Resource("scale", load=lambda: Decimal(os.environ.get("TPCH_SCALE", "1")))
"""The scale factor of the data. Query 11 looks for parts whose share depends on it."""
