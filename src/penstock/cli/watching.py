"""``--watch``: showing an answer again whenever it has changed."""

from __future__ import annotations

import io
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import JsonOutput, Output, Shown, TextOutput
from penstock.cli.signals import Signals
from penstock.core.json_values import plain
from penstock.errors import StoreUnavailable

if TYPE_CHECKING:
    from penstock.store import Store

_JUDGE_EVERY = 0.5
_LOOK_EVERY = 0.1


def with_watch(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option ``--watch [SECONDS]``: None if it is not given, infinite without a number."""
    return click.option(
        "--watch",
        "seconds",
        is_flag=False,
        flag_value=math.inf,
        type=click.FloatRange(min=0),
        metavar="[SECONDS]",
        help="Show it again whenever it changes, for so many seconds or until Ctrl-C.",
    )(function)


class Display(ABC):
    """Where a watched answer is shown."""

    @abstractmethod
    def show(self, value: Shown, changed: bool) -> None:
        """The answer as it is now; ``changed`` says whether it is another one than before."""

    def running(self) -> AbstractContextManager[object]:
        """Surrounds the whole watch."""
        return nullcontext()


class JsonDisplay(Display):
    """One JSON object per line, for each change."""

    def __init__(self, output: Output) -> None:
        self._out = output.out

    def show(self, value: Shown, changed: bool) -> None:
        if changed:
            print(json.dumps(plain(value.to_json())), file=self._out, flush=True)


class PagesDisplay(Display):
    """The whole text again for each change, under the time of day."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, value: Shown, changed: bool) -> None:
        if changed:
            print(f"--- {time.strftime('%H:%M:%S')}", file=self._output.out)
            self._output.show(value)


class Redrawn(Display):
    """A terminal on which the text stays in its place."""

    def __init__(self, output: Output) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=output.out)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def running(self) -> AbstractContextManager[object]:
        return self._live

    def show(self, value: Shown, changed: bool) -> None:
        del changed  # the time of day goes on, so that people see that it is alive
        from rich.text import Text

        text = _Terminal()
        TextOutput(out=text).show(value)
        head = f"{time.strftime('%H:%M:%S')}  Ctrl-C ends\n\n"
        self._live.update(Text.from_ansi(head + text.getvalue()), refresh=True)


class _Terminal(io.StringIO):
    """Takes what a terminal would be given."""

    def isatty(self) -> bool:
        return True


def display(output: Output) -> Display:
    """The right kind for where it is shown."""
    if isinstance(output, JsonOutput):
        return JsonDisplay(output)
    return Redrawn(output) if output.out.isatty() else PagesDisplay(output)


def watch(output: Output, store: Store, prefix: str, look: Callable[[], Shown], seconds: float) -> None:
    """Show what ``look`` gives, again and again, for so many seconds or until a signal ends it.

    It looks when something under ``prefix`` changes, and every half second for what no document tells:
    that a session has ended.
    """
    shown = display(output)
    try:
        with Signals(_interrupt), shown.running():
            _watch(output, store, prefix, look, shown, time.monotonic() + seconds)
    except KeyboardInterrupt:
        return


def _watch(
    output: Output, store: Store, prefix: str, look: Callable[[], Shown], shown: Display, deadline: float
) -> None:
    before: Shown | None = None
    lost = False
    while True:
        began = time.monotonic()
        try:
            since = store.revision()
            now = look()
            shown.show(now, changed=now != before)
            before, lost = now, False
            store.watch(prefix, since, max(0.0, min(_JUDGE_EVERY, deadline - time.monotonic())))
        except StoreUnavailable as error:
            if before is None:
                raise
            if not lost:
                output.say(f"the store does not answer, trying again: {error.what}")
            lost = True
        if time.monotonic() >= deadline:
            return
        # A busy cluster changes all the time; nobody can read that fast.
        time.sleep(max(0.0, began + _LOOK_EVERY - time.monotonic()))


def _interrupt(_: str) -> None:
    raise KeyboardInterrupt
