"""The `unpack-sequences` pass: read the members of a sequence as tensors where it is known which ones it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, input_of, is_onnx
from dovetail.passes import Pass
from dovetail.planning import origin_of, set_origin
from dovetail.text import pluralize

from dovetail_transforms.canonicalize.fold_affine import add_constant
from dovetail_transforms.rewriting.node_inference import infer_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


_OPSET = 13  # axes of Unsqueeze and sizes of Split are inputs from here on
_MOST = 256  # members; every change of a sequence copies the list of them
_MAKING = frozenset({"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence"})
_READING = frozenset({"ConcatFromSequence", "SequenceAt", "SequenceLength"})
_POSITION = {"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2}


class UnpackSequences(Pass):
    """Read members of sequences as tensors, which engines take, where their number and places are constant.

    Given:  %s = SplitToSequence(%x, 16)   %a = SequenceAt(%s, 0)   %b = SequenceAt(%s, 1)
    Result: %a, %b = Split(%x, [16, 16])

    SequenceConstruct, SequenceInsert and SequenceErase are followed; SequenceLength becomes a constant, and
    ConcatFromSequence a Concat. A sequence that something else reads, such as an output or a Loop, stays.
    """

    name = "unpack-sequences"
    stage = "normalize"
    after = ("normalize", "fold-constants")
    before = ("remove-identity", "dead-code")

    def run(self, model: Model, ctx: Context) -> bool:
        """Follow sequences in graph order, after a walk backward that finds out which of them are only taken apart."""
        nodes = list(model.nodes())
        if model.ir.opset_imports.get("", 1) < _OPSET or not any(node.op_type in _READING for node in nodes):
            return False
        unpacking = _Unpacking(model, ctx, {id(value) for value in model.graph.inputs})
        for node in reversed(nodes):
            unpacking.look_back(node)
        for _, graph in model.graphs():
            for node in graph:
                unpacking.visit(graph, node)
        return unpacking.changed


class _Unpacking:
    def __init__(self, model: Model, ctx: Context, overridable: set[int]):
        self._names = ctx.analysis(FreshNames, model)
        self._ctx = ctx
        self._version = model.ir.opset_imports[""]
        self._overridable = overridable
        self._apart: set[int] = set()  # sequences of which only members, lengths and joined members are read
        self._members: dict[int, list[ir.Value]] = {}
        self.changed = False

    def look_back(self, node: ir.Node) -> None:
        """Find out whether the sequence that a node makes is only taken apart; all of its readers come first."""
        if node.op_type not in _MAKING or not is_onnx(node) or node.outputs[0].is_graph_output():
            return
        for reader, _ in node.outputs[0].uses():
            if not is_onnx(reader) or reader.op_type not in _READING | _MAKING:
                return
            if self._place(reader) is None or reader.op_type in _MAKING and id(reader.outputs[0]) not in self._apart:
                return
        self._apart.add(id(node.outputs[0]))

    def visit(self, graph: ir.Graph, node: ir.Node) -> None:
        """Note the members of the sequence that a node makes, or replace a node that reads one."""
        if not is_onnx(node):
            return
        if node.op_type in _MAKING:
            members = self._made(graph, node)
            if members is not None and len(members) <= _MOST:
                self._members[id(node.outputs[0])] = members
        elif node.op_type in _READING and (members := self._members.get(id(node.inputs[0]))) is not None:
            self._read(graph, node, members)

    def _made(self, graph: ir.Graph, node: ir.Node) -> list[ir.Value] | None:
        """Return the members of the sequence that a node makes; None if they are not known."""
        if node.op_type == "SequenceEmpty":
            return []
        if node.op_type == "SequenceConstruct":
            return [value for value in node.inputs if value is not None]
        if node.op_type == "SplitToSequence":
            return self._split(graph, node) if id(node.outputs[0]) in self._apart else None
        members, place = self._members.get(id(node.inputs[0])), self._place(node)
        if members is None or place is None:
            return None
        inserts = node.op_type == "SequenceInsert"
        count = len(members) + inserts
        at = place[0] + (len(members) if place[0] < 0 else 0) if place else count - 1
        if not 0 <= at < count:
            return None  # an error when it runs
        return [*members[:at], *((input_of(node, 1),) if inserts else ()), *members[at + (not inserts) :]]

    def _place(self, node: ir.Node) -> list[int] | None:
        """Return the constant position that a node names: empty if it names none, None if it is not constant."""
        index = _POSITION.get(node.op_type)
        value = node.inputs[index] if index is not None and index < len(node.inputs) else None
        if value is None:
            return []
        numbers = self._numbers(value)
        return numbers if numbers is not None and len(numbers) == 1 else None

    def _numbers(self, value: ir.Value) -> list[int] | None:
        if value.const_value is None or not value.is_initializer() or id(value) in self._overridable:
            return None
        return [int(number) for number in value.const_value.numpy().reshape(-1)] if value.const_value.size else None

    def _split(self, graph: ir.Graph, node: ir.Node) -> list[ir.Value] | None:
        """Insert a Split for a SplitToSequence; return its results, or None if their number is not known."""
        import numpy as np
        import onnx_ir as ir

        data = input_of(node, 0)
        axis = node.attributes.get_int("axis", 0)
        extent = data.shape[axis] if data.shape is not None and -len(data.shape) <= axis < len(data.shape) else None
        sizes = self._sizes(node, extent)
        if sizes is None or len(sizes) > _MOST:
            return None
        given = node.inputs[1] if len(node.inputs) > 1 else None
        constant = add_constant(graph, self._names.fresh(f"{node.name}_sizes"), ir.tensor(np.array(sizes, np.int64)))
        split = ir.Node("", "Split", [data, constant], [ir.AttrInt64("axis", axis)], num_outputs=len(sizes))
        new = [split]
        results = list(split.outputs)
        if given is None and not node.attributes.get_int("keepdims", 1):
            axes = add_constant(graph, self._names.fresh(f"{node.name}_axes"), ir.tensor(np.array([axis], np.int64)))
            new += [ir.Node("", "Squeeze", [value, axes], num_outputs=1) for value in results]
            results = [one.outputs[0] for one in new[1:]]
        self._insert(graph, node, new)
        why = f"{pluralize(len(sizes), 'member')} are read where they are known: it is a Split now"
        self._ctx.remark("passed", node, "unpack-sequences", why)
        return results

    def _sizes(self, node: ir.Node, extent: object) -> list[int] | None:
        """Return the sizes of the parts along the axis that a SplitToSequence divides; None if they are not known."""
        given = node.inputs[1] if len(node.inputs) > 1 else None
        if given is None:
            return [1] * extent if isinstance(extent, int) else None
        sizes = self._numbers(given)
        if sizes is None or given.shape is None:
            return None
        if len(given.shape):
            return sizes
        if not isinstance(extent, int) or not 0 < sizes[0] <= extent:
            return None
        rest = extent % sizes[0]
        return [sizes[0]] * (extent // sizes[0]) + [rest] * bool(rest)

    def _read(self, graph: ir.Graph, node: ir.Node, members: Sequence[ir.Value]) -> None:
        """Replace a node that reads a sequence of known members."""
        import numpy as np
        import onnx_ir as ir

        if node.op_type == "SequenceLength":
            count = add_constant(graph, self._names.fresh(f"{node.name}_length"), ir.tensor(np.int64(len(members))))
            self._replace(graph, node, [ir.Node("", "Identity", [count], num_outputs=1)])
        elif node.op_type == "SequenceAt":
            place = self._place(node)
            if place and -len(members) <= place[0] < len(members):
                self._replace(graph, node, [ir.Node("", "Identity", [members[place[0]]], num_outputs=1)])
        elif members:
            axis, new = node.attributes.get_int("axis"), []
            if node.attributes.get_int("new_axis", 0):
                name = self._names.fresh(f"{node.name}_axes")
                axes = add_constant(graph, name, ir.tensor(np.array([axis], np.int64)))
                new = [ir.Node("", "Unsqueeze", [value, axes], num_outputs=1) for value in members]
            joined = [one.outputs[0] for one in new] or list(members)
            new.append(ir.Node("", "Concat", joined, [ir.AttrInt64("axis", axis)], num_outputs=1))
            self._replace(graph, node, new)

    def _insert(self, graph: ir.Graph, node: ir.Node, new: Sequence[ir.Node]) -> None:
        for one in new:
            one.name = self._names.fresh(f"{node.name}_{one.op_type.lower()}")
            set_origin(one, origin_of(node))
            for value in one.outputs:
                value.name = self._names.fresh(f"{node.name}_part")
            graph.insert_before(node, one)
            infer_outputs(one, self._version)
        self.changed = True

    def _replace(self, graph: ir.Graph, node: ir.Node, new: Sequence[ir.Node]) -> None:
        """Replace a node by others, the last of which computes its result."""
        result, last = node.outputs[0], new[-1].outputs[0]
        self._insert(graph, node, new)
        last.type, last.shape = last.type or result.type, last.shape or result.shape
        result.replace_all_uses_with(last, replace_graph_outputs=True)
        last.name, result.name = result.name, None
        name, node.name = node.name, None
        new[-1].name = name
        graph.remove(node, safe=True)
