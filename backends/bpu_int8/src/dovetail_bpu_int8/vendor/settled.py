"""Final placement and types of each node, and their difference from the vendor's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir import name_of
from dovetail.planning import get_placement
from dovetail_onnx import Signatures, input_name, output_name

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.planning import Plan, QuantizedValue


_INTEGERS = ("int8", "int16")
_CHOSEN = (*_INTEGERS, "float16")
_DEFAULT = "int8"
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Settled:
    """Placement of a node, and the element types at its configurable ports.

    Attributes:
        on_bpu: Whether it is on the BPU.
        inputs: Element types of the nonconstant inputs, by index.
        output: Element type of the first output: `int32` for full-precision sums.
    """

    on_bpu: bool
    inputs: Mapping[int, str] = field(default_factory=dict)
    output: str = ""


@dataclass(frozen=True)
class SettledNode:
    """Settings of a node that make the vendor's tools reproduce its placement and types.

    Attributes:
        on: `BPU` or `CPU`; empty if that is the default.
        inputs: Element types of differing inputs, by index.
        all_inputs: The element type of all inputs; empty if they are mixed, or do not differ.
        output: The element type of the outputs, if it differs.
    """

    on: str = ""
    inputs: Mapping[int, str] = field(default_factory=dict)
    all_inputs: str = ""
    output: str = ""


def settled_in(model: Model, backend: str) -> dict[str, Settled]:
    """Return the placement and types of a model's placed main-graph nodes, by name."""
    signatures = Signatures(model.ir.opset_imports)
    found = {}
    for node in model.graph:
        placement = get_placement(node)
        if placement is not None and node.name:
            own = placement.backend == backend
            found[node.name] = _settled(node, placement.port_format, signatures) if own else Settled(False)
    return found


def settled_by(plan: Plan, model: Model, backend: str) -> dict[str, Settled]:
    """Return the placement and types that a plan assigns to a model's nodes, by name."""
    signatures, entries = Signatures(model.ir.opset_imports), {entry.name: entry for entry in plan.nodes}
    found = {}
    for node in model.graph:
        name = name_of(node)
        entry = entries.get(name)
        if entry is None:
            continue

        def format_of(port: str, entry=entry) -> Format | None:
            return entry.ports.get(port, entry.precision)

        found[name] = _settled(node, format_of, signatures) if entry.backend == backend else Settled(False)
    return found


def _settled(node: ir.Node, format_of, signatures: Signatures) -> Settled:
    signature = signatures(node)
    inputs = {}
    for index, value in enumerate(node.inputs):
        if value is None or value.is_initializer() and not value.is_graph_input():
            continue
        element = _element(format_of(input_name(index, signature)))
        if element in _CHOSEN:
            inputs[index] = element
    return Settled(True, inputs, _element(format_of(output_name(0, signature))))


def _element(format_: Format | None) -> str:
    return "" if format_ is None or not format_.quantized and not format_.is_float else format_.element


def differences(settled: Mapping[str, Settled], by_default: Mapping[str, Settled]) -> dict[str, SettledNode]:
    """Return the necessary settings by node name, without nodes that need none."""
    found = {}
    for name, wanted in settled.items():
        given = by_default.get(name)
        if given is None:
            continue
        on = "" if wanted.on_bpu == given.on_bpu else "BPU" if wanted.on_bpu else "CPU"
        inputs = {
            index: element for index, element in wanted.inputs.items() if element != given.inputs.get(index, _DEFAULT)
        }
        same = set(wanted.inputs.values())
        all_inputs = next(iter(same)) if inputs and len(same) == 1 else ""
        output = wanted.output if wanted.output in _CHOSEN and wanted.output != (given.output or _DEFAULT) else ""
        if given.output not in _CHOSEN and wanted.output == _DEFAULT:
            output = ""  # an int8 model output, which `set_model_output_int8` requests
        if on or inputs or output:
            found[name] = SettledNode(on, {} if all_inputs else inputs, all_inputs, output)
    return found


def model_output_format(model: Model, settled: Mapping[str, Settled]) -> str:
    """Return the integer format of products that are model outputs; empty for full-precision sums."""
    found = set()
    for value in model.graph.outputs:
        node = value.producer()
        placed = settled.get(name_of(node)) if node is not None and node.op_type in _PRODUCTS else None
        if placed is not None and placed.on_bpu:
            found.add(placed.output)
    return next((element for element in ("int16", "int8") if element in found), "")


_HIGHEST = {"int8": 127, "int16": 32767}
_DIGITS = 9  # significant digits from which the scale is recovered bit for bit


class InputScale(NamedTuple):
    """The per-tensor scale of a port's operand.

    Attributes:
        group: The name of its sharing group.
        threshold: The largest magnitude that the integers represent; None before calibration.
    """

    group: str
    threshold: float | None


def threshold(quantized: QuantizedValue) -> float | list[float] | None:
    """Return the threshold of a quantized value, one number or one per channel; None for 32-bit sums and the like.

    A scale is the threshold divided by 127, or by 32767 for int16.
    """
    highest = _HIGHEST.get(quantized.format.element)
    if highest is None or quantized.parameters is None:
        return None
    found = [float(f"{scale * highest:.{_DIGITS}g}") for scale in quantized.parameters.scale]
    return found[0] if len(found) == 1 else found


def input_thresholds(quantized_values: Iterable[QuantizedValue]) -> dict[tuple[str, str], float | list[float]]:
    """Return the threshold at every port that reads a quantized value, by node and port name."""
    found: dict[tuple[str, str], float | list[float]] = {}
    for quantized in quantized_values:
        value = threshold(quantized)
        if value is not None:
            for reader in quantized.readers:
                node, _, port = reader.rpartition(":")
                found[node, port] = value
    return found


def input_scales(quantized_values: Iterable[QuantizedValue]) -> dict[str, dict[str, InputScale]]:
    """Return the per-tensor scales of operands by node and port name, without those of weights and sums."""
    found: dict[str, dict[str, InputScale]] = {}
    for quantized in quantized_values:
        value = threshold(quantized)
        if quantized.source == "weights" or quantized.format.element not in _HIGHEST or isinstance(value, list):
            continue
        for reader in quantized.readers:
            node, _, port = reader.rpartition(":")
            found.setdefault(node, {})[port] = InputScale(quantized.group, value)
    return found


def thresholds(model: Model, quantized_values: Sequence[QuantizedValue], march: str) -> dict[str, Any]:
    """Return the thresholds of a model's nodes: of their inputs by index, and of their outputs.

    A node outside of the BPU yields floats, and has no threshold of its own. Weights are omitted, because the vendor's
    tools compute theirs from the model.

    Args:
        model: The model.
        quantized_values: The quantized forms of its values.
        march: The BPU.
    """
    read = input_thresholds(quantized_values)
    given: dict[str, float | list[float]] = {}
    for quantized in quantized_values:
        value = threshold(quantized)
        if value is not None and quantized.made_by:
            given[quantized.value] = value
    signatures = Signatures(model.ir.opset_imports)
    nodes: dict[str, Mapping[str, Any]] = {}
    for node in model.graph:
        signature, name = signatures(node), name_of(node)
        inputs: dict[str, float | list[float]] = {}
        for index, operand in enumerate(node.inputs):
            weight = operand is None or operand.is_initializer() and not operand.is_graph_input()
            found = None if weight else read.get((name, input_name(index, signature)))
            if found is not None:
                inputs[str(index)] = found
        outputs = {str(i): given[result.name] for i, result in enumerate(node.outputs) if result.name in given}
        if inputs or outputs:
            nodes[name] = {"inputs": inputs, "outputs": outputs}
    return {"march": march, "nodes": nodes}
