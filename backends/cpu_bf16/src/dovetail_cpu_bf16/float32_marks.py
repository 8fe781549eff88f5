"""Marks for operations that OpenVINO must compute in float32 in its bfloat16 inference mode.

OpenVINO's CPU plugin does not lower operations with the runtime attribute `precise`. The Python binding cannot set it,
but OpenVINO's file format can: the graph is written without its weights, marked there, and read back.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dovetail.plugin import TemporaryFolder

if TYPE_CHECKING:
    from pathlib import Path

    import openvino as ov


CONTROL_FLOW = frozenset({"If", "Loop", "TensorIterator"})


def bodies_of(operation: ov.Node) -> list[ov.Model]:
    """Return the bodies of `operation`; empty unless it is control flow."""
    kind = operation.get_type_name()
    if kind == "If":
        return [operation.get_function(0), operation.get_function(1)]
    return [operation.get_function()] if kind in CONTROL_FLOW else []


def with_bodies(model: ov.Model) -> Iterator[ov.Model]:
    """Yield `model` and all of its bodies, including nested ones."""
    found = [model]
    for part in found:
        yield part
        for operation in part.get_ordered_ops():
            found += bodies_of(operation)


_WRITTEN_UP_TO = 4096  # bytes of a constant; larger ones stay in memory and are reattached
_ATTRIBUTE = {"name": "precise", "version": "0"}


def mark_float32(model: ov.Model, operations: Iterable[ov.Node]) -> ov.Model:
    """Return the model with `operations` marked; `model` itself is consumed.

    Operations keep their names, and large constants are not copied.
    """
    import openvino as ov

    marked = {operation.get_name() for operation in operations}
    if not marked:
        return model
    weights = _detach_weights(model)
    names: dict[str, str] = {}
    chosen: set[str] = set()
    for part in with_bodies(model):
        for operation in part.get_ordered_ops():
            # Friendly names need not be unique, so the file uses unique keys instead.
            key = f"dovetail/{len(names)}"
            names[key] = operation.get_friendly_name()
            if operation.get_name() in marked:
                chosen.add(key)
            operation.set_friendly_name(key)
    with TemporaryFolder("openvino") as folder:
        graph, constants = folder / "model.xml", folder / "model.bin"
        ov.serialize(model, graph, constants)
        content = _marked(graph.read_bytes(), chosen)
        data = constants.read_bytes() if constants.is_file() else b""
        read = ov.Core().read_model(content, _as_tensor(data))
    for part in with_bodies(read):
        for operation in part.get_ordered_ops():
            operation.set_friendly_name(names[operation.get_friendly_name()])
    _reattach_weights(read, weights)
    return read


def write_marked(model: ov.Model, operations: Iterable[ov.Node], path: Path) -> None:
    """Write a model to an `.xml` file with its `.bin`, with `operations` marked; these get names of their own.

    OpenVINO does not write marks that it has read, so that they are added to its file.
    """
    import openvino as ov

    chosen = set()
    for number, operation in enumerate(operations):
        operation.set_friendly_name(f"{operation.get_friendly_name()}/float32-{number}")
        chosen.add(operation.get_friendly_name())
    ov.serialize(model, path, path.with_suffix(".bin"))
    path.write_bytes(_marked(path.read_bytes(), chosen))


def _marked(content: bytes, chosen: set[str]) -> bytes:
    tree = ElementTree.fromstring(content)
    for layer in tree.iter("layer"):
        if layer.get("name") not in chosen:
            continue
        info = layer.find("rt_info")
        if info is None:
            info = ElementTree.Element("rt_info")
            # The reader expects it before the ports.
            ports = [index for index, part in enumerate(layer) if part.tag in ("input", "output")]
            layer.insert(ports[0] if ports else len(layer), info)
        ElementTree.SubElement(info, "attribute", _ATTRIBUTE)
    return ElementTree.tostring(tree)


def _as_tensor(data: bytes) -> ov.Tensor:
    import numpy as np
    import openvino as ov

    return ov.Tensor(np.frombuffer(data or bytes(1), np.uint8).copy())


def _detach_weights(model: ov.Model) -> dict[str, ov.Output]:
    """Replace the large constants of the main graph by parameters; return the constants by parameter name."""
    from openvino import op

    weights: dict[str, ov.Output] = {}
    stand_ins = []
    for operation in model.get_ordered_ops():
        if operation.get_type_name() != "Constant" or not operation.get_element_type().is_real():
            continue
        if operation.get_byte_size() <= _WRITTEN_UP_TO:
            continue
        stand_in = op.Parameter(operation.get_element_type(), operation.get_output_partial_shape(0))
        stand_in.set_friendly_name(f"dovetail-weight/{len(weights)}")
        operation.output(0).replace(stand_in.output(0))
        weights[stand_in.get_friendly_name()] = operation.output(0)
        stand_ins.append(stand_in)
    model.add_parameters(stand_ins)
    return weights


def _reattach_weights(model: ov.Model, weights: dict[str, ov.Output]) -> None:
    for stand_in in list(model.get_parameters()):
        constant = weights.get(stand_in.get_friendly_name())
        if constant is not None:
            stand_in.output(0).replace(constant)
            model.remove_parameter(stand_in)


_NO_ARITHMETIC = frozenset({"Constant", "Convert", "ConvertLike", "Parameter", "Result", "ShapeOf"})
# Data movement and selection commute with rounding.
_MOVEMENT = frozenset({
    "BatchToSpace", "Broadcast", "Concat", "DepthToSpace", "Gather", "GatherElements", "GatherND", "MaxPool", "Pad",
    "ReduceMax", "ReduceMin", "Reshape", "Reverse", "ReverseSequence", "Select", "Slice", "SpaceToBatch",
    "SpaceToDepth", "Split", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit",
})  # fmt: skip


def find_float32_operations(model: ov.Model) -> list[ov.Node]:
    """Return the operations that exchange unrounded float32 values, in graph order."""
    operations = model.get_ordered_ops()
    detailed: set[tuple[str, int]] = set()  # values that bfloat16 cannot represent
    for operation in operations:
        if _has_digits(operation, detailed):
            detailed.update((operation.get_name(), port.get_index()) for port in operation.outputs() if _is_wide(port))
    wanted: set[tuple[str, int]] = set()  # values that some reader needs unrounded
    for operation in reversed(operations):
        if _reads_digits(operation, wanted):
            wanted.update(
                _key(source) for source in operation.input_values() if _is_wide(source) and _key(source) in detailed
            )
    kept = []
    for operation in operations:
        if operation.get_type_name() in _NO_ARITHMETIC or reads_bfloat16(operation):
            continue
        reads = any(_key(source) in wanted for source in operation.input_values())
        gives = any((operation.get_name(), port.get_index()) in wanted for port in operation.outputs())
        if reads and gives or operation.get_type_name() not in _MOVEMENT and (reads or gives):
            kept.append(operation)
    return kept


def _has_digits(operation: ov.Node, detailed: set[tuple[str, int]]) -> bool:
    kind = operation.get_type_name()
    if kind == "Parameter":
        return True
    if kind in _MOVEMENT or kind == "Convert":
        return any(_key(source) in detailed for source in operation.input_values())
    return kind not in _NO_ARITHMETIC and not reads_bfloat16(operation)


def _reads_digits(operation: ov.Node, wanted: set[tuple[str, int]]) -> bool:
    kind = operation.get_type_name()
    if kind == "Result":
        return True
    if kind in _MOVEMENT or kind == "Convert":
        return any((operation.get_name(), port.get_index()) in wanted for port in operation.outputs() if _is_wide(port))
    return kind not in _NO_ARITHMETIC and not reads_bfloat16(operation)


def reads_bfloat16(operation: ov.Node) -> bool:
    """Whether an input of `operation` is bfloat16."""
    return any(port.get_element_type().get_type_name() == "bf16" for port in operation.inputs())


def _is_wide(port: ov.Output) -> bool:
    return port.get_element_type().get_type_name() == "f32"


def _key(source: ov.Output) -> tuple[str, int]:
    return source.get_node().get_name(), source.get_index()
