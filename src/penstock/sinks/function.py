"""A Python function for each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.core.moved import first_home
from penstock.errors import PenstockError, TransformFailed, TransientError
from penstock.sinks.base import Batch, Mode, Sink, Target, Writer
from penstock.spark.faults import found

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[["DataFrame", Batch], object]


@dataclass(frozen=True, slots=True)
class FunctionSink(Sink):
    """Calls ``function(frame, batch)`` in the driver, at least once for each batch.

    After a crash or an error the last batch comes again, with the same number and the same rows: a function
    that is to have its effect once remembers ``batch.number`` together with the effect. It must compute all
    rows of the frame also when it has seen the number before (`pass_over` does), since Spark's watermarks
    and states come from that. An owner that lost the output may still be inside the function when the
    next one begins.
    """

    function: Function

    exactly_once: ClassVar[bool] = False
    modes: ClassVar[frozenset[Mode]] = frozenset({"append", "update", "complete"})

    def open(self, target: Target) -> Writer:  # noqa: ARG002
        return _Caller(self.function, self.name)

    def describe(self) -> dict[str, str]:
        return {"kind": "function", "function": self.name}

    @property
    def name(self) -> str:
        """Module and name of the function, or of its type where it has none."""
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{first_home(named.__module__, named.__qualname__)}.{named.__qualname__}"


class _Caller(Writer):
    def __init__(self, function: Function, name: str) -> None:
        self._function, self._name = function, name

    def write(self, frame: DataFrame, batch: Batch) -> None:
        try:
            self._function(frame, batch)
        except PenstockError:
            raise
        except Exception as error:
            if fault := found(error):
                raise fault from error
            passing = isinstance(error, ConnectionError | TimeoutError)
            lines = str(error).splitlines() or [""]
            raise (TransientError if passing else TransformFailed)(
                f"{self._name} raised {type(error).__name__} in batch {batch.number}: {lines[0]}",
                left="what the function has done by then; the batch comes again",
            ) from error
