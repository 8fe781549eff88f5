"""The `float-borders` pass: pass floats across region borders in the high precision, for backends that require it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir import FlatGraph, Format, float_format, input_of, insert_after_value, is_onnx
from dovetail.passes import Pass
from dovetail.planning import HOST, Step, placement_of
from dovetail_placement.conversions import ConversionPlacement, ConversionSteps
from dovetail_placement.regions.form_regions import number_regions

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Backend


def gives_high(backend: Backend) -> bool:
    """Check whether floats cross the border of a backend's regions in its high precision (`border: {floats: high}`)."""
    return backend.border is not None and backend.border.floats == "high"


class FloatBorders(Pass):
    """Pass floats across the border of regions in the high precision, where the backend's file requires it.

    Given:  a backend with `border: {floats: high}` computes %a in float16, and another one reads it in float16
    Result: %b = Cast(%a, to float32) in the region of %a, and %c = Cast(%b, to float16) with the reader

    A cast on the other side of the border is replaced by one inside.
    """

    name = "float-borders"
    stage = "join"
    requires = ("join",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Insert casts at the borders of such regions; the order of values is preserved."""
        high = {backend.name: Format.of(backend.high or "float32") for backend in ctx.backends if gives_high(backend)}
        if not high:
            return False
        number_regions(model, ctx)
        return _Borders(model, ctx, high).widen()


class _Borders:
    """The borders of one model."""

    def __init__(self, model: Model, ctx: Context, high: dict[str, Format]):
        self._model, self._ctx, self._high = model, ctx, high
        self._flat = ctx.analysis(FlatGraph, model)
        self._steps, self._places = ConversionSteps(model, ctx), ConversionPlacement(model, ctx)
        self._made: dict[tuple[int, Format, object], ir.Value] = {}

    def widen(self) -> bool:
        changed = False
        values = [*self._model.graph.inputs, *(value for node in self._model.graph for value in node.outputs)]
        for value in values:
            held = float_format(value)
            if held is None or value.producer() is None and value not in self._model.graph.inputs:
                continue
            changed |= self._widen(value, held)
        for node in list(self._model.graph):
            if node.op_type == "Cast" and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                self._model.graph.remove(node, safe=True)
        return changed

    def _widen(self, value: ir.Value, held: Format) -> bool:
        """Let users across a border read `value` in the high precision; return whether there are any."""
        home, changed = self._region(value.producer()), False
        for reader, index in list(value.uses()):
            there = self._region(reader)
            high = self._high.get(home[0]) or self._high.get(there[0])
            if there == home or high is None or held is high or not held.fits_in(high):
                continue
            crossing = self._crossing(value, held, high, home)
            wanted = self._wanted_of_cast(reader)
            if wanted is high:
                reader.outputs[0].replace_all_uses_with(crossing, replace_graph_outputs=True)
            else:
                reader.replace_input_with(index, self._cast(crossing, high, held, there))
            changed = True
        if value.is_graph_output() and value.producer() is not None and home[0] in self._high:
            high = self._high[home[0]]
            if held is not high and held.fits_in(high):
                self._give_high(value, held, high, home)
                changed = True
        return changed

    def _crossing(self, value: ir.Value, held: Format, high: Format, home: tuple) -> ir.Value:
        """Return the value in the high precision, in which it crosses borders."""
        producer = value.producer()
        if producer is not None and producer.op_type == "Cast" and float_format(producer.inputs[0]) is high:
            return input_of(producer, 0)
        return self._cast(value, held, high, home)

    def _cast(self, value: ir.Value, held: Format, wanted: Format, region: tuple) -> ir.Value:
        """Return the value in another type, cast once per region."""
        key = (id(value), wanted, region)
        if key not in self._made:
            result, nodes, _ = self._steps.make(
                value,
                Step("cast", held, wanted),
                lambda node: self._places.choose(node, held, wanted, (region[0],)),
                name=f"{value.name}_to_{wanted}",
            )
            before = value
            for node in nodes:
                insert_after_value(self._model.graph, before, node)
                before = node.outputs[0]
            why = (
                f"'{value.name}' crosses the border of a region in {self._name_of_high(held, wanted)}, as its file says"
            )
            self._ctx.remark("passed", nodes[0], "float-border", why)
            self._made[key] = result
        return self._made[key]

    def _give_high(self, value: ir.Value, held: Format, high: Format, home: tuple) -> None:
        """Return the value from the model in the high precision, under its public name."""
        result, name = self._cast(value, held, high, home), value.name
        outputs = self._model.graph.outputs
        for index, output in enumerate(outputs):
            if output is value:
                outputs[index] = result
        value.name, result.name = result.name, name

    @staticmethod
    def _name_of_high(held: Format, wanted: Format) -> Format:
        return wanted if held.fits_in(wanted) else held

    def _region(self, node: ir.Node | None) -> tuple:
        """Return backend and number of a node's region; in a body, those of its control-flow node."""
        if node is None:
            return (HOST, None)
        placement = placement_of(self._flat.outermost(node) if node.graph is not self._model.graph else node)
        return (placement.backend, placement.region)

    @staticmethod
    def _wanted_of_cast(reader: ir.Node) -> Format | None:
        return float_format(reader.outputs[0]) if reader.op_type == "Cast" and is_onnx(reader) else None
