"""The `fold-constants` pass: evaluate nodes with constant inputs."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, input_of, is_onnx
from dovetail.passes import Pass
from dovetail.plugin import EngineError, Evaluator

from dovetail_transforms.canonicalize.inference import correct_outputs
from dovetail_transforms.canonicalize.open_values import RANDOM
from dovetail_transforms.canonicalize.settled_control_flow import (
    agree_on_shapes,
    replace_settled,
    settled,
    settling_inputs,
)
from dovetail_transforms.rewriting.node_inference import infer_outputs, refine_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Registry


_REFERENCE = "reference"
"""The engine that evaluates single nodes."""
_FEW_BYTES = 256
"""Size of the indices by which extents are taken; larger ones are not looked at."""

# Not pure functions of their inputs, or part of the form of quantized models.
_NEVER = frozenset({
    *RANDOM, "Dropout",
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "If", "Loop", "Scan", "SequenceMap",
})  # fmt: skip


@dataclass
class _Folded:
    """What one walk over a model did: anything at all, more than taking up Constant nodes, and inlining of bodies."""

    changed: bool = False
    computed: bool = False
    branches: bool = False


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluate nodes with constant inputs, and turn Constant nodes into initializers.

    Given:  %s = Shape(%x) with the extents of %x known, or %g = Gather(Shape(%x), 1) or Slice(Shape(%x), 1, 2) with
            that one known, or %c = Add(1, 2), or %l = CastLike(3, %x)
    Result: %s, %g, %c and %l are initializers. An If with a constant condition, at any depth, is replaced by the nodes
            of the branch that it takes, and nothing is inferred from the other one any more; so is a Loop that never
            runs by its initial values, or one that runs once by its body.

    Options:
        limit: The largest result to fold, in bytes; larger ones would increase the size of the model. Filters of a few
            hundred kilobytes are often computed from constants, and only constant ones are quantized.
    """

    name = "fold-constants"
    stage = "normalize"
    after = ("normalize",)

    limit: int = 1 << 20

    def run(self, model: Model, ctx: Context) -> bool:
        """Fold in graph order, so that folded results can feed later nodes."""
        changed = computed = False
        overridable = {id(value) for value in model.graph.inputs}
        news: set[int] = set()  # values with more precise shapes than `normalize` could infer
        evaluator = _evaluator(ctx.registry)
        if evaluator is None:
            why = "only constants and extents are folded: no engine here evaluates single nodes"
            ctx.remark("missed", "", "no-evaluator", why, suggest="pip install dovetail-host")
        again = True
        while again:  # once more for every level of nesting at which results of an If get known shapes
            folded = self._walk(model, ctx, overridable, news, evaluator)
            changed |= folded.changed
            computed |= folded.computed
            again = folded.branches and agree_on_shapes(model, news)
        # Folding may have made shapes known, so outputs are compared with their declarations again.
        if computed:
            correct_outputs(model, ctx)
        for name in settling_inputs(model):
            option = f"--fix-input {shlex.quote(name)}=VALUE"
            why = f"input '{name}' alone chooses a branch: with {option}, the other one is not there"
            ctx.remark("analysis", "", "input-chooses", why, suggest=option)
        return changed

    def _walk(
        self, model: Model, ctx: Context, overridable: set[int], news: set[int], evaluator: Evaluator | None
    ) -> _Folded:
        folded = _Folded()
        constant = partial(_constant_array, overridable=overridable, limit=_FEW_BYTES)
        for _, graph in model.graphs():
            for node in graph:
                if (found := settled(node, constant)) is not None:
                    ctx.remark("passed", node, found.rule, found.why)
                    news.update(replace_settled(model, graph, node, found, ctx.analysis(FreshNames, model)))
                    folded.changed = folded.computed = folded.branches = True
                    continue
                folded.changed |= _cast_to_known(node) | _more_is_known(node, news, model.ir.opset_imports)
                results = self._fold(node, model, overridable, evaluator)
                if results is None:
                    continue
                names = ctx.analysis(FreshNames, model)
                for value, tensor in zip(node.outputs, results, strict=False):
                    news.add(_become_initializer(graph, value, tensor, names))
                if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                    graph.remove(node, safe=True)
                ctx.count("folded")
                folded.changed = True
                folded.computed |= node.op_type != "Constant"
        return folded

    def _fold(
        self, node: ir.Node, model: Model, overridable: set[int], evaluator: Evaluator | None
    ) -> list[ir.TensorProtocol] | None:
        import onnx_ir as ir

        if not is_onnx(node) or node.op_type in _NEVER:
            return None
        if node.op_type == "Constant":
            tensor = _constant(node)
            return None if tensor is None or node.outputs[0].is_graph_output() else [tensor]
        if any(value.is_graph_output() for value in node.outputs):
            return None
        if node.op_type in ("Shape", "Size"):
            return _shape(node)
        if node.op_type in ("Gather", "Slice") and (extents := _extents(node, overridable)) is not None:
            return [extents]
        # Early exit for almost all nodes.
        if any(value is not None and value.const_value is None for value in node.inputs) or self._too_large(node):
            return None
        inputs = []
        for value in node.inputs:
            array = None if value is None else _constant_array(value, overridable, 16 * self.limit)
            if value is not None and array is None:
                return None
            inputs.append(array)
        if not inputs or evaluator is None:
            return None
        try:
            arrays = evaluator.evaluate(node, inputs, model.ir.opset_imports)
        except EngineError:
            return None
        if sum(array.nbytes for array in arrays) > self.limit:
            return None
        return [ir.tensor(array) for array in arrays]

    def _too_large(self, node: ir.Node) -> bool:
        """Check whether the declared results exceed the limit, without evaluating."""
        size = 0
        for value in node.outputs:
            if value.shape is None or value.dtype is None or not value.shape.is_static():
                continue
            if value.dtype.name != "STRING":
                size += math.prod(value.shape.numpy()) * value.dtype.bitwidth // 8
        return size > self.limit


def _more_is_known(node: ir.Node, news: set[int], opsets: Mapping[str, int]) -> bool:
    """Infer open extents of a node again if an input became constant, or its extents became known.

    After `x[:, x.shape[1] // 2:]`, for example, extents follow from constants that inference did not recognize.
    """
    # With `ceil_mode`, onnx infers wrong extents: see `pooling_extents`.
    wrong = node.op_type in _NEVER or "ceil_mode" in node.attributes and bool(node.attributes.get_int("ceil_mode"))
    if wrong or not any(id(value) in news for value in node.inputs):
        return False
    version = opsets.get(node.domain, 1)
    infer_outputs(node, version)
    open_ones = [value for value in node.outputs if value.name and (value.shape is None or not value.shape.is_static())]
    if not open_ones or not refine_shapes(node, version):
        return False
    news.update(map(id, open_ones))
    return True


def _cast_to_known(node: ir.Node) -> bool:
    """Replace a CastLike by a Cast if the type is known: it then has one input, and more backends support it."""
    import onnx_ir as ir

    if node.op_type != "CastLike" or not is_onnx(node) or node.inputs[1] is None:
        return False
    dtype = node.inputs[1].dtype
    if dtype is None:
        return False
    node.op_type = "Cast"
    node.replace_input_with(1, None)
    node.resize_inputs(1)
    node.attributes["to"] = ir.AttrInt64("to", dtype.value)
    return True


def _constant_array(value: ir.Value, overridable: set[int], limit: int) -> np.ndarray | None:
    """Return the array of an initializer of at most `limit` bytes; None for any other value.

    Args:
        value: The value.
        overridable: Ids of graph inputs: an initializer among them is only a default.
        limit: Maximum size, in bytes.
    """
    tensor = value.const_value
    if tensor is None or not value.is_initializer() or id(value) in overridable:
        return None
    if tensor.dtype.name == "STRING" or tensor.nbytes > limit:
        return None
    return tensor.numpy()


def _constant(node: ir.Node) -> ir.TensorProtocol | None:
    import numpy as np
    import onnx_ir as ir

    for name, make in (
        ("value", lambda value: value),
        ("value_int", lambda value: ir.tensor(np.int64(value))),
        ("value_float", lambda value: ir.tensor(np.float32(value))),
        ("value_ints", lambda value: ir.tensor(np.array(value, np.int64))),
        ("value_floats", lambda value: ir.tensor(np.array(value, np.float32))),
        ("value_string", lambda value: ir.tensor([value], dtype=ir.DataType.STRING)),
        ("value_strings", lambda value: ir.tensor(list(value), dtype=ir.DataType.STRING)),
    ):
        if name in node.attributes and not node.attributes[name].is_ref():
            if name == "value_string":
                return None  # scalar strings are rare and not folded
            return make(node.attributes[name].value)
    return None


def _shape(node: ir.Node) -> list[ir.TensorProtocol] | None:
    import numpy as np
    import onnx_ir as ir

    given = _extents_read(node)
    extents = [extent for extent in given or () if isinstance(extent, int)]
    if given is None or len(extents) < len(given):
        return None
    numbers = np.array(extents, np.int64)
    return [ir.tensor(numbers if node.op_type == "Shape" else np.int64(math.prod(extents)))]


def _extents_read(node: ir.Node) -> list[int | ir.SymbolicDim] | None:
    """Return the extents that a Shape or Size reads; None if the rank is unknown."""
    shape = input_of(node, 0).shape
    if shape is None:
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(shape))
    return list(shape)[start:end] if node.op_type == "Shape" else list(shape)


def _extents(taking: ir.Node, overridable: set[int]) -> ir.TensorProtocol | None:
    """Return what a Gather or Slice takes of a Shape with open extents, if those are known; None otherwise."""
    import numpy as np
    import onnx_ir as ir

    shape_of = taking.inputs[0].producer() if taking.inputs[0] is not None else None
    if shape_of is None or shape_of.op_type != "Shape" or not is_onnx(shape_of):
        return None
    given = _extents_read(shape_of)
    constants = [
        None if value is None else _constant_array(value, overridable, _FEW_BYTES) for value in taking.inputs[1:]
    ]
    unknown = any(value is not None and array is None for value, array in zip(taking.inputs[1:], constants))
    if given is None or unknown or not constants or constants[0] is None:
        return None
    places = _gathered(len(given), constants[0]) if taking.op_type == "Gather" else _sliced(len(given), constants)
    extents = [] if places is None else [given[int(place)] for place in places.reshape(-1)]
    if places is None or not all(isinstance(extent, int) for extent in extents):
        return None
    return ir.tensor(np.array(extents, np.int64).reshape(places.shape))


def _gathered(count: int, indices: np.ndarray) -> np.ndarray | None:
    """Return the places of `count` that a Gather takes; None if one is outside."""
    import numpy as np

    return np.arange(count)[indices] if bool(((-count <= indices) & (indices < count)).all()) else None


def _sliced(count: int, bounds: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the places of `count` that a Slice takes in steps of one; None for other steps."""
    import numpy as np

    if any(one is not None and one.size != 1 for one in bounds):
        return None
    start, end, _, step = [*(None if one is None else int(one.reshape(-1)[0]) for one in bounds), None, None][:4]
    return np.arange(count)[start:end] if step in (None, 1) and end is not None else None


def _become_initializer(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol, names: FreshNames) -> int:
    """Replace a value by an initializer; return the initializer's `id`."""
    import onnx_ir as ir

    if not value.uses():
        return id(value)
    name = value.name
    value.name = names.fresh(f"{name}_unfolded")
    constant = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
    )
    tensor.name = name
    graph.register_initializer(constant)
    value.replace_all_uses_with(constant)
    return id(constant)


def _evaluator(registry: Registry) -> Evaluator | None:
    """Return the engine `reference`, if it is installed and evaluates single nodes."""
    return evaluator_of(registry, _REFERENCE)


def evaluator_of(registry: Registry, name: str) -> Evaluator | None:
    """Return the engine registered as `name` if it is installed and can evaluate single nodes; else None."""
    found = registry.engine.get(name)
    return found() if isinstance(found, type) and issubclass(found, Evaluator) else None
