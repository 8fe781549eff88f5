"""User overrides of precision: `--low type:Exp`, `--high layer4.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import FLOAT32, body_nodes
from dovetail.planning import HOST, from_source
from dovetail_placement.node_requests import NodeRequests

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context
    from dovetail.planning import Claim, NodeRequest

    from dovetail_precision.problem import FormatVariable, TypingProblem


def find_overrides(model: Model, ctx: Context) -> Mapping[int, NodeRequest]:
    """Return the overrides by `id(node)`, from options and accuracy goals. Control flow includes its bodies.

    Raises:
        DovetailError: A selector matches no node, or a node is selected as low and as high.
    """
    found: dict[int, NodeRequest] = {}
    requests = ctx.analysis(NodeRequests, model)
    for request in requests.levels():
        for selected in requests.nodes_of(request):
            for node in (selected, *body_nodes(selected)):
                other = found.setdefault(id(node), request)
                if other.precision != request.precision:
                    raise _contradiction(node, other, request)
    return found


def apply_override(
    variable: FormatVariable, override: NodeRequest, schema: frozenset[Format], claim: Claim | None
) -> str:
    """Replace the policy of `variable` by its override.

    Args:
        variable: A new variable; its policy is replaced.
        override: The override of its node.
        schema: The formats that the operator's schema allows.
        claim: The claim on the node; pins are claims too.

    Returns:
        Why the node cannot stay on its backend; empty if it can.

    Raises:
        DovetailError: The node is pinned to another type.
    """
    high = override.precision == "high"
    wanted = variable.present if high else variable.low
    if variable.policy == "pinned":
        if wanted in schema and len(variable.choices) == 1 and wanted not in variable.choices.floats:
            assert claim is not None
            pin = claim.because.removeprefix("as ").removesuffix(" says")
            raise _contradiction(variable.node, override, pin)
        return ""
    # `keep` ports keep their type, and a type other than float32 in the source model is deliberate.
    if variable.policy == "keep" or variable.present is not FLOAT32 or not variable.policy and high:
        return ""
    if high:
        variable.policy, variable.override = "high", override.asked_by
        if wanted in schema and wanted not in variable.choices.floats:
            return f"{variable.backend} does not compute it in {wanted}, as {override.asked_by} says"
    elif variable.inputs and (variable.low is not variable.high or variable.choices.quantized):
        variable.policy, variable.override = "lower", override.asked_by
    return ""


def why_overridden(variable: FormatVariable, against: str) -> str:
    """Describe the outcome of the override of `variable`; `against` is the known reason if it was not obeyed."""
    found = variable.format
    low = found is variable.low or variable.chosen.quantized
    if found is variable.present if variable.policy == "high" else low:
        return f"computed in {found}, as {variable.override} says"
    return f"computed in {found} despite {variable.override}: {against or 'its types allow no other'}"


def remark_overrides(problem: TypingProblem, ctx: Context) -> None:
    """Remark the nodes on `--low` without any variable that could go low."""
    reached = {id(variable.node) for variable in problem.variables if variable.override or variable.policy == "pinned"}
    for node, override in problem.overridden:
        if override.precision == "low" and id(node) not in reached:
            why = f"not low despite {override.asked_by}: {_obstacle(problem, node)}"
            ctx.remark("missed", node, "override", why)


def _obstacle(problem: TypingProblem, node: ir.Node) -> str:
    variables = [variable for variable in problem.variables if variable.node is node]
    if not variables:
        return "none of its ports has a type to choose"
    if variables[0].backend == HOST:
        return "it is on host, which computes in the types of the source model"
    if variables[0].present is not FLOAT32:
        return f"the source model uses {variables[0].present} here"
    return "its ports keep their types"


def _contradiction(node: ir.Node, first: NodeRequest, second: NodeRequest | str) -> DovetailError:
    return DovetailError(
        f"'{node.name}' ({node.op_type}){from_source(node)} cannot be both: {first} and {second}",
        "remove or narrow one of them",
    )
