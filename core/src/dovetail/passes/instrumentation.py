"""Instrumentation of a pipeline: what to print, verify and write while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dovetail.errors import UsageError
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.result import Result

__all__ = ["ALL", "Instrumentation", "Progress"]

ALL = "all"

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total); `total` is 0 if unknown."""


@dataclass(frozen=True)
class Instrumentation:
    """What to print, verify and write while a pipeline runs.

    Attributes:
        print_before: Names of passes before which the model is printed; `all` means every pass.
        print_after: Names of passes after which the model is printed; `all` means every pass.
        print_on_change: Print the model after every pass that changed it.
        print_on_failure: Print the model as a failing pass left it.
        verify_each: Verify the model before the first pass and after every pass that changed it.
        stop_after: Name of the pass after whose first run the pipeline stops, or empty.
        reproducer: File to write if a pass fails unexpectedly, or None.
        reproducer_weights: Write the weights into it, too; by default only their extents and types.
        out: Stream for printed models; standard error by default.
        progress: Called before every step.
        finished: Called with the result of the run, with timing and statistics.
    """

    print_before: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    print_on_change: bool = False
    print_on_failure: bool = False
    verify_each: bool = True
    stop_after: str = ""
    reproducer: Path | None = None
    reproducer_weights: bool = False
    out: TextIO | None = None
    progress: Progress | None = None
    finished: Callable[[Result], None] | None = None

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names of passes that are not in the pipeline and would silently have no effect.

        Raises:
            UsageError: A name to print or to stop at is not among `names`.
        """
        names = set(names)
        for name in (*self.print_before, *self.print_after, *filter(None, [self.stop_after])):
            if name not in names and (name != ALL or name == self.stop_after):
                raise UsageError(f"the pipeline has no pass {name!r}{did_you_mean(name, names)}")

    def print(self, when: str, name: str, model: Model) -> None:
        """Print the model under a heading."""
        out = self.out or sys.stderr
        out.write(f"// ----- {when} {name} -----\n{str(model).rstrip()}\n")
        out.flush()
