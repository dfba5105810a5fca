"""Delta Lake: executors write the data files, the driver commits them with the number of the batch."""

from __future__ import annotations
