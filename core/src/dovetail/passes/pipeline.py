"""Pipelines: lists of passes that can be parsed, edited, printed and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes.steps import Step, names_in, passes_in
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.base import Pass
    from dovetail.passes.context import Context
    from dovetail.passes.instrumentation import Instrumentation
    from dovetail.passes.request import Request
    from dovetail.passes.result import Result
    from dovetail.plugin.registry import Registry

__all__ = ["Pipeline"]


class Pipeline:
    """Steps in order: passes, fixpoints, and nested pipelines.

    Attributes:
        steps: A list that may be edited until the pipeline runs.
    """

    def __init__(self, steps: Iterable[Step] = ()):
        self.steps: list[Step] = list(steps)

    @classmethod
    def parse(cls, text: str, registry: Registry) -> Pipeline:
        """Parse pipeline text; see `dovetail.passes.text` for the grammar.

        Raises:
            UsageError: The text is malformed, or names an unknown pass or option.
        """
        from dovetail.passes.text import parse_steps

        return cls(parse_steps(text, registry))

    def run(
        self, model: Model, context: Context | Request | None = None, instrumentation: Instrumentation | None = None
    ) -> Result:
        """Run every step over `model`, in place.

        Args:
            model: The model to change.
            context: The context of the run, or the request to make one for, with all installed plugins.
            instrumentation: What to print, verify and write on the way; verifies after each change by default.

        Raises:
            DovetailError: A pass refused the model, failed, or left it invalid.
        """
        from dovetail.passes.context import Context
        from dovetail.passes.manager import Manager

        if not isinstance(context, Context):
            from dovetail.plugin.loader import load_plugins

            context = Context(context, plugins=load_plugins())
        return Manager(self, context, instrumentation).run(model)

    def passes(self) -> Iterator[Pass]:
        """Return every pass in order, including those in fixpoints and nested pipelines."""
        return passes_in(self.steps)

    def index(self, name: str) -> int:
        """Return the position of the first step that is the pass `name`, or a step that contains it.

        Raises:
            DovetailError: There is no such step.
        """
        for position, step in enumerate(self.steps):
            if name in names_in([step]):
                return position
        raise DovetailError(f"no pass {name!r} in this pipeline{did_you_mean(name, names_in(self.steps))}")

    def insert_before(self, name: str, step: Step) -> None:
        """Insert `step` before the first step that runs the pass `name`."""
        self.steps.insert(self.index(name), step)

    def insert_after(self, name: str, step: Step) -> None:
        """Insert `step` after the first step that runs the pass `name`."""
        self.steps.insert(self.index(name) + 1, step)

    def __str__(self) -> str:
        return ",".join(map(str, self.steps))

    def __repr__(self) -> str:
        return f"Pipeline({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)
