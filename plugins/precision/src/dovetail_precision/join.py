"""The `join` pass: insert the casts of a plan and convert its weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import (
    FlatGraph,
    FreshNames,
    dtype_name,
    float_format,
    format_of,
    graph_of,
    input_of,
    insert_after_value,
    is_onnx,
)
from dovetail.passes import Pass
from dovetail.planning import Step, get_placement, placement_of
from dovetail_placement.conversions import ConversionPlacement, ConversionSteps

from dovetail_precision.assign_types import set_backend_attributes
from dovetail_precision.conversions import Conversion, PlannedTypes, before_widening, find_conversions
from dovetail_precision.def_use import Scopes
from dovetail_precision.float_borders import gives_high
from dovetail_precision.graph_patterns import find_recurrent_io
from dovetail_precision.type_attributes import rewrite_type_attributes
from dovetail_precision.weights import convert_weights

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import NodeMaker


class JoinFormats(Pass):
    """Apply the types of the plan to the graph, with one Cast per value and type.

    Given:  placements say that %a is computed in bfloat16 and read in float32 by two nodes, and that the float32
            weight %w is read in bfloat16 by one node and in float32 by another
    Result: %b = Cast(%a, to float32) right after %a, read by both; %w as before, and %w_bfloat16 for the first; every
            value has its decided type.

    Existing casts are reused, and consumers bypass a widening cast. A cast stands outside loops, and inside a branch
    only if no other graph reads it.
    """

    name = "join"
    stage = "join"
    requires = ("assign-types",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert casts, then type every value."""
        flat = ctx.analysis(FlatGraph, model)
        joiner = _Joiner(model, flat, ctx)
        conversions = find_conversions(flat, joiner.types, ctx.request.keep_io_types)
        if not ctx.outcome.quantized_values:
            _refuse_quantized(flat)
        decided = list(joiner.retyped(flat))
        outputs = model.graph.outputs
        states = {id(value): outputs.index(output) for value, output in find_recurrent_io(model.graph)}
        # Weights are converted in the same pass: a node with mixed activations and weights would be invalid.
        converted = convert_weights(model, flat, joiner.types, ctx)
        for conversion in conversions:
            joiner.join(conversion)
        for value, dtype in decided:
            value.dtype = dtype
        if not ctx.request.keep_io_types:
            _lower_inputs(model, states, ctx)
        rewritten = rewrite_type_attributes(flat.nodes, ctx)
        _drop_idle_casts(model, ctx)
        rewritten |= set_backend_attributes(flat.nodes, ctx)
        return bool(conversions or decided or converted or rewritten)


def _refuse_quantized(flat: FlatGraph) -> None:
    """Reject a plan with quantized formats that were not carried out.

    Raises:
        DovetailError: A node has a quantized port.
    """
    for node in flat.nodes:
        placement = get_placement(node)
        if placement is None:
            continue
        formats = (placement.precision, *placement.ports.values())
        found = next((format_ for format_ in formats if format_ is not None and format_.quantized), None)
        if found is not None:
            raise DovetailError(
                f"'{node.name}' ({node.op_type}) is planned in {found} on {placement.backend}; nothing here quantizes",
                "pip install dovetail-quantize, or run its passes calibrate and quantize before this one",
            )


def _lower_inputs(model: Model, states: dict[int, int], ctx: Context) -> None:
    """Retype model inputs that are read only through casts to one narrower type; the casts become no-ops.

    Args:
        model: The model, with its casts.
        states: Index of the output that comes back as an input, by the `id` of the input: both keep one type.
        ctx: For remarks.
    """
    for value in model.graph.inputs:
        output = model.graph.outputs[states[id(value)]] if id(value) in states else None
        _lower_input(value, output, ctx)
        if output is not None:
            why = f"state '{value.name}' comes back as '{output.name}': both are {dtype_name(value.dtype)}"
            ctx.remark("passed", output.producer() or "", "state", why)


def _lower_input(value: ir.Value, output: ir.Value | None, ctx: Context) -> None:
    high = {backend.name for backend in ctx.backends if gives_high(backend)}
    readers = [node for node, _ in value.uses()]
    wanted = {node.attributes.get_int("to", 0) if node.op_type == "Cast" else 0 for node in readers}
    if len(wanted) != 1 or 0 in wanted or value.is_graph_output() or value.is_initializer():
        return
    dtype = readers[0].outputs[0].dtype
    if output is not None and output.dtype != dtype:
        return  # the recurrent output already has its planned type
    if any(placement_of(node).backend in high for node in readers):
        return  # its region requires the high precision
    if dtype is None or value.dtype is None or dtype.bitwidth >= value.dtype.bitwidth:
        return
    lower = format_of(dtype)
    if float_format(value) is not None and lower is not None and lower.is_float:
        ctx.remark("passed", readers[0], "input-type", f"input '{value.name}' is expected in {dtype_name(dtype)}")
        value.dtype = dtype


def _drop_idle_casts(model: Model, ctx: Context) -> None:
    """Remove Casts of the source model whose input now has the target type, or that all users bypass."""
    for node in model.nodes():
        if node.op_type != "Cast" or not is_onnx(node):
            continue
        value, result = input_of(node, 0), node.outputs[0]
        if not result.uses() and not result.is_graph_output():
            ctx.remark(
                "passed", node, "bypassed", f"its readers read '{value.name}' as it is; nothing reads the Cast any more"
            )
            graph_of(node).remove(node, safe=True)
            ctx.count("bypassed casts removed")
            continue
        known = value.dtype is not None and value.dtype.value == node.attributes.get_int("to", 0)
        if known and not result.is_graph_output():
            result.replace_all_uses_with(value)
            graph_of(node).remove(node, safe=True)
            ctx.count("idle casts removed")


class _Joiner:
    """Inserts the casts of one model."""

    def __init__(self, model: Model, flat: FlatGraph, ctx: Context):
        self.types = PlannedTypes(model, flat, expressed=True)
        self._ctx = ctx
        self._scopes = Scopes(flat)
        self._names = ctx.analysis(FreshNames, model)
        self._main = model.graph
        self._steps = ConversionSteps(model, ctx)
        self._places = ConversionPlacement(model, ctx)

    def retyped(self, flat: FlatGraph) -> Iterator[tuple[ir.Value, ir.DataType]]:
        """Yield results of nodes and inputs of bodies whose planned type differs from their present one."""
        made = (value for node in flat.nodes for value in node.outputs)
        taken = (value for graph in flat.graphs[1:] for value in graph.inputs)
        for value in itertools.chain(made, taken):
            kind = self.types.held(value)
            if kind is not None and value.dtype != (dtype := kind.dtype):
                yield value, dtype

    def join(self, conversion: Conversion) -> None:
        """Let all readers and outputs of `conversion` use the value in the wanted type."""
        if (source := before_widening(conversion, self.types)) is not None:
            self._ctx.count("widenings skipped")
        elif (source := self._existing_cast(conversion)) is not None:
            self._ctx.count("casts reused")
        else:
            source = self._cast(conversion)
            self._ctx.count("casts")
        for node, index in conversion.uses:
            node.replace_input_with(index, source)
        for graph, index in conversion.outputs:
            self._become_output(graph, index, conversion.value, source)

    def _existing_cast(self, conversion: Conversion) -> ir.Value | None:
        """Return the result of an existing Cast to the wanted type, hoisted to dominate all readers."""
        home = self._scopes.graph_of(conversion.value)
        # A Cast that uses the converted value cannot produce it.
        waiting = {id(node) for node, _ in conversion.uses}
        for node, _ in conversion.value.uses():
            if node.op_type != "Cast" or id(node) in waiting:
                continue
            if is_onnx(node) and node.graph is home:
                result = node.outputs[0]
                planned = self.types.held(result)
                dtype = result.dtype if planned is None else planned.dtype
                if dtype == conversion.wanted.dtype and not result.is_graph_output():
                    home.remove(node)
                    insert_after_value(home, conversion.value, node)
                    return result
        return None

    def _cast(self, conversion: Conversion) -> ir.Value:
        value, wanted = conversion.value, conversion.wanted
        graph = self._scopes.place_for(conversion)
        result, nodes, constants = self._steps.make(
            value,
            Step("cast", conversion.held, wanted),
            lambda node: self._backend_for(node, conversion, graph),
            name=f"{value.name}_to_{wanted}",
        )
        for constant in constants:
            self._main.register_initializer(constant)
        before = value
        for node in nodes:
            insert_after_value(graph, before, node)
            before = node.outputs[0]
        readers = len(conversion.uses) + len(conversion.outputs)
        self._ctx.remark(
            "passed",
            nodes[0],
            "join",
            f"'{value.name}' is cast from {conversion.held} to {wanted} once for {readers} reader{'s' * (readers > 1)}",
            because=tuple(dict.fromkeys(reader for reader, _ in conversion.uses))[:8],
        )
        return result

    def _backend_for(self, cast: ir.Node, conversion: Conversion, graph: ir.Graph) -> str:
        """Return the backend of a conversion; in a body that of the control-flow node, as one engine runs both."""
        ends = dict.fromkeys(placement_of(node).backend for node in conversion.ends)
        if graph is not self._main:
            return next(iter(ends))
        return self._places.choose(cast, conversion.held, conversion.wanted, ends)

    def _become_output(self, graph: ir.Graph, index: int, value: ir.Value, source: ir.Value) -> None:
        """Return `source` from the graph under the public name of the output."""
        name = value.name
        graph.outputs[index] = source
        producer = value.producer()
        if not value.is_graph_output() and producer is not None and producer.graph is graph:
            value.name = self._names.fresh(f"{name}_{self.types.held(value)}")
            source.name = name


class Cast:
    """Implements a conversion by one `Cast` to the target format."""

    def build(self, op: NodeMaker, value: ir.Value, step: Step) -> ir.Value:
        """Return `value` in the type of the target."""
        import onnx_ir as ir

        assert step.target is not None
        dtype = step.target.dtype
        result = op.make("Cast", (value,), to=dtype.value)
        assert isinstance(result, ir.Value)
        result.type, result.shape = ir.TensorType(dtype), value.shape
        return result
