"""Insertion of QuantizeLinear and DequantizeLinear for the quantized values of a calibrated model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir
from dovetail.ir import (
    FlatGraph,
    Format,
    FreshNames,
    constant_of,
    dtype_name,
    dtype_of,
    insert_after_value,
    name_of,
)
from dovetail.planning import HOST, Placement, Step, placement_of, set_placement
from dovetail_placement.conversions import ConversionPlacement, ConversionSteps
from dovetail_placement.source_scales import QdqNode, dequantizing, quantizing, weight_of
from dovetail_precision.sharing_groups import QuantizedForm, quantized_forms

from dovetail_quantize.blocks import ENERGY, BlockWeight, block_constants
from dovetail_quantize.integers import parameters_of
from dovetail_quantize.observing import NamedObserver
from dovetail_quantize.parameters import is_adopted
from dovetail_quantize.quantized_tensor import QuantizedTensor
from dovetail_quantize.stored_blocks import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Parameters, QuantizedValue
    from onnx_ir._core import Usage


_ACCUMULATOR = "int32"


class Converting(NamedTuple):
    """An inserted conversion: the nodes of a step, and the quantized value whose parameters they have."""

    nodes: Sequence[ir.Node]
    step: Step
    quantized: QuantizedValue


class Inserter:
    """Inserts the conversions into one model.

    Attributes:
        model: The model.
        ctx: Its context.
        names: Generator of fresh names.
        outputs: Output indices of each original graph output.
        converting: What was inserted, apart from weights in blocks.
        stored: The weights in integers, each with the float weight and its quantized value.
    """

    def __init__(self, model: Model, ctx: Context):
        self.model, self.ctx = model, ctx
        self.names = ctx.analysis(FreshNames, model)
        self._steps = ConversionSteps(model, ctx)
        self._places = ConversionPlacement(model, ctx)
        self._constants: dict[tuple, ir.Value] = {}
        self.outputs: dict[ir.Value, list[int]] = {}
        for index, output in enumerate(model.graph.outputs):
            self.outputs.setdefault(output, []).append(index)
        self._order = {id(node): number for number, node in enumerate(model.nodes())}
        self._borders = {backend.name: backend.border for backend in ctx.backends}
        self.converting: list[Converting] = []
        self.stored: list[tuple[ir.Value, ir.Value, QuantizedValue]] = []

    def convert(self, forms: list[tuple[QuantizedForm, QuantizedValue]]) -> None:
        """Insert the conversions of one value for all formats and groups in which it is held."""
        forms = [form for form in forms if form[0].fused is None]
        if not forms:
            return
        value = forms[0][0].value
        weight = weight_of(value)
        if weight is None:
            _Conversions(self, value, forms).insert()
            return
        for one, quantized in forms:
            if quantized.parameters is None:
                self._store_blocks(one, weight)
            elif not _has_integers(dequantizing(value), one.format, quantized.parameters):
                self._store(one, quantized, weight)
        producer = value.producer()
        if not value.uses() and producer is not None and producer.graph is not None:
            producer.graph.remove(producer, safe=True)

    def uses(self, value: ir.Value) -> list[Usage]:
        """Return the uses of a value in graph order, so that names do not depend on earlier passes."""
        return sorted(value.uses(), key=lambda use: (self._order.get(id(use.node), len(self._order)), use.idx))

    def crosses_as_float(self, backend: str, end: str) -> bool:
        """Check whether floats, not integers, cross a backend's region border at `end`, `into` or `out`."""
        border = self._borders.get(backend)
        return border is not None and getattr(border, end) == "inside"

    def step(
        self,
        source: ir.Value,
        step: Step,
        name: str,
        backend: str,
        floats: ir.DataType,
        quantized: QuantizedValue,
        floats_cross: bool = False,
    ) -> tuple[ir.Value, list[ir.Node]]:
        """Build the nodes of one conversion step, on `backend` if it supports both formats, else on the host.

        Args:
            source: The value to convert.
            step: The conversion step.
            name: Prefix of new names.
            backend: Name of the preferred backend.
            floats: Float type of the value in the current graph, and of its scale; `join` later converts both to the
                type that the format expresses.
            quantized: The quantized value that has the parameters of the step.
            floats_cross: Whether the floats of this conversion, not its integers, cross a region border.
        """
        before, after = step.source, step.target
        assert before is not None and after is not None
        given, wanted = _stored(before), _stored(after)
        crossing = given if before.quantized != floats_cross else wanted
        step = step._replace(source=_expressing(before, floats), target=_expressing(after, floats))
        result, nodes, constants = self._steps.make(
            source,
            step,
            lambda node: self._places.choose(node, given, wanted, (backend,), crossing),
            name,
        )
        planned = Format.of((before if before.quantized else after).expressed)
        for node in nodes:
            set_placement(node, replace(placement_of(node), precision=planned))
        for constant in constants:
            self._share(constant, name)
        self.converting.append(Converting(nodes, step, quantized))
        return result, nodes

    def _share(self, constant: ir.Value, name: str) -> None:
        """Deduplicate the constants of a value's conversions, so that structurally equal kernels compare equal."""
        array = constant_of(constant).numpy()
        key = (name, constant.dtype, array.shape, array.tobytes())
        known = self._constants.setdefault(key, constant)
        if known is constant:
            self.model.graph.register_initializer(constant)
        else:
            constant.replace_all_uses_with(known)

    def _store(self, form: QuantizedForm, quantized: QuantizedValue, weight: ir.TensorProtocol) -> None:
        """Store a weight in integers, with one DequantizeLinear per backend that reads it."""
        graph, value = self.model.graph, form.value
        name = self.names.fresh(f"{value.name}_{form.format.element}")
        tensor = QuantizedTensor(weight, form.format, parameters_of(quantized), name)
        stored = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        graph.register_initializer(stored)
        self.stored.append((stored, value, quantized))
        step = Step("dequantize", form.format, Format.of(form.format.expressed), quantized.parameters)
        made: dict[str, ir.Value] = {}
        for use in form.uses:
            backend = placement_of(use.node).backend
            if backend not in made:
                made[backend], nodes = self.step(stored, step, name_of(value), backend, dtype_of(value), quantized)
                graph.insert_before(graph[0], nodes)
            use.node.replace_input_with(use.index, made[backend])
        _drop(value)

    def _store_blocks(self, form: QuantizedForm, weight: ir.TensorProtocol) -> None:
        """Store a weight with a scale per block, with one DequantizeLinear per backend that reads it."""
        graph, value, format_ = self.model.graph, form.value, form.format
        observer = NamedObserver(form, self.ctx.registry.observer)
        energy, stored = value.meta.get(ENERGY), value.meta.get(BLOCKS)
        blocks = BlockWeight(weight, format_, observer.of_part, dtype_of(value), energy, observer.is_search, stored)
        constants = block_constants(blocks, name_of(value), self.names)
        for constant in constants:
            graph.register_initializer(constant)
        made: dict[str, ir.Value] = {}
        for use in form.uses:
            backend = placement_of(use.node).backend
            if backend not in made:
                node = ir.node("DequantizeLinear", constants, {"axis": format_.axis, "block_size": format_.group})
                node.name = self.names.fresh(f"{value.name}_dequantize")
                result = node.outputs[0]
                result.name = self.names.fresh(f"{value.name}_{dtype_name(dtype_of(value))}")
                result.type, result.shape = ir.TensorType(dtype_of(value)), value.shape
                set_placement(node, Placement(backend, Format.of(format_.expressed)))
                graph.insert_before(graph[0], node)
                made[backend] = result
            use.node.replace_input_with(use.index, made[backend])
        _drop(value)


def _drop(value: ir.Value) -> None:
    """Remove a weight that nobody reads any more from its graph, which may be a body of control flow."""
    if value.is_initializer() and not value.uses() and not value.is_graph_output() and value.graph is not None:
        del value.graph.initializers[name_of(value)]


class _Conversions:
    """Conversions of one value that is not a weight."""

    def __init__(self, inserter: Inserter, value: ir.Value, forms: list[tuple[QuantizedForm, QuantizedValue]]):
        self._inserter, self._value = inserter, value
        self._forms = forms
        self._made = next((form for form in forms if form[0].producer is not None), None)
        if self._made is not None and self._made[0].format.element == _ACCUMULATOR:
            self._made = None  # the operator's float result represents the accumulator
        producer = value.producer()
        self._home = placement_of(producer).backend if producer is not None else HOST
        self._integers: dict[tuple[int, str], ir.Value] = {}
        self._floats: dict[tuple[int, str], ir.Value] = {}
        self._remarked: set[int] = set()
        self._adopted = self._adopt()

    def insert(self) -> None:
        """Insert the conversions, and redirect each reader to its own."""
        value = self._value
        wanted = {(id(use.node), use.index): form for form in self._forms for use in form[0].uses if not use.is_output}
        for node, index in self._inserter.uses(value):
            if node is self._adopted:
                continue
            form = wanted.get((id(node), index))
            if form is not None and form[0].format.element != _ACCUMULATOR:
                node.replace_input_with(index, self._read(form, placement_of(node).backend))
            elif self._made is not None:
                node.replace_input_with(index, self._read(self._made, self._crossing(placement_of(node).backend)))
        if self._made is not None and value.is_graph_output():
            self._become_output(self._read(self._made, self._crossing(HOST)), self._made[0].format)

    def _adopt(self) -> ir.Node | None:
        """Reuse the source model's own conversions of the value; return the adopted QuantizeLinear."""
        if self._made is None:
            return None
        qdq = next((one for one in quantizing(self._value) if self._is_adopted(one, self._made)), None)
        if qdq is None:
            return None
        node = qdq.node
        if len(self._value.uses()) > 1:  # other readers may come before it in the graph
            self._inserter.model.graph.remove(node)
            insert_after_value(self._inserter.model.graph, self._value, node)
        self._integers[id(self._made[0]), self._home] = qdq.integers
        return node

    def _is_adopted(self, qdq: QdqNode | None, form: tuple[QuantizedForm, QuantizedValue]) -> bool:
        return _has_integers(qdq, form[0].format, parameters_of(form[1]))

    def _crossing(self, reader: str) -> str:
        """Return the backend that dequantizes for a reader on another backend."""
        return self._home if self._inserter.crosses_as_float(self._home, "out") else reader

    def _read(self, form: tuple[QuantizedForm, QuantizedValue], backend: str) -> ir.Value:
        """Return the dequantized value for readers on a backend."""
        if self._made is None and self._is_adopted(dequantizing(self._value), form):
            return self._value
        key = (id(form[0]), backend)
        if key not in self._floats:
            integers = self._hold(form, backend)
            format_ = form[0].format
            step = Step("dequantize", format_, Format.of(format_.expressed), form[1].parameters)
            leaves = backend == self._home and self._inserter.crosses_as_float(self._home, "out")
            self._floats[key] = self._after(integers, step, backend, leaves, form[1])
        return self._floats[key]

    def _hold(self, form: tuple[QuantizedForm, QuantizedValue], reader: str) -> ir.Value:
        """Return the integers of a quantized value for a reader, created for the first one that takes them there."""
        leaves = self._inserter.crosses_as_float(self._home, "out")
        enters = self._inserter.crosses_as_float(reader, "into")
        direct = form is self._made and (reader == self._home or not (leaves or enters))
        # Where floats cross one border, and integers the other one, the host converts between the two.
        place = self._home if direct else reader if enters else HOST if leaves else self._home
        key = (id(form[0]), place)
        if key not in self._integers:
            format_ = form[0].format
            step = Step("quantize", Format.of(format_.expressed), format_, form[1].parameters)
            source = self._value
            if self._made is not None and not direct:
                source = self._read(self._made, self._home if leaves or place == self._home else HOST)
            self._integers[key] = self._after(source, step, place, leaves if direct else enters, form[1])
            self._remark(form, step)
        return self._integers[key]

    def _after(
        self, source: ir.Value, step: Step, backend: str, floats_cross: bool, quantized: QuantizedValue
    ) -> ir.Value:
        """Insert the nodes of a step directly after the value that they read."""
        name, floats = name_of(self._value), dtype_of(self._value)
        result, nodes = self._inserter.step(source, step, name, backend, floats, quantized, floats_cross)
        graph, before = self._inserter.model.graph, source
        for node in nodes:
            insert_after_value(graph, before, node)
            before = node.outputs[0]
        return result

    def _remark(self, form: tuple[QuantizedForm, QuantizedValue], step: Step) -> None:
        one, quantized = form
        if id(one) in self._remarked:
            return
        self._remarked.add(id(one))
        readers = [use.node for use in one.uses if not use.is_output]
        first = self._value.producer() or readers[0]
        kind = "requantized" if self._made is not None and form is not self._made else "quantized"
        scale = parameters_of(quantized).scale
        numbers = f"scale {scale[0]:.6g}" if len(scale) == 1 else f"{len(scale)} scales"
        why = f"'{self._value.name}' is {kind} to {one.format}, {numbers} ({quantized.source})"
        self._inserter.ctx.remark("passed", first, kind, why, because=tuple(dict.fromkeys(readers))[:8])

    def _become_output(self, result: ir.Value, made: Format) -> None:
        """Return `result` from the graph under the public name of the output."""
        graph, value = self._inserter.model.graph, self._value
        for index in self._inserter.outputs.get(value, ()):
            graph.outputs[index] = result
        name = value.name
        value.name = self._inserter.names.fresh(f"{name}_{made.expressed}")
        result.name = name


def _has_integers(qdq: QdqNode | None, format_: Format, parameters: Parameters) -> bool:
    """Check whether a conversion of the source model yields the integers of a quantized value."""
    return qdq is not None and qdq.fits(format_) and is_adopted(qdq.scale, format_, parameters, qdq.floats)


def _stored(format_: Format) -> Format:
    return Format.of(format_.element)


def _expressing(format_: Format, floats: ir.DataType) -> Format:
    """Return a quantized format that expresses another float type, or that float type for other formats."""
    if not format_.quantized:
        return Format.of(dtype_name(floats))
    words = [format_.scheme, f"expressed={dtype_name(floats)}"]
    words += [
        f"{key}={number}" for key, number in (("axis", format_.axis), ("group", format_.group)) if number is not None
    ]
    return Format.of(f"{format_.element}[{','.join(words)}]")


def insert_conversions(model: Model, ctx: Context) -> Inserter:
    """Insert the conversions of all quantized values, and return what was inserted."""
    inserter = Inserter(model, ctx)
    found = quantized_forms(ctx.analysis(FlatGraph, model), model.ir.opset_imports)
    quantized_values = {(one.value, one.format, one.group): one for one in ctx.outcome.quantized_values}
    by_value: dict[int, list[tuple[QuantizedForm, QuantizedValue]]] = {}
    for one in found:
        quantized = quantized_values[name_of(one.value), one.format, one.name]
        by_value.setdefault(id(one.value), []).append((one, quantized))
    for forms in by_value.values():
        inserter.convert(forms)
    if found:
        model.touch()
    return inserter
