"""Pipelines: sequences of passes that can be parsed, edited, printed and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes.steps import Step, names_in, passes_in
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.base import Pass
    from dovetail.passes.context import Context
    from dovetail.passes.instrumentation import Instrumentation
    from dovetail.passes.request import Request
    from dovetail.passes.result import Result
    from dovetail.plugin.registry import Registry


class Pipeline:
    """Steps in order: passes, fixpoints, and nested pipelines.

    Attributes:
        steps: The steps, which may be edited until the pipeline runs.
        whole: The pipeline that this one was cut from, or None; instrumentation may name any of its passes.
    """

    def __init__(self, steps: Iterable[Step] = (), whole: Pipeline | None = None):
        self.steps: list[Step] = list(steps)
        self.whole = whole
        self._before: dict[int, Step] = {}  # by `id`, the step that another one was inserted before

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
        """Run every step over `model`, in place; repeat from `place` on for as long as a pass rejects a decision.

        Args:
            model: The model to change.
            context: The context of the run, or a request, which gets a new context with all installed plugins.
            instrumentation: What to print, verify and write; by default, verify after each change.

        Raises:
            DovetailError: A pass rejected the model, failed, or left it invalid; or a pass rejected a decision, and
                this pipeline has no pass that decides again.
        """
        from dovetail.passes.context import Context
        from dovetail.passes.rounds import run_pipeline

        if not isinstance(context, Context):
            from dovetail.plugin.loader import load_plugins

            context = Context(context, plugins=load_plugins())
        return run_pipeline(self, model, context, instrumentation)

    def passes(self) -> Iterator[Pass]:
        """Yield every pass in order, including those in fixpoints and nested pipelines."""
        return passes_in(self.steps)

    def parts(self, groups: Sequence[Sequence[str]]) -> list[Pipeline]:
        """Cut a composed pipeline into one per group of stages; the groups are consecutive.

        A step goes where its first pass with a stage belongs, but never before the preceding steps. A step without a
        stage stays with the step it was inserted before, else with the preceding one.

        Args:
            groups: The stages of each part, in order; together, all stages of the pipeline.
        """
        place = {stage: number for number, group in enumerate(groups) for stage in group}

        def own(step: Step) -> int | None:
            stages = (pass_.stage for pass_ in passes_in([step]))
            return next((place[stage] for stage in stages if stage in place), None)

        parts = [Pipeline(whole=self) for _ in groups]
        current = 0
        for step in self.steps:
            number = own(step)
            if number is None and id(step) in self._before:
                number = own(self._before[id(step)])
            current = max(current, number or 0)
            parts[current].steps.append(step)
        return parts

    def names(self) -> list[str]:
        """Return the pass names that instrumentation may use: those of this pipeline and of the one it was cut from."""
        return list(names_in((self.whole or self).steps))

    def index(self, name: str) -> int:
        """Return the position of the first step that is, or contains, the pass `name`.

        Raises:
            DovetailError: There is no such step.
        """
        for position, step in enumerate(self.steps):
            if name in names_in([step]):
                return position
        raise DovetailError(f"no pass {name!r} in this pipeline{did_you_mean(name, names_in(self.steps))}")

    def insert_before(self, name: str, step: Step) -> None:
        """Insert `step` before the first step that runs the pass `name`."""
        position = self.index(name)
        self._before[id(step)] = self.steps[position]
        self.steps.insert(position, step)

    def insert_after(self, name: str, step: Step) -> None:
        """Insert `step` after the first step that runs the pass `name`."""
        self.steps.insert(self.index(name) + 1, step)

    def __str__(self) -> str:
        return ",".join(map(str, self.steps))

    def __repr__(self) -> str:
        return f"Pipeline({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]  # Python marks unhashable classes this way

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)
