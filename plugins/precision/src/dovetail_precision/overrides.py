"""What a user wants low or high: `--low type:Exp`, `--high layer4.*`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.bodies import body_nodes
from dovetail.planning.placement import HOST
from dovetail.planning.selectors import select

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.planning.claim import Claim

    from dovetail_precision.problem import TypingProblem
    from dovetail_precision.variable import Variable

__all__ = ["Override", "apply_override", "find_overrides", "remark_overrides", "why_overridden"]


@dataclass(frozen=True, slots=True)
class Override:
    """What a list says of a node.

    Attributes:
        side: `low` or `high`.
        text: The option as a user writes it, for messages; for a node that a goal raises, the goal.
    """

    side: str
    text: str


def find_overrides(model: Model, ctx: Context) -> Mapping[int, Override]:
    """What the lists and accuracy goals say, by `id(node)`; a control-flow node stands for all nodes of its bodies.

    Raises:
        DovetailError: A selector matches nothing, or a node is selected by both lists.
    """
    found: dict[int, Override] = {}

    def enter(selected: ir.Node, override: Override) -> None:
        for node in (selected, *body_nodes(selected)):
            other = found.setdefault(id(node), override)
            if other.side != override.side:
                raise _contradiction(node, other.text, override.text)

    for side in ("low", "high"):
        for selector in getattr(ctx.request, side):
            for selected in select(model, selector):
                enter(selected, Override(side, f"--{side} {selector}"))
    for node in model.graph if ctx.asked else ():
        if node.name in ctx.asked:
            enter(node, Override(*ctx.asked[node.name]))
    return found


def apply_override(variable: Variable, override: Override, schema: frozenset[str], claim: Claim | None) -> str:
    """Let `variable` obey; what stands against it where it is, or empty.

    Args:
        variable: A new variable; its policy is replaced.
        override: What the list says of its node.
        schema: The types that the operator's schema takes.
        claim: What its strategy says of the node; a pin is a claim too.

    Raises:
        DovetailError: The node is pinned to another type.
    """
    wanted = variable.low if override.side == "low" else variable.present
    if variable.policy == "pinned":
        if wanted in schema and len(variable.allowed) == 1 and wanted not in variable.allowed:
            pin = claim.because.removeprefix("as ").removesuffix(" says")
            raise _contradiction(variable.node, override.text, pin)
        return ""
    # Ports that are kept apart keep their type, and what computes in another type than float32 does so on purpose.
    if variable.policy == "keep" or variable.present != "float32" or not variable.policy and override.side == "high":
        return ""
    if override.side == "high":
        variable.policy, variable.override = "high", override.text
        if wanted in schema and wanted not in variable.allowed:
            return f"{variable.backend} does not compute it in {wanted}, as {override.text} says"
    elif variable.low != variable.high and variable.inputs:
        variable.policy, variable.override = "lower", override.text
    return ""


def why_overridden(variable: Variable, against: str) -> str:
    """What came of the list that names `variable`; `against` says what stood against it, if known."""
    obeyed = variable.chosen == (variable.present if variable.policy == "high" else variable.low)
    if obeyed:
        return f"computed in {variable.chosen}, as {variable.override} says"
    return (
        f"computed in {variable.chosen} in spite of {variable.override}: {against or 'its types do not allow another'}"
    )


def remark_overrides(problem: TypingProblem, ctx: Context) -> None:
    """Say of which nodes a list asks for a low type that nothing there has."""
    reached = {id(variable.node) for variable in problem.variables if variable.override or variable.policy == "pinned"}
    for node, override in problem.overridden_nodes():
        if override.side == "low" and id(node) not in reached:
            why = f"not low in spite of {override.text}: {_obstacle(problem, node)}"
            ctx.remark("missed", node, "list", why)


def _obstacle(problem: TypingProblem, node: ir.Node) -> str:
    variables = [variable for variable in problem.variables if variable.node is node]
    if not variables:
        return "no port of it has a type that could be chosen"
    if variables[0].backend == HOST:
        return "it is on host, which computes in the types of the source model"
    if variables[0].present != "float32":
        return f"the model has it in {variables[0].present} already"
    return "its ports keep their types"


def _contradiction(node: ir.Node, first: str, second: str) -> DovetailError:
    return DovetailError(
        f"'{node.name}' ({node.op_type}) cannot be both: {first} and {second}", "take one of them back, or narrow it"
    )
