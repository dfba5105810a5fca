"""Dropping a run: this very one, whatever has happened to its name meanwhile.

First a note says what is being dropped, then the run's record goes, if it is still the one that was meant,
then its files and documents, and the note last. A process that dies in between leaves the note, and
`finish` does the rest. Everything that is deleted carries the run's id.
"""

from __future__ import annotations

from penstock.batch import inputs
from penstock.batch.runs import gc, layout, runs
from penstock.batch.runs.runs import Run
from penstock.core.failpoints import reach
from penstock.errors import RunError
from penstock.storage import Storage
from penstock.store import Document, Store


def drop(store: Store, storage: Storage, run: Run) -> None:
    """Remove a run with all its files, published output and inputs of its own included.

    `RunError` if it was removed meanwhile, also if there is another one of its name by now.
    """
    _forget(store, run)
    reach("drop.forgotten")
    finish(store, storage, run)


def finish(store: Store, storage: Storage, run: Run) -> None:
    """Remove what is left of a run that is forgotten. Harmless when repeated."""
    for table, name in run.registered.items():
        if name == runs.own_input(run.name, table):
            _drop_input(store, storage, run, table, name)
    storage.delete(layout.run_folder(run.key))
    output = run.output_storage
    folders = {path.rsplit("/", maxsplit=path.count("/") - 2)[0] for path, _ in gc.outputs(run)}
    for folder in sorted(folders):
        output.delete(folder)
    for folder in sorted({folder.rpartition("/")[0] for folder in folders}):
        output.remove_folder(folder)
    output.remove_folder(run.name)
    reach("drop.emptied")
    _clear(store, run)


def half_dropped(store: Store) -> list[Run]:
    """Runs whose drop began and did not come to its end."""
    noted = [
        runs.RUN.decode(document.key, document.value)
        for document in store.scan("runs/")
        if document.key.endswith("/dropped")
    ]
    return [run for run in noted if (now := runs.find(store, run.name)) is None or now.id != run.id]


def check_idle(store: Store, run: Run) -> None:
    """Raise `RunError` while instances work on a run."""
    summary = runs.summary(store, run)
    if summary and (alive := summary.claimed.partitions - summary.expired.partitions):
        partitions = "1 partition is" if alive == 1 else f"{alive} partitions are"
        raise RunError(
            f"instances work on run {run.name!r} now: {partitions} claimed",
            left="nothing was removed",
            hint=f"stop them first; `penstock runs show {run.name}` names them",
        )


def _drop_input(store: Store, storage: Storage, run: Run, table: str, name: str) -> None:
    inputs.drop(
        store,
        storage,
        name,
        registration=run.registrations.get(table),
        digest=run.inputs[table],
        # One that was started meanwhile, under this name, with the same data.
        needed=lambda: bool(runs.using(store, name, run.inputs[table])),
    )


def _forget(store: Store, run: Run) -> None:
    _record(store, run)
    store.cas(_note(run), 0, runs.RUN.encode(run))
    while True:
        try:
            document = _record(store, run)
        except RunError:
            _delete(store, store.get(_note(run)))
            raise
        if store.cas(document.key, document.version, None) is not None:
            return


def _record(store: Store, run: Run) -> Document:
    """The record of exactly this run."""
    document = store.get(runs.key(run.name))
    if document is None:
        raise RunError(
            f"run {run.name!r} was removed meanwhile", left="nothing was removed", hint="penstock runs ls"
        )
    if runs.RUN.decode(document.key, document.value).id != run.id:
        raise RunError(
            f"run {run.name!r} was removed meanwhile, and another one of this name was started",
            left="nothing was removed",
            hint=f"look at it before you remove that one too: penstock runs show {run.name}",
        )
    return document


def _clear(store: Store, run: Run) -> None:
    for document in list(store.scan(f"runs/{run.key}/")):
        if document.key != _note(run):
            _delete(store, document)
    _delete(store, store.get(_note(run)))


def _delete(store: Store, document: Document | None) -> None:
    if document is not None:
        store.cas(document.key, document.version, None)


def _note(run: Run) -> str:
    return f"runs/{run.key}/dropped"
