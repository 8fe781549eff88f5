"""Decomposition of single nodes and of models: ONNX Runtime's own operators written in standard ONNX."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, gc_paused, graph_of
from dovetail.passes import Pass
from dovetail.planning import Refusal, set_key
from dovetail.plugin import Editor
from dovetail.text import did_you_mean

from dovetail_transforms.decompositions.formula import Formula, operator_of, result_of
from dovetail_transforms.decompositions.rules.all_rules import LOWEST as LOWEST_OF
from dovetail_transforms.decompositions.rules.all_rules import RULES
from dovetail_transforms.rewriting import NotRewritten, Rewrite, RewriteOutcome, rewrite_node

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_onnx.signatures import Opsets


LOWEST = 17
"""The opset from which on nodes are decomposed, most operators on integers from 13 on; `normalize` raises models."""

_SOURCE = "dovetail_transforms/decompositions/rules"


def known_operators() -> Collection[str]:
    """Return the operators that have a decomposition: `com.microsoft.BiasGelu`, `SimplifiedLayerNormalization`."""
    return RULES.keys()


def is_known(node: ir.Node) -> bool:
    """Check whether the operator of a node has a decomposition."""
    return operator_of(node) in RULES


def can_decompose(node: ir.Node, opsets: Opsets | None = None) -> Refusal | None:
    """Return why a node cannot be written in standard ONNX; None if it can.

    The answer agrees with `decompose`: the new nodes are built and discarded. The model is not changed.

    Args:
        node: A node of a graph whose values have types.
        opsets: The opset imports of the model; a node of the main graph gets them from its graph.

    Raises:
        ValueError: The node is in a body, and `opsets` is not given.
    """
    found = operators_needed(node, opsets)
    return found if isinstance(found, Refusal) else None


def operators_needed(node: ir.Node, opsets: Opsets | None = None) -> Set[str] | Refusal:
    """Return the operators of standard ONNX that a node is written in, or why it cannot; see `can_decompose`."""
    if not is_known(node):
        return Refusal(f"{operator_of(node)} has no decomposition", _SOURCE)
    version = _default_version(node, opsets)
    if version < _lowest(node):
        return Refusal(_too_old(node, version), _SOURCE)
    taken = [node.name, *(value.name for value in (*node.inputs, *node.outputs) if value is not None)]
    trial = Formula(node, FreshNames(taken), version)
    try:
        trial.results(RULES[operator_of(node)])
        return {new.op_type for new in trial.nodes}
    except NotRewritten as refused:
        return Refusal(f"{node.op_type} is not written in standard ONNX: {refused}", _SOURCE)
    finally:
        trial.discard()


def decompose_node(node: ir.Node, names: FreshNames, version: int) -> RewriteOutcome:
    """Replace one node by nodes of standard ONNX, or leave the graph as it is.

    Constants that only this node read, such as packed weights, leave the graph.

    Args:
        node: A node whose operator has a decomposition.
        names: Names for new nodes and values.
        version: The version of the default domain in the model.

    Returns:
        The new nodes, or why there are none.
    """
    if version < _lowest(node):
        return RewriteOutcome(_too_old(node, version))
    read, graph = list(node.inputs), graph_of(node)
    outcome = rewrite_node(_rewrite(node.domain, node.op_type), node, names, version)
    for value in read if not outcome.why else ():
        if value is None or value.uses() or value.is_graph_output() or value.is_graph_input():
            continue
        if value.name and graph.initializers.get(value.name) is value:
            del graph.initializers[value.name]
    return outcome


def decompose(model: Model, ctx: Context, operators: Collection[str] = ()) -> bool:
    """Write operators of ONNX Runtime in standard ONNX, in the main graph and in all bodies.

    Args:
        model: A model whose values have types, as after `normalize`.
        ctx: Receives a remark for every node: what it became, or why it was not changed.
        operators: The operators to write out, as in `known_operators`; empty for all.

    Returns:
        Whether anything changed.
    """
    wanted = set(operators) or set(known_operators())
    changed = False
    with gc_paused():
        names = ctx.analysis(FreshNames, model)
        for node in list(model.nodes()):
            if operator_of(node) not in wanted:
                continue
            operator, name = operator_of(node), node.name or ""
            outcome = decompose_node(node, names, model.opset)
            if outcome.why:
                ctx.remark("missed", node, "write-out", f"{operator} stays: {outcome.why}")
                continue
            made = ", ".join(dict.fromkeys(new.op_type for new in outcome.nodes))
            ctx.remark("passed", name, "write-out", f"{operator} is written out: {made}")
            ctx.count(operator)
            changed = True
    if changed:
        model.touch()
    return changed


@dataclass(frozen=True)
class WriteOut(Pass):
    """Write operators that only ONNX Runtime defines in standard ONNX.

    Given:  %y = com.microsoft.QuickGelu <alpha = 1.702> (%x)
    Result: %s = Sigmoid(%x * 1.702), %y = %x * %s

    Options:
        ops: The operators, with semicolons or spaces between them; empty for all that have a decomposition.
    """

    name = "write-out"
    after = ("normalize",)

    ops: str = ""

    def run(self, model: Model, ctx: Context) -> bool:
        """Write the operators out wherever they are.

        Raises:
            DovetailError: An option names an operator without a decomposition.
        """
        asked = self.ops.replace(";", " ").split()
        for operator in asked:
            if operator not in RULES:
                near = did_you_mean(operator, RULES)
                raise DovetailError(
                    f"write-out: '{operator}' has no decomposition{near}",
                    "docs/decompositions.md lists the operators, with their domain",
                )
        return decompose(model, ctx, asked)


class WriteOutNode(Editor):
    """Writes one operator of ONNX Runtime in standard ONNX: the edit `--edit write-out=NODE`.

    A compilation makes it without a request if a backend takes the resulting nodes, and none takes the operator.
    """

    sides = ("after",)
    name: ClassVar[str] = "write-out"

    def key(self, node: ir.Node) -> str:
        """Return the key of the node that computes the result of `node` afterwards; see `dovetail.planning.key_of`."""
        value = result_of(node)
        return f"{self.name}:{node.name if value is None else value.name}"

    def write(self, model: Model, node: ir.Node, names: FreshNames) -> RewriteOutcome:
        """Write `node` out. The caller marks the model as changed."""
        key, name, result = self.key(node), node.name, result_of(node)
        outcome = decompose_node(node, names, model.opset)
        if result is not None and (made := self.made(outcome, name)) is not None:
            set_key(made, key)
        return outcome

    def made(self, outcome: RewriteOutcome, name: str | None) -> ir.Node | None:
        """Return the node that has the name of the one that was written out."""
        return next((new for new in outcome.nodes if new.name == name), None)

    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> Sequence[ir.Node]:
        """Write `node` out.

        Raises:
            DovetailError: It has no decomposition, or not in this form.
        """
        refusal = can_decompose(node, model.ir.opset_imports)
        if refusal is not None:
            raise DovetailError(
                f"{self.name} at '{node.name}': {refusal.text}", "docs/decompositions.md lists the operators"
            )
        return self.write(model, node, ctx.analysis(FreshNames, model)).nodes


def _lowest(node: ir.Node) -> int:
    return LOWEST_OF.get(operator_of(node), LOWEST)


def _too_old(node: ir.Node, version: int) -> str:
    return f"{node.op_type} is written in opset {_lowest(node)} or newer, and the model has opset {version}"


def _default_version(node: ir.Node, opsets: Opsets | None) -> int:
    known = opsets if opsets is not None or node.graph is None else node.graph.opset_imports
    version = known if isinstance(known, int) else (known or {}).get("", (known or {}).get("ai.onnx"))
    if version is None:
        raise ValueError(f"the opset of node '{node.name}' is unknown: give the opsets that its model imports")
    return version


@cache
def _rewrite(domain: str, op_type: str) -> Rewrite:
    """Return the rewrite of an operator."""
    return Rewrite(
        "write-out",
        lambda op: op.any_of(op_type, domain=domain)(...),
        lambda op: op.results(RULES[operator_of(op.node)]),
        builder=Formula,
    )
