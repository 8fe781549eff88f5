"""Lowering of models to an older opset of the default ONNX domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, body_nodes, gc_paused
from dovetail.passes import Context, Pass
from dovetail.planning import Refusal

from dovetail_transforms.canonicalize.clean_up import DeadCode
from dovetail_transforms.canonicalize.normalize import Normalize
from dovetail_transforms.canonicalize.opsets import ir_version_of
from dovetail_transforms.lowering.node_facts import constant
from dovetail_transforms.lowering.schemas import is_default, version_of, why_not_as_written
from dovetail_transforms.lowering.steps import NodeNotLowered, load_table, lower_node

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import Remark
    from dovetail_onnx.signatures import Opsets


LOWEST = 11
_MOST_NAMED = 5  # rejected nodes named in a message


class NotLowered(DovetailError):
    """Nodes cannot be expressed in an older opset.

    Attributes:
        node: Name of the first such node.
    """

    def __init__(self, message: str, hint: str, node: str):
        super().__init__(message, hint)
        self.node = node


class Lowered(NamedTuple):
    """A lowered model, and a remark for every node that changed."""

    model: Model
    remarks: tuple[Remark, ...]


def lower(model: Model, opset: int) -> Lowered:
    """Return a copy of `model` in `opset`, or `model` itself if its opset is not newer.

    The copy shares the weights. A model that was not normalized is normalized first. Nodes of other domains stay.

    Raises:
        NotLowered: A node cannot be expressed in `opset`.
        DovetailError: `opset` is older than 11.
    """
    copy = model.clone()
    ctx = Context(model=copy)
    ctx.current_pass = "lower-opset"
    if copy.ir.functions or any(value.type is None for node in copy.nodes() for value in node.outputs if value.name):
        Normalize().run(copy, ctx)
    lower_in_place(copy, opset, ctx)
    return Lowered(copy, tuple(ctx.remarks))


def lower_in_place(model: Model, opset: int, ctx: Context) -> bool:
    """Lower `model`, whose values have types, to `opset`.

    Returns:
        Whether anything changed.

    Raises:
        NotLowered: A node cannot be expressed in `opset`; the model is then partly lowered.
    """
    if opset < LOWEST:
        raise DovetailError(
            f"models are lowered to opset {LOWEST} at the lowest, not to opset {opset}",
            f"choose an opset from {LOWEST} on",
        )
    if model.opset <= opset:
        return False
    if model.ir.functions:
        name = next(iter(model.ir.functions))[1]
        raise DovetailError(
            f"the model has functions of its own ('{name}'), which are not lowered",
            "run `normalize` first: it replaces them by their nodes",
        )
    refused: list[NodeNotLowered] = []
    with gc_paused():
        names = ctx.analysis(FreshNames, model)
        nodes = list(model.nodes())
        for node in nodes:
            node.version = node.version or model.opset
        for node in nodes:
            if not is_default(node.domain):
                ctx.count(f"nodes of {node.domain}, which stay")
                continue
            try:
                for step in lower_node(node, model.opset, opset, names):
                    ctx.remark("passed", step.node, step.rule, step.text)
                    ctx.count(step.rule)
            except NodeNotLowered as why:
                refused.append(why)
        if refused:
            raise _error(refused, opset)
        for node in model.nodes():
            node.version = None
        _import(model, opset)
        DeadCode().run(model, ctx)  # axes and sizes that are attributes now
    model.touch()
    return True


def _import(model: Model, opset: int) -> None:
    imports = model.ir.opset_imports
    for domain in [domain for domain in imports if is_default(domain)]:
        del imports[domain]
    imports[""] = opset
    model.ir.ir_version = min(model.ir.ir_version, ir_version_of(opset))


def _error(refused: list[NodeNotLowered], opset: int) -> NotLowered:
    named = "; ".join(f"'{one.node}': {one.why}" for one in refused[:_MOST_NAMED])
    more = f"; and {len(refused) - _MOST_NAMED} more nodes" if len(refused) > _MOST_NAMED else ""
    return NotLowered(f"the model cannot be lowered to opset {opset}: {named}{more}", refused[0].hint, refused[0].node)


@dataclass(frozen=True)
class LowerOpset(Pass):
    """Lower a normalized model to an older opset.

    Given:  opset 18   %y = ReduceMean <keepdims = 1> (%x, axes), where axes is the constant {-1}
    Result: opset 11   %y = ReduceMean <axes = [-1], keepdims = 1> (%x)

    Options:
        opset: The version of the default domain to lower the model to.
    """

    name = "lower-opset"
    after = ("normalize",)

    opset: int = LOWEST

    def run(self, model: Model, ctx: Context) -> bool:
        """Lower every node, or reject the model and name the nodes that cannot be lowered."""
        return lower_in_place(model, self.opset, ctx)


_TABLE = "dovetail_transforms/lowering/table.yaml"

_TAKEN: dict[tuple[object, ...], None] = {}
"""Nodes that an opset accepts as written, by their written form: large models repeat few forms."""
_MOST_TAKEN = 10_000
"""Maximum number of cached forms, after which the cache is cleared."""


def can_lower(node: ir.Node, opset: int, opsets: Opsets | None = None) -> Refusal | None:
    """Return why `node`, or a node in its bodies, cannot be expressed in `opset`; None if it can.

    The answer agrees with `lower`: the node is lowered in a separate graph, with the same types and constants. The
    model is not changed.

    Args:
        node: A node of a graph whose values have types.
        opset: The opset of a tool.
        opsets: The opset imports of the model; a node of the main graph gets them from its graph.

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
        except NodeNotLowered as why:
            return Refusal(why.why, _TABLE)
    return None


def _stays(node: ir.Node, present: int, opset: int) -> bool:
    """Check whether `opset` accepts the node as written, as for most nodes; these need no trial."""
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
    """Yield everything that a schema checks: attributes with their types, and the types of ports."""
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
    """Return a copy of `node` without its bodies' nodes, in a graph whose inputs are the values that it reads."""
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
