"""How Spark is told where a file is."""

from __future__ import annotations


def for_spark(location: str) -> str:
    """A path of this machine, or an URL, as an URL for Spark.

    Spark would look for a bare path in the cluster's default file system, which may be another one.
    It takes the URL as it is written: nothing in it is percent-encoded.
    """
    return location if "://" in location else f"file://{location}"
