"""The `widen-floats` pass: compute a float16 model in float32 where backends gain nothing from float16."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from dovetail.ir import FreshNames, dtype_name, is_onnx, name_of, replace_uses_except
from dovetail.passes import Pass
from dovetail_onnx.signatures import Signatures
from dovetail_placement import operator_facts

from dovetail_precision.weights import CastTensor

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


# Attributes that name an element type by its number.
_TYPES = ("dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type", "to")
_NUMBERS = range(1, 30)
_BITS = frozenset({"BitCast"})  # reads the bit representation


class WidenFloats(Pass):
    """Compute a model in a narrow float type in float32, if every chosen backend requests that.

    Given:  %y = Relu(%x) in float16, for a backend with `precision: {widened: [float16]}`
    Result: %a = Cast(%x, to float32)   %b = Relu(%a)   %y = Cast(%b, to float16)

    Inputs and outputs of the model keep their types, weights are widened while they are loaded, and typing then chooses
    as for a float32 model. Float32 represents every float16, so each result is at least as accurate as before; values
    that would overflow in float16 stay finite. Values that are cast to a narrow type, at most moved, and cast back are
    rounded on purpose: these keep their type.
    """

    name = "widen-floats"
    stage = "normalize"
    after = ("normalize",)
    before = ("fold-constants",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Widen the whole model, unless one of its operators depends on the narrow type."""
        wanted = [frozenset(backend.widened) for backend in ctx.backends]
        narrow = frozenset.intersection(*wanted) if wanted else frozenset()
        if not narrow:
            return False
        widening = _Widening(model, narrow)
        if not widening.values:
            return False
        if (kept := widening.obstacle()) is not None:
            why = f"the model stays in {widening.named}: {kept.domain or 'ai.onnx'}.{kept.op_type} depends on the type"
            ctx.remark("missed", kept, "widen-floats", why)
            return False
        widening.widen(ctx.analysis(FreshNames, model))
        model.touch()
        ctx.count("values widened", len(widening.values))
        names = ", ".join(backend.name for backend in ctx.backends)
        why = f"the source model computes in {widening.named}, and {names} in wider types: it is computed in float32"
        ctx.remark("passed", "", "widen-floats", why)
        return True


class _Widening:
    """The widening of one model; `values` are its values in a narrow type."""

    def __init__(self, model: Model, narrow: Collection[str]):
        self._narrow = narrow
        self._graphs = [graph for _, graph in model.graphs()]
        self._main = model.graph
        self._signatures = Signatures(model.ir.opset_imports)
        narrow_ones = [value for graph in self._graphs for value in _values(graph) if self._is_narrow(value.dtype)]
        rounded = _only_rounded(narrow_ones)
        self.values = [value for value in narrow_ones if value not in rounded]
        self._wanted = set(self.values)
        self.named = ", ".join(sorted({dtype_name(value.dtype) for value in self.values}))

    def obstacle(self) -> ir.Node | None:
        """Return a node that needs the narrow type; None if there is none."""
        for graph in self._graphs:
            for node in graph:
                narrow = [one for one in (*node.inputs, *node.outputs) if one in self._wanted]
                if narrow and (node.op_type in _BITS or not all(map(_is_tensor, narrow)) or not self._takes_wide(node)):
                    return node
        return None

    def _takes_wide(self, node: ir.Node) -> bool:
        """Check whether the ports of a node take float32; all of ONNX's operators do that take a narrower float."""
        if is_onnx(node):
            return True
        signature = self._signatures(node)
        if signature is None:
            return False
        ports = [(value, signature.input(index)) for index, value in enumerate(node.inputs)]
        ports += [(value, signature.output(index)) for index, value in enumerate(node.outputs)]
        return all(port is not None and "float32" in port.dtypes for value, port in ports if value in self._wanted)

    def widen(self, names: FreshNames) -> None:
        """Give every value its wide type, and insert conversions at the inputs and outputs of the model."""
        entering = [value for value in self._main.inputs if self._is_narrow(value.dtype)]
        leaving = {
            value: kind
            for value in self._main.outputs
            if (kind := value.type) is not None and self._is_narrow(value.dtype)
        }
        for graph in self._graphs:
            for node in graph:
                if not any(self._is_narrow(value.dtype) and value not in self._wanted for value in node.outputs):
                    self._widen_attributes(node)
        for value in self.values:
            if value not in entering:
                _widen_value(value)
        made: dict[ir.Value, ir.Value] = {}
        for value in entering:
            made[value] = _entered(self._main, value, names)
        for value, type_ in leaving.items():
            if value not in made:
                _leave(self._main, value, type_, names)

    def _is_narrow(self, dtype: ir.DataType | None) -> bool:
        return dtype is not None and dtype_name(dtype) in self._narrow

    def _widen_attributes(self, node: ir.Node) -> None:
        import onnx_ir as ir

        for name, attribute in list(node.attributes.items()):
            if name in _TYPES and attribute.type is ir.AttributeType.INT:
                held = attribute.as_int()
                if held in _NUMBERS and self._is_narrow(ir.DataType(held)):
                    node.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT.value)
            elif attribute.type is ir.AttributeType.TENSOR and self._is_narrow(attribute.as_tensor().dtype):
                node.attributes[name] = ir.AttrTensor(name, _wide(attribute.as_tensor()))


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from dict.fromkeys((*graph.inputs, *graph.initializers.values()))
    for node in graph:
        yield from node.outputs


def _only_rounded(values: Iterable[ir.Value]) -> set[ir.Value]:
    """Return the narrow values that are only cast to, moved, and cast from: what they compute is the rounding."""
    kept = {value for value in values if _is_rounded(value)}
    # A value that is moved with one that is widened is widened, too.
    lost = [value for value in values if value not in kept]
    while lost:
        value = lost.pop()
        producer = value.producer()
        for node in (*([producer] if producer is not None else ()), *value.consumers()):
            for other in (*node.inputs, *node.outputs):
                if other in kept:
                    kept.discard(other)
                    lost.append(other)
    return kept


def _is_rounded(value: ir.Value) -> bool:
    producer = value.producer()
    if producer is None or value.is_graph_output():
        return False
    return all(
        is_onnx(node) and (node.op_type == "Cast" or operator_facts().is_in("data-movement", "", node.op_type))
        for node in (producer, *value.consumers())
    )


def _is_tensor(value: ir.Value) -> bool:
    import onnx_ir as ir

    return value.type is None or isinstance(value.type, ir.TensorType)


def _wide(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    import onnx_ir as ir

    return CastTensor(tensor, ir.DataType.FLOAT, tensor.name or "")


def _widen_value(value: ir.Value) -> None:
    import onnx_ir as ir

    value.type = ir.TensorType(ir.DataType.FLOAT)
    if value.const_value is not None:
        value.const_value = _wide(value.const_value)


def _entered(graph: ir.Graph, value: ir.Value, names: FreshNames) -> ir.Value:
    """Widen an input for its users, including those in bodies."""
    import onnx_ir as ir

    cast = _cast(value, ir.TensorType(ir.DataType.FLOAT), f"{value.name}_wide", names)
    first = next(iter(graph), None)
    if first is None:
        return value  # an input that is also an output
    graph.insert_before(first, cast)
    replace_uses_except(value, cast.outputs[0], keep=(cast,))
    return cast.outputs[0]


def _leave(graph: ir.Graph, value: ir.Value, type_: ir.TypeProtocol, names: FreshNames) -> None:
    """Keep the name and type of an output; its producer's result gets another name."""
    name = name_of(value)
    value.name = names.fresh(f"{name}_wide")
    cast = _cast(value, type_, name, names)
    cast.outputs[0].name = name
    graph.append(cast)
    for index, output in enumerate(list(graph.outputs)):
        if output is value:
            graph.outputs[index] = cast.outputs[0]


def _cast(value: ir.Value, type_: ir.TypeProtocol, name: str, names: FreshNames) -> ir.Node:
    import onnx_ir as ir

    result = ir.Value(name=names.fresh(name), type=type_, shape=value.shape)
    attributes = [ir.AttrInt64("to", type_.dtype.value)]
    return ir.Node("", "Cast", (value,), attributes, outputs=(result,), name=names.fresh(f"{value.name}_cast"))
