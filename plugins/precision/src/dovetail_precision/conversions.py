"""The conversions that a plan implies: values that are read in another type than they are computed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir import Format, float_format, input_of, is_onnx
from dovetail.planning import HOST, get_placement, placement_of
from dovetail_onnx.signatures import Signatures, input_name, output_name
from dovetail_placement.source_scales import is_qdq, weight_of

from dovetail_precision.constraints import type_equalities
from dovetail_precision.graph_patterns import find_recurrent_io

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import FlatGraph, Model

    from dovetail_precision.sharing_groups import QuantizedForm


@dataclass(slots=True)
class Conversion:
    """One conversion of one value to one format, shared by all uses in that format with the same parameters.

    Attributes:
        value: The value to convert.
        held: The format it is computed in.
        wanted: The format it is read in.
        uses: Readers, with the index of the input.
        outputs: Graphs that return it, with the index of the output.
    """

    value: ir.Value
    held: Format
    wanted: Format
    uses: list[tuple[ir.Node, int]] = field(default_factory=list)
    outputs: list[tuple[ir.Graph, int]] = field(default_factory=list)

    @property
    def ends(self) -> list[ir.Node]:
        """The nodes whose backends may run the conversion, in order of preference.

        The producer comes first, unless it is on the host: then a reader's region can absorb the conversion.
        """
        producer = self.value.producer()
        readers = [node for node, _ in self.uses]
        if producer is None:
            return readers
        return [producer, *readers] if placement_of(producer).backend != HOST else [*readers, producer]


class PlannedTypes:
    """The formats that a plan assigns to values, to their readers, and to inputs and outputs of bodies.

    Args:
        model: A model whose nodes have placements.
        flat: Its flat graph.
        expressed: Return the expressed floats of quantized formats, as in the graph after quantization.
    """

    def __init__(self, model: Model, flat: FlatGraph, expressed: bool = False):
        self._expressed = expressed
        self._signatures = Signatures(model.ir.opset_imports)
        self._taken: dict[int, tuple[ir.Node, str]] = {}
        self._given: dict[tuple[int, int], tuple[ir.Node, str]] = {}
        for holder in {id(node): node for node in flat.holders.values()}.values():
            sig = self._signatures(holder)
            for equality in type_equalities(holder):
                port = input_name(equality.inputs[0], sig) if equality.inputs else output_name(equality.outputs[0], sig)
                self._taken.update((id(value), (holder, port)) for value in equality.body_inputs)
                self._given.update(((id(graph), index), (holder, port)) for graph, index in equality.body_outputs)

    def held(self, value: ir.Value) -> Format | None:
        """Return the format that `value` is computed in; None if it is no float tensor."""
        present = float_format(value)
        producer = value.producer()
        if producer is None and present is not None and id(value) in self._taken:
            holder, port = self._taken[id(value)]
            return self._format(placement_of(holder).port_format(port))
        placement = get_placement(producer) if producer is not None else None
        if present is None or producer is None or placement is None:
            return present
        if not placement.ports:
            return self._format(placement.precision)
        index = value.index()
        assert index is not None
        return self._format(placement.port_format(output_name(index, self._signatures(producer))))

    def wanted(self, node: ir.Node, index: int) -> Format | None:
        """Return the format in which `node` reads its input `index`; None if that is no float tensor."""
        if float_format(node.inputs[index]) is None:
            return None
        placement = get_placement(node)
        assert placement is not None
        if not placement.ports:
            return self._format(placement.precision)
        return self._format(placement.port_format(input_name(index, self._signatures(node))))

    def body_gives(self, graph: ir.Graph, index: int) -> Format | None:
        """Return the format of output `index` of `graph`; None if that is no float tensor."""
        present = float_format(graph.outputs[index])
        if present is None or (id(graph), index) not in self._given:
            return present
        holder, port = self._given[id(graph), index]
        return self._format(placement_of(holder).port_format(port))

    def _format(self, planned: Format | None) -> Format | None:
        if self._expressed and planned is not None and planned.quantized:
            return Format.of(planned.expressed)
        return planned

    def given(self, value: ir.Value) -> Format | None:
        """Return the type of a model input that need not keep its own: the common type of all users."""
        wanted = {self.wanted(node, index) for node, index in value.uses()}
        lone = len(wanted) == 1 and None not in wanted and not value.is_graph_output()
        return wanted.pop() if lone else float_format(value)


def before_widening(conversion: Conversion, types: PlannedTypes) -> ir.Value | None:
    """Return the input of a widening Cast if it already has the wanted type: its users need no conversion."""
    cast = conversion.value.producer()
    if conversion.outputs or cast is None or cast.op_type != "Cast" or not is_onnx(cast):
        return None
    source = input_of(cast, 0)
    if types.held(source) is conversion.wanted and conversion.wanted.fits_in(conversion.held):
        return source
    return None


def find_conversions(
    flat: FlatGraph, types: PlannedTypes, keep_io_types: bool = True, quantized_forms: Iterable[QuantizedForm] = ()
) -> list[Conversion]:
    """Return all conversions of a planned model in the order of their first users.

    Weights are excluded: they are stored in the wanted types instead.

    Args:
        flat: The flat graph of a model whose nodes have placements, before casts are inserted.
        types: Its planned types.
        keep_io_types: Keep the source types of model outputs. Otherwise only an output that comes back as an input
            (`recurrent_io`) has a required type: that of the input.
        quantized_forms: The quantized forms of values; integers of one scale are converted to those of another.
    """
    found: dict[tuple, Conversion] = {}
    main, forms = flat.graphs[0], _Forms(quantized_forms)
    overridable = {id(value) for value in main.inputs}

    def conversion(value: ir.Value, held: Format, wanted: Format, form: QuantizedForm | None = None) -> Conversion:
        return found.setdefault((id(value), wanted, id(form)), Conversion(value, held, wanted))

    for node in flat.nodes:
        for index, value in enumerate(node.inputs):
            if value is None or value.is_initializer() and id(value) not in overridable:
                continue
            wanted = types.wanted(node, index)
            if wanted is None:
                continue
            held, form = types.held(value), forms.read(node, index)
            if wanted != held and not forms.converted_by_source(node, index) or forms.requantized(value, form):
                assert held is not None, "only floats are read as floats"
                conversion(value, held, wanted, form).uses.append((node, index))
    for graph in flat.graphs:
        free = graph is main and not keep_io_types
        states = {id(output): types.given(value) for value, output in find_recurrent_io(graph)} if free else {}
        for index, value in enumerate(graph.outputs):
            held = types.held(value)
            wanted = states.get(id(value), held) if free else types.body_gives(graph, index)
            if held is not None and wanted is not None and held != wanted:
                conversion(value, held, wanted).outputs.append((graph, index))
    return list(found.values())


class _Forms:
    """The quantized forms in which values are computed and read."""

    def __init__(self, quantized_forms: Iterable[QuantizedForm]):
        self._computed: dict[int, QuantizedForm] = {}
        self._read: dict[tuple[int, int], QuantizedForm] = {}
        for form in quantized_forms:
            for use in form.uses:
                if use.is_output:
                    self._computed[id(form.value)] = form
                else:
                    self._read[id(use.node), use.index] = form

    def read(self, node: ir.Node, index: int) -> QuantizedForm | None:
        """Return the form in which a node reads an input; None if it reads floats."""
        return self._read.get((id(node), index))

    def requantized(self, value: ir.Value, form: QuantizedForm | None) -> bool:
        """Check whether a value is computed in integers of another scale than those of `form`."""
        return form is not None and self._computed.get(id(value), form) is not form

    def converted_by_source(self, node: ir.Node, index: int) -> bool:
        """Check whether a conversion of the source model serves an input: one before it, or the node itself.

        An integer weight of the source model is stored again if its integers do not fit.
        """
        form = self.read(node, index)
        if form is not None:
            return form.producer is None and (form.adopted is not None or weight_of(form.value) is not None)
        computed = self._computed.get(id(node.inputs[index])) if is_qdq(node) else None
        return computed is not None and computed.adopted is not None
