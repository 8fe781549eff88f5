"""Rewrites: local changes of the graph, each consisting of a pattern, a replacement and a check."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from dovetail.ir import FlatGraph, FreshNames, gc_paused, graph_of, producer_of
from dovetail.planning import origin_of, set_origin

from dovetail_transforms.rewriting.commuting import commuting_matches
from dovetail_transforms.rewriting.node_inference import infer_outputs
from dovetail_transforms.rewriting.patterns import Match, Operator, match, pattern_of, required_operators

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


class NotRewritten(Exception):
    """Raised by a replacement that cannot be built for its match; the message is the reason."""


class Replacement:
    """Builds the nodes of a replacement; they enter the graph when the replacement is complete.

    `op.Add(x, y)` creates a node and returns its output; `op.TopK(x, k, axis=1, outputs=2)` returns two. Attributes
    with the value None are left out.

    Attributes:
        node: The node that is replaced.
        version: The version of the default domain for new nodes.
        nodes: The new nodes, in order.
        initializers: The new initializers.
    """

    def __init__(self, node: ir.Node, names: FreshNames, version: int):
        self.node = node
        self.version = version
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self._names = names

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.make(op_type, inputs, **attributes)

    def make(
        self, op_type: str, inputs: Sequence[ir.Value | None], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Make a node of an operator by name.

        Returns:
            Its output, or its outputs if there are several.
        """
        import onnx_ir as ir

        given = {name: value for name, value in attributes.items() if value is not None}
        version = self.version if domain in ("", "ai.onnx") else None
        held = ir.convenience.convert_attributes(given)
        node = ir.Node(domain, op_type, inputs, held, num_outputs=outputs, version=version)
        self.nodes.append(node)
        return node.outputs[0] if outputs == 1 else node.outputs

    def like(self, node: ir.Node, *inputs: ir.Value | None, **attributes: Any) -> Any:
        """Make a node like `node` with other inputs; given attributes replace its own, or remove them (None)."""
        kept = {name: value for name, value in node.attributes.items() if name not in attributes}
        made = self.make(node.op_type, inputs, len(node.outputs), node.domain, **kept, **attributes)
        copy = self.nodes[-1]
        copy.name, copy.doc_string = node.name, node.doc_string
        copy.metadata_props.update(node.metadata_props)
        return made

    def discard(self) -> None:
        """Release the values that the new nodes read; they will not enter the graph."""
        for made in self.nodes:
            for index in range(len(made.inputs)):
                made.replace_input_with(index, None)

    def constant(self, tensor: ir.TensorProtocol, what: str) -> ir.Value:
        """Create an initializer whose name ends in `what`. A lazy tensor is computed when the model is saved."""
        import onnx_ir as ir

        tensor.name = self._names.fresh(f"{self.node.name or self.node.op_type}_{what}")
        kind, shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=tensor.name, type=kind, shape=shape, const_value=tensor)
        self.initializers.append(value)
        return value


_MOST = 100  # rewrites of one node and its replacements; a rule may match its own result


@dataclass(frozen=True)
class Rewrite:
    """A pattern, its replacement, and a check.

    The pattern is a function of `op` and of its input values; one with the default None may be absent:

        def pattern(op, x, w, bias=None):
            return op.Relu(op.Conv(x, w, bias, called="convolution"))

    Check and replacement take any of these names, the names after `called`, and `node`, which computes the result.

    Attributes:
        name: The rule in remarks, in kebab case.
        pattern: Returns the operators to match. Only the root may have users outside of the match.
        replacement: Returns the value, or values, that replace the first outputs of `node`. Its first argument, `op`,
            makes the new nodes (see `Replacement`). It may raise `NotRewritten`.
        check: Returns why a match cannot be replaced, or an empty text.
        done: Text of the remark on success, with names in braces.
        commutes: Match inputs of Add and Mul in both orders. Such a pattern may also use an operator at several places,
            which then is one node, `op.number(3)` for a constant, and `op.output(split, 1)` for a later output.
        builder: The class of `op`.
    """

    name: str
    pattern: Callable[..., Any]
    replacement: Callable[..., ir.Value | Sequence[ir.Value | None]]
    check: Callable[..., str] | None = None
    done: str = "it replaces '{node}'"
    commutes: bool = False
    builder: type[Replacement] = Replacement

    @cached_property
    def root(self) -> Operator:
        """The operator that computes the result of the pattern."""
        return pattern_of(self.pattern)

    @cached_property
    def operators(self) -> frozenset[str]:
        """The operators without which the pattern matches nowhere."""
        return required_operators(self.root)


@dataclass(frozen=True)
class RewriteOutcome:
    """The result of trying a rewrite on a node.

    Attributes:
        why: Why it was not rewritten; empty if it was.
        nodes: The new nodes, in order.
        done: A description of the change, for a remark.
    """

    why: str = ""
    nodes: Sequence[ir.Node] = field(default_factory=tuple)
    done: str = ""


def rewrite_model(model: Model, ctx: Context, rewrites: Iterable[Rewrite], *, explain: bool = False) -> bool:
    """Apply rewrites in graph order to the model and to all bodies; new nodes are rewritten as well.

    Among rewrites with the same root operator, the first match is applied.

    Args:
        model: The model.
        ctx: Receives a remark and a count for each rewritten node.
        rewrites: The rewrites.
        explain: Whether failed matches also get a remark with the reason.

    Returns:
        Whether anything changed.
    """
    by_operator: dict[str, list[Rewrite]] = {}
    for rewrite in rewrites:
        for op_type in rewrite.root.op_types:
            by_operator.setdefault(op_type, []).append(rewrite)
    if by_operator.keys().isdisjoint({node.op_type for node in ctx.analysis(FlatGraph, model).nodes}):
        return False
    names, changed = ctx.analysis(FreshNames, model), False
    widely_read: set[int] = set()

    def apply_first(node: ir.Node) -> Sequence[ir.Node] | None:
        for rewrite in by_operator.get(node.op_type, ()):
            if not rewrite.root.is_operator_of(node):
                continue
            outcome = rewrite_node(rewrite, node, names, model.opset, widely_read)
            if not outcome.why:
                ctx.remark("passed", outcome.nodes[-1] if outcome.nodes else "", rewrite.name, outcome.done)
                ctx.count(rewrite.name)
                return outcome.nodes
            if explain:
                ctx.remark("missed", node, rewrite.name, f"not applied: {outcome.why}")
        return None

    with gc_paused():
        for _, graph in model.graphs():
            for first in graph:
                waiting, left = [first], _MOST
                while waiting and left:
                    made = apply_first(waiting.pop())
                    if made is not None:
                        waiting.extend(reversed(made))
                        left, changed = left - 1, True
    if changed:
        model.touch()
    return changed


def rewrite_node(
    rewrite: Rewrite, node: ir.Node, names: FreshNames, version: int, widely_read: set[int] | None = None
) -> RewriteOutcome:
    """Rewrite `node`, or leave the graph unchanged.

    The new results take over name, type and placement of the replaced ones; other new nodes get fresh names.

    Args:
        rewrite: The rewrite; the root operator of its pattern is that of `node`.
        node: The node.
        names: Names for new nodes and values.
        version: The version of the default domain for new nodes.
        widely_read: A cache across calls of the `id`s of values with many uses.
    """
    found = matched(rewrite, node, widely_read)
    if found.why:
        return RewriteOutcome(found.why)
    op = rewrite.builder(node, names, version)
    try:
        returned = _call(rewrite.replacement, found.bound, op)
    except NotRewritten as refused:
        op.discard()
        return RewriteOutcome(str(refused))
    values = list(returned) if isinstance(returned, Sequence) else [returned]
    if why := _obstacle(node, values, op):
        op.discard()
        return RewriteOutcome(why)
    done = rewrite.done.format(**{name: (part and part.name) or "" for name, part in found.bound.items()})
    _splice(found, values, op, names)
    return RewriteOutcome("", op.nodes, done)


def matched(rewrite: Rewrite, node: ir.Node, widely_read: set[int] | None = None) -> Match:
    """Return the first match that the check of a rewrite accepts; the last one that it rejects if there is none.

    Args:
        rewrite: The rewrite.
        node: The node that computes the result of its pattern.
        widely_read: A cache across calls of the `id`s of values with many uses.
    """
    read = set() if widely_read is None else widely_read
    tried = commuting_matches(rewrite.root, node) if rewrite.commutes else (match(rewrite.root, node, read),)
    found = Match(why="the operators before it do not have the form of the pattern")
    for found in tried:
        found.why = found.why or (_call(rewrite.check, found.bound) if rewrite.check else "")
        if not found.why:
            break
    return found


def _call(function: Callable[..., Any], bound: dict[str, Any], *first: Any) -> Any:
    """Call a function of a rewrite with what its parameters name; parts that did not match take its defaults."""
    names = _parameters(function)[len(first) :]
    return function(*first, **{name: bound[name] for name, required in names if required or name in bound})


@cache
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, bool], ...]:
    """Return the parameters of a function, and whether each is required."""
    parameters = inspect.signature(function).parameters.values()
    return tuple((one.name, one.default is inspect.Parameter.empty) for one in parameters)


def _obstacle(node: ir.Node, values: Sequence[ir.Value | None], op: Replacement) -> str:
    """Return why `values` cannot replace the outputs of `node`; empty if they can."""
    made = {id(output) for new in op.nodes for output in new.outputs}
    for index, result in enumerate(node.outputs):
        value = values[index] if index < len(values) else None
        if value is None and (result.uses() or result.is_graph_output()):
            return f"its output {index} is read, which the replacement does not compute"
        # A graph output must keep its name, and an existing value has a name of its own.
        if id(value) not in made and result.is_graph_output():
            return "it computes an output of the graph"
        made.discard(id(value))
    return ""


def _splice(found: Match, values: Sequence[ir.Value | None], op: Replacement, names: FreshNames) -> None:
    """Replace the matched nodes by the new ones."""
    node, graph = op.node, graph_of(op.node)
    origin = tuple(source for matched in reversed(found.nodes) for source in origin_of(matched))
    made = {id(output) for new in op.nodes for output in new.outputs}
    held: set[str | None] = set()
    for new in op.nodes:  # several may be copies of one node
        new.name = None if new.name in held else new.name
        held.add(new.name)
    name = None if node.name in held else node.name
    for result, value in zip(node.outputs, values):
        if value is not None and id(value) in made:
            value.name, result.name = result.name, None  # its node is about to be removed, which frees the name
            value.type = value.type if result.type is None else result.type
            value.shape = value.shape if result.shape is None else result.shape
            value.meta.update(result.meta)
            producer = producer_of(value)
            producer.name, name = producer.name or name, None
            for key, text in node.metadata_props.items():  # such as the module that the node was exported from
                producer.metadata_props.setdefault(key, text)
    for new in op.nodes:
        new.meta.update(node.meta)
        set_origin(new, origin)
        # Name nodes before they enter the graph, which would assign names that are taken elsewhere in the model.
        new.name = new.name or names.fresh(f"{origin[-1] if origin else node.op_type}_{new.op_type}")
        for value in new.outputs:
            value.name = value.name or names.fresh(f"{new.name}_out")
        infer_outputs(new, new.version or op.version)
    for value in op.initializers:
        graph.register_initializer(value)
    graph.insert_before(node, op.nodes)
    for result, value in zip(node.outputs, values):
        if value is None:
            continue
        if result.is_graph_output():
            for index, output in enumerate(graph.outputs):
                if output is result:
                    graph.outputs[index] = value
        result.replace_all_uses_with(value)
    for matched in found.nodes:
        graph.remove(matched, safe=True)
