"""From journals of many producers to documents that become visible by whole transactions.

`sequencing` decides on one document, `vector` on columns of them; `frontier` says how far journals were read,
and `cuts` which transactions may be seen. All of it is pure: no file, no clock, no Spark.
"""

from __future__ import annotations
