"""Pipelines: sequences of passes that can be parsed, edited, printed and run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.plugin.steps import Step, StepList, names_in, passes_in

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes.instrumentation import Instrumentation
    from dovetail.planning.request import Request
    from dovetail.plugin.context import Context
    from dovetail.plugin.loading.registry import Registry
    from dovetail.plugin.pass_result import Result


class Pipeline(StepList):
    """Steps in order that can be parsed, cut into parts and run.

    Attributes:
        whole: The pipeline that this one was cut from, or None; instrumentation may name any of its passes.
    """

    def __init__(self, steps: Iterable[Step] = (), whole: Pipeline | None = None):
        super().__init__(steps)
        self.whole = whole

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
        from dovetail.passes.rounds import run_pipeline
        from dovetail.plugin.context import Context

        if not isinstance(context, Context):
            from dovetail.plugin.loading.loader import load_plugins

            context = Context(context, plugins=load_plugins())
        return run_pipeline(self, model, context, instrumentation)

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
