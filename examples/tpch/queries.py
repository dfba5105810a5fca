"""The 22 queries of TPC-H: a pipeline for each, and one that answers all of them in one run."""

from __future__ import annotations

from penstock import Pipeline
from tpch.q1_to_q4 import q1, q2, q3, q4
from tpch.q5_to_q8 import q5, q6, q7, q8
from tpch.q9_to_q12 import q9, q10, q11, q12
from tpch.q13_to_q17 import q13, q14, q15, q16, q17
from tpch.q18_to_q22 import q18, q19, q20, q21, q22
from tpch.tables import Customer, Lineitem, Nation, Orders, Part, Partsupp, Region, Supplier

queries = [
    *(q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11),
    *(q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
]
"""All of them, in their order."""

tpch = Pipeline(
    "tpch",
    inputs=[Lineitem, Orders, Customer, Part, Partsupp, Supplier, Nation, Region],
    outputs=[table for query in queries for table in query.outputs],
    transforms=[transform for query in queries for transform in query.transforms],
)
