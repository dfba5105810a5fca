"""The 22 queries of TPC-H as pipelines."""
