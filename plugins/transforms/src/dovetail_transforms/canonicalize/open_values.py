"""Values that a model leaves open: random numbers without a seed, and rows of caches that nothing reads.

Two runs of one model differ in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import all_nodes, name_of, used_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from dovetail.ir import Model


RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
"""Operators that draw random numbers, by an attribute `seed` if they have one."""

_OF_EXTENTS = frozenset({"Shape", "Size", "EyeLike"})  # which are those of the tensor, whatever it holds


def open_outputs(model: Model) -> dict[str, str]:
    """Return the outputs of a model that it does not determine, each with the reason.

    For example `random, because 'noise' (RandomNormal) has no seed`. Random operators with a seed are left out, and so
    is Dropout outside of training. Linear in nodes and edges.
    """
    functions = _random_functions(model.ir.functions)
    source: dict[ir.Value, str] = {}
    for node in model.graph:
        drawn = _drawing(node, functions)
        why = f"random, because {drawn} has no seed" if drawn is not None else None
        if why is None and node.op_type not in _OF_EXTENTS:
            why = next((source[value] for value in used_values(node) if value in source), None)
        if why is not None:
            source.update(dict.fromkeys(node.outputs, why))
        elif node.op_type == "GroupQueryAttention" and node.attributes.get_int("sliding_window_cache", 0) != 0:
            held = f"'{node.name or name_of(node.outputs[0])}' ({node.op_type})"
            source.update(dict.fromkeys(node.outputs[1:3], f"open in part, because {held} leaves rows in no use unset"))
    return {name_of(value): source[value] for value in model.graph.outputs if value in source}


def _random_functions(functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> set[ir.OperatorIdentifier]:
    """Return the local functions that draw random numbers, directly or by functions that they call."""
    found: set[ir.OperatorIdentifier] = set()
    while more := {
        key
        for key, function in functions.items()
        if key not in found and any(_drawing(node, found) is not None for node in function)
    }:
        found |= more
    return found


def _drawing(node: ir.Node, functions: set[ir.OperatorIdentifier]) -> str | None:
    """Return the name of the node inside of `node` that draws random numbers, or of itself; None if none does."""
    for inner in all_nodes([node]):
        if inner.op_identifier() in functions or not inner.domain and _is_random(inner):
            return f"'{inner.name or node.name or name_of(inner.outputs[0])}' ({inner.op_type})"
    return None


def _is_random(node: ir.Node) -> bool:
    if "seed" in node.attributes:
        return False
    if node.op_type != "Dropout":
        return node.op_type in RANDOM
    ratio, training = (node.inputs[at] if at < len(node.inputs) else None for at in (1, 2))
    if training is None or _constant(training) is False:
        return False
    return ratio is None or _constant(ratio) != 0.0


def _constant(value: ir.Value) -> object:
    """Return the number in a constant scalar; None if it is not constant."""
    tensor = value.const_value
    if value.is_graph_input() or tensor is None or tensor.size != 1:
        return None
    return tensor.numpy().item()
