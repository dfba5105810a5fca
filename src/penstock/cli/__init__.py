"""The command line. Importing it loads click and nothing that is heavier."""

from __future__ import annotations


def main() -> None:
    """What the program ``penstock`` runs."""
    from penstock.cli.app import penstock

    penstock.main(prog_name="penstock")
