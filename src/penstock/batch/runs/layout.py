"""Where the files of a run stand. Every path below a partition carries the claim's token."""

from __future__ import annotations

import re
import secrets

from penstock.core.ranges import Range


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


def exchanges_folder(run: str) -> str:
    """What a phase leaves for later ones. It outlives the claims that wrote it."""
    return f"runs/{run}/exchange"


def exchange_claim(run: str, partition: Range, token: int) -> str:
    """What the folders of a claim begin with."""
    return f"{exchanges_folder(run)}/{_claimed(partition, token)}"


def exchange_folder(run: str, name: str, partition: Range, token: int) -> str:
    # The name of an exchange has characters that some object stores do not take.
    told = re.sub(r"[^A-Za-z0-9_.-]", "-", name)
    return f"{exchange_claim(run, partition, token)}{secrets.token_hex(3)}/{told}"


def output_manifest(run: str, partition: Range, token: int, digest: str) -> str:
    return f"{claim_folder(run, partition, token)}/output-{digest[:12]}.json"


def output_folder(run: str, run_id: str, partition: Range, token: int, table: str) -> str:
    return f"{output_claim(run, run_id, partition, token, table)}{secrets.token_hex(3)}"


def output_claim(run: str, run_id: str, partition: Range, token: int, table: str) -> str:
    """What every folder of a claim's output begins with.

    The run's id is in it, so that a run of the same name, later or of another store, never shares a
    folder; the name comes first, because that is what people look for.
    """
    return f"{run}/{table}/{run_id}-{_claimed(partition, token)}"


def old_output_claim(run: str, partition: Range, token: int, table: str) -> str:
    """The same for a run that was begun before folders had its id."""
    return f"{run}/{table}/{_claimed(partition, token)}"


def owner_of(path: str) -> str | None:
    """The id of the run that a file below an output directory belongs to.

    Empty for a file of a run that was begun before folders had its id; None for one that no run wrote.
    """
    parts = path.split("/")
    found = _FOLDER.fullmatch(parts[2]) if len(parts) > 3 else None
    return (found["id"] or "") if found else None


def _claimed(partition: Range, token: int) -> str:
    return f"{partition.begin:012d}-{partition.end:012d}-{token:06d}-"


_FOLDER = re.compile(r"(?:(?P<id>[0-9a-f]+)-)?\d{12,}-\d{12,}-\d{6,}-[0-9a-f]{6}")
