"""Make the golden files of formats that have none yet. What is there is never touched."""

from __future__ import annotations

import sys

from tests.golden.formats import GOLDEN, TREES


def main() -> int:
    for golden in GOLDEN:
        if not golden.file.exists():
            data = golden.write()
            golden.file.parent.mkdir(parents=True, exist_ok=True)
            with golden.file.open("xb") as file:
                file.write(data)
            sys.stdout.write(f"made {golden.path}\n")
    for tree in TREES:
        if not tree.folder.exists():
            tree.folder.mkdir(parents=True)
            tree.make(tree.folder)
            sys.stdout.write(f"made {tree.path}/\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
