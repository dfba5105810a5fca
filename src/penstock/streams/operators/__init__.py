"""What is made of a stream's rows: typed operators, and how they become a Structured Streaming query.

`Rows`, `KeyedRows` and `WindowedRows` are what people write; each call adds a `Node` to a plan that is plain
data. `Query` compiles the plan of one output.
"""

from __future__ import annotations
