"""Make the nodes of one step of a conversion, with what is registered for its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir.formats import Format
from dovetail.ir.fresh_names import FreshNames
from dovetail.planning.placement import Placement, set_placement
from dovetail.plugin.isolation import calling
from dovetail_transforms.rewriting import Replacement

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.conversion import Step


class Made(NamedTuple):
    """What a step is made of; the graph has none of it yet.

    Attributes:
        result: The converted value.
        nodes: The nodes that compute it, placed and named, in order.
        constants: The initializers that they read.
    """

    result: ir.Value
    nodes: list[ir.Node]
    constants: list[ir.Value]


class ConversionSteps:
    """Makes the steps of the conversions of one model."""

    def __init__(self, model: Model, ctx: Context):
        self._model, self._ctx = model, ctx
        self._names = ctx.analysis(FreshNames, model)

    def make(
        self, value: ir.Value, step: Step, place: Callable[[ir.Node], str], about: str = "", name: str = ""
    ) -> Made:
        """Make the nodes that convert `value`.

        Args:
            value: The value as it is.
            step: What to do with it.
            place: Gives the backend of a node.
            about: What new names begin with; by default the name of the value.
            name: The name of the nodes, which is made fresh; by default that of the step.

        Raises:
            DovetailError: The conversion is not installed, fails, or gives no value with a type.
        """
        import onnx_ir as ir

        table = self._ctx.registry.conversion
        who = f"{table.title(step.kind)} at '{value.name}'"
        about = about or value.name or ""
        op = Replacement(ir.Node("", "Identity", [], name=about), self._names, self._model.opset)
        with calling(who):
            result = table[step.kind]().build(op, value, step)
        if not isinstance(result, ir.Value) or result.type is None:
            hint = "`build` returns the converted value, with its type"
            raise DovetailError(f"{who} gives no value with a type", hint)
        converted = f"{about}_{step.kind if step.target is None else step.target.element}"
        precision, ports = _computed_in(step)
        for node in op.nodes:
            node.name = self._names.fresh(name or f"{about}_{step.kind}")
            for output in node.outputs:
                output.name = output.name or self._names.fresh(converted)
            # A judge takes an output without a name for absent, so names come first.
            set_placement(node, Placement(place(node), precision, ports))
        return Made(result, op.nodes, op.initializers)


def _computed_in(step: Step) -> tuple[Format | None, dict[str, Format]]:
    """The precision of the nodes of a step, and the ports that have another one."""
    if step.source is None or step.target is None:
        return None, {}
    for held in (step.target, step.source):
        if held.quantised:
            return Format.of(held.expressed), {}
    return step.target, {"input": step.source}
