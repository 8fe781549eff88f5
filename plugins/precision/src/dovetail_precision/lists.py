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

__all__ = ["Listed", "apply_list", "find_listed", "remark_lists", "why_listed"]


@dataclass(frozen=True, slots=True)
class Listed:
    """What a list says of a node.

    Attributes:
        side: `low` or `high`.
        text: The option as a user writes it, for messages; for a node that a goal raises, the goal.
    """

    side: str
    text: str


def find_listed(model: Model, ctx: Context) -> Mapping[int, Listed]:
    """What the lists and accuracy goals say, by `id(node)`; a control-flow node stands for all nodes of its bodies.

    Raises:
        DovetailError: A selector matches nothing, or a node is selected by both lists.
    """
    found: dict[int, Listed] = {}

    def enter(selected: ir.Node, listed: Listed) -> None:
        for node in (selected, *body_nodes(selected)):
            other = found.setdefault(id(node), listed)
            if other.side != listed.side:
                raise _contradiction(node, other.text, listed.text)

    for side in ("low", "high"):
        for selector in getattr(ctx.request, side):
            for selected in select(model, selector):
                enter(selected, Listed(side, f"--{side} {selector}"))
    for node in model.graph if ctx.asked else ():
        if node.name in ctx.asked:
            enter(node, Listed(*ctx.asked[node.name]))
    return found


def apply_list(variable: Variable, listed: Listed, schema: frozenset[str], claim: Claim | None) -> str:
    """Let `variable` obey; what stands against it where it is, or empty.

    Args:
        variable: A new variable; its policy is replaced.
        listed: What the list says of its node.
        schema: The types that the operator's schema takes.
        claim: What its strategy says of the node; a pin is a claim too.

    Raises:
        DovetailError: The node is pinned to another type.
    """
    wanted = variable.low if listed.side == "low" else variable.present
    if variable.policy == "pinned":
        if wanted in schema and len(variable.allowed) == 1 and wanted not in variable.allowed:
            pin = claim.because.removeprefix("as ").removesuffix(" says")
            raise _contradiction(variable.node, listed.text, pin)
        return ""
    # Ports that are kept apart keep their type, and what computes in another type than float32 does so on purpose.
    if variable.policy == "keep" or variable.present != "float32" or not variable.policy and listed.side == "high":
        return ""
    if listed.side == "high":
        variable.policy, variable.listed = "high", listed.text
        if wanted in schema and wanted not in variable.allowed:
            return f"{variable.backend} does not compute it in {wanted}, as {listed.text} says"
    elif variable.low != variable.high and variable.inputs:
        variable.policy, variable.listed = "lower", listed.text
    return ""


def why_listed(variable: Variable, against: str) -> str:
    """What came of the list that names `variable`; `against` says what stood against it, if known."""
    obeyed = variable.chosen == (variable.present if variable.policy == "high" else variable.low)
    if obeyed:
        return f"computed in {variable.chosen}, as {variable.listed} says"
    return f"computed in {variable.chosen} in spite of {variable.listed}: {against or 'its types do not allow another'}"


def remark_lists(problem: TypingProblem, ctx: Context) -> None:
    """Say of which nodes a list asks for a low type that nothing there has."""
    reached = {id(variable.node) for variable in problem.variables if variable.listed or variable.policy == "pinned"}
    for node, listed in problem.listed_nodes():
        if listed.side == "low" and id(node) not in reached:
            why = f"not low in spite of {listed.text}: {_obstacle(problem, node)}"
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
