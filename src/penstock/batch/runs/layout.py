"""Where the files of a run stand. Every path below a partition carries the claim's token."""

from __future__ import annotations

import secrets

from penstock.ranges import Range


def run_folder(run: str) -> str:
    return f"runs/{run}"


def partition_folder(run: str, partition: Range) -> str:
    return f"runs/{run}/partitions/{partition.begin:012d}-{partition.end:012d}"


def claim_folder(run: str, partition: Range, token: int) -> str:
    return f"{partition_folder(run, partition)}/{token:06d}"


def checkpoint_manifest(run: str, partition: Range, token: int, stage: int, digest: str) -> str:
    # Named by its content, as every manifest is: what was recorded can never be overwritten.
    return f"{claim_folder(run, partition, token)}/stage-{stage}-{digest[:12]}.json"


def checkpoint_folder(run: str, partition: Range, token: int, stage: int, table: str) -> str:
    # A try of the same claim that failed half-way may have left files: each try has its own folder.
    return f"{claim_folder(run, partition, token)}/stage-{stage}-{secrets.token_hex(3)}/{table}"


def output_manifest(run: str, partition: Range, token: int, digest: str) -> str:
    return f"{claim_folder(run, partition, token)}/output-{digest[:12]}.json"


def output_folder(run: str, partition: Range, token: int, table: str) -> str:
    return f"{run}/{table}/{partition.begin:012d}-{partition.end:012d}-{token:06d}-{secrets.token_hex(3)}"
