"""Instrumentation of a pipeline: what to print, verify and write during a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dovetail.errors import UsageError
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.plugin.context import Progress
    from dovetail.plugin.pass_ import Pass
    from dovetail.plugin.pass_result import PassResult, Result

ALL = "all"


@dataclass(frozen=True)
class Instrumentation:
    """What to print, verify and write during a pipeline run.

    Attributes:
        print_before: Names of passes before which the model is printed; `all` means every pass.
        print_after: Names of passes after which the model is printed; `all` means every pass.
        print_on_change: Print the model after every pass that changed it.
        print_on_failure: Print the model as a failing pass left it.
        verify_each: Verify the model before the first pass and after every pass that changed it.
        stop_after: Name of the pass after whose first run the pipeline stops, or empty.
        reproducer: File to write if a pass fails unexpectedly, or None.
        reproducer_weights: Include the weights in the reproducer; by default only their shapes and types.
        out: Stream for printed models; standard error by default.
        progress: Called before every step.
        passed: Called after every pass with the pass, the model, which it must not change, and what the pass did.
        finished: Called with the result of the run, which has timing and statistics.
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
    passed: Callable[[Pass, Model, PassResult], None] | None = None
    finished: Callable[[Result], None] | None = None

    def check_names(self, names: Iterable[str]) -> None:
        """Reject names of passes that are not in the pipeline, which would silently have no effect.

        Raises:
            UsageError: A pass to print or to stop after is not among `names`.
        """
        names = set(names)
        for name in (*self.print_before, *self.print_after, *filter(None, [self.stop_after])):
            if name not in names and (name != ALL or name == self.stop_after):
                raise UsageError(f"the pipeline has no pass {name!r}{did_you_mean(name, names)}")


class Printer:
    """Prints the model as instrumentation requests; its methods take part in the hooks of the same names.

    Attributes:
        where: The region of the current nested pipeline, for headings; empty for the whole model.
    """

    def __init__(self, watch: Instrumentation):
        self._watch = watch
        self.where = ""

    def before_pass(self, pass_: Pass, model: Model) -> None:
        """Print the model before a pass, if requested."""
        if {pass_.name, ALL} & set(self._watch.print_before):
            self._print("before", pass_, model)

    def after_pass(self, pass_: Pass, model: Model, result: PassResult) -> None:
        """Print the model after a pass, if requested, and call what the caller of the pipeline gave."""
        watch = self._watch
        if {pass_.name, ALL} & set(watch.print_after) or (watch.print_on_change and result.changed):
            self._print("after", pass_, model)
        if watch.passed:
            watch.passed(pass_, model, result)

    def pass_failed(self, pass_: Pass, model: Model) -> None:
        """Print the model that a failing pass left, if requested."""
        if self._watch.print_on_failure:
            self._print("failed in", pass_, model)

    def _print(self, when: str, pass_: Pass, model: Model) -> None:
        text = f"// ----- {when} {pass_}{self.where} -----\n{str(model).rstrip()}"
        print(text, file=self._watch.out or sys.stderr, flush=True)
