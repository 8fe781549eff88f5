"""Whether a node can be lowered, found by lowering a copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.ir.bodies import body_nodes
from dovetail.ir.fresh_names import FreshNames
from dovetail.planning.verdict import Refusal

from dovetail_transforms.lowering.node_facts import constant
from dovetail_transforms.lowering.schemas import is_default, version_of, why_not_as_written
from dovetail_transforms.lowering.steps import NodeRefused, lower_node
from dovetail_transforms.lowering.table import load_table

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail_onnx.signatures import Opsets


_TABLE = "dovetail_transforms/lowering/table.yaml"

_TAKEN: dict[tuple[object, ...], None] = {}
"""How nodes were written that an opset took as they are: large models write the same in a few ways."""
_MOST_TAKEN = 10_000
"""Ways that are remembered; a process that compiles many models begins anew then."""


def can_lower(node: ir.Node, opset: int, opsets: Opsets | None = None) -> Refusal | None:
    """Return why `node`, or a node in its bodies, has no form in `opset`; None if it has one.

    The answer is that of `lower`: the node is lowered in a graph of its own, with the same types and constants. The
    model is not changed.

    Args:
        node: A node of a graph whose values have types.
        opset: The opset of a tool.
        opsets: What the model imports; for a node of the main graph its graph says that.

    Raises:
        ValueError: The node is in a body, and `opsets` is not given.
    """
    present = _present(node, opsets)
    for one in (node, *body_nodes(node)):
        if not is_default(one.domain) or present <= opset:
            continue
        if _stays(one, present, opset):
            continue
        try:
            for _ in lower_node(_copied(one, present), present, opset, FreshNames(_names(one))):
                pass
        except NodeRefused as why:
            return Refusal(why.why, _TABLE)
    return None


def _stays(node: ir.Node, present: int, opset: int) -> bool:
    """Whether `opset` takes the node as it is written, as it does most nodes; these need no trial."""
    version, target = version_of(node.op_type, present), version_of(node.op_type, opset)
    if version is None or target is None or version == target:
        return version is not None and version == target
    rows = (load_table().get((node.op_type, step)) for step in range(target + 1, version + 1))
    if any(row is not None and row.concerns_nodes_as_written for row in rows):
        return False
    key = (node.op_type, target, *_written(node))
    if key in _TAKEN:
        return True
    if why_not_as_written(node, target):
        return False
    if len(_TAKEN) >= _MOST_TAKEN:
        _TAKEN.clear()
    _TAKEN[key] = None
    return True


def _written(node: ir.Node) -> Iterator[object]:
    """All that a schema looks at: attributes with their types, and the types of ports."""
    yield tuple((name, attribute.type) for name, attribute in node.attributes.items())
    for values in (node.inputs, node.outputs):
        yield tuple(None if value is None else (bool(value.name), value.type) for value in values)


def _present(node: ir.Node, opsets: Opsets | None) -> int:
    """Return the version of the default domain that `node` is written in."""
    known = opsets if opsets is not None or node.graph is None else node.graph.opset_imports
    version = node.version or (known if isinstance(known, int) else (known or {}).get("", (known or {}).get("ai.onnx")))
    if version is None:
        raise ValueError(f"the opset of node '{node.name}' is unknown: give the opsets that its model imports")
    return version


def _names(node: ir.Node) -> list[str | None]:
    return [node.name, *(value.name for value in (*node.inputs, *node.outputs) if value is not None)]


def _copied(node: ir.Node, opset: int) -> ir.Node:
    """Return a copy of `node` without its bodies' nodes, in a graph whose inputs are what it reads."""
    import onnx_ir as ir

    values: dict[int, ir.Value] = {}
    inputs: list[ir.Value] = []
    initializers: list[ir.Value] = []
    for index, value in enumerate(node.inputs):
        if value is None or id(value) in values:
            continue
        known = constant(value, opset)
        tensor = None if known is None else ir.tensor(known, dtype=value.dtype)
        copy = ir.Value(name=value.name or f"in{index}", type=value.type, shape=value.shape, const_value=tensor)
        (inputs if tensor is None else initializers).append(copy)
        values[id(value)] = copy
    outputs = [ir.Value(name=value.name, type=value.type, shape=value.shape) for value in node.outputs]
    made = ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else values[id(value)] for value in node.inputs],
        list(node.attributes.values()),
        outputs=outputs,
        version=node.version,
        name=node.name,
    )
    read = [new for new, old in zip(outputs, node.outputs) if old.uses() or old.is_graph_output()]
    ir.Graph(inputs, read, nodes=[made], initializers=initializers, opset_imports={"": opset}, name="trial")
    return made
