"""Find the operations of a typed graph that lose precision if they are inferred in bfloat16.

A kernel reads bfloat16, computes in float32 and rounds its result. So a float32 operation of the plan is exact in
either type if all its inputs are rounded already and all its readers round its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino as ov


_NO_ARITHMETIC = frozenset({"Constant", "Convert", "ConvertLike", "Parameter", "Result", "ShapeOf"})
# Data movement and selection: rounding before or behind them is the same.
_MOVEMENT = frozenset({
    "BatchToSpace", "Broadcast", "Concat", "DepthToSpace", "Gather", "GatherElements", "GatherND", "MaxPool", "Pad",
    "ReduceMax", "ReduceMin", "Reshape", "Reverse", "ReverseSequence", "Select", "Slice", "SpaceToBatch",
    "SpaceToDepth", "Split", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit",
})  # fmt: skip


def find_float32_operations(model: ov.Model) -> list[ov.Node]:
    """Return the operations that exchange float32 values which nothing has rounded, in graph order."""
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
