"""Quantized weights that do not have the blocks which their operator declares: engines refuse them without a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir
    from dovetail.ir import Model

_DOMAIN = "com.microsoft"
_AGAIN = "quantize the model again; its attributes and its weights come from different settings"


def check_blocks(model: Model, path: Path) -> None:
    """Check the weights of every operator that computes with blocks of integers.

    Args:
        model: The model.
        path: Its file, for messages.

    Raises:
        DovetailError: A weight, its scales or its zero points have another number of blocks or bytes.
    """
    for node in model.nodes():
        if node.domain != _DOMAIN:
            continue
        if node.op_type == "MatMulNBits":
            _check_product(node, path)
        elif node.op_type == "GatherBlockQuantized":
            _check_table(node, path)


def _check_product(node: ir.Node, path: Path) -> None:
    attributes = node.attributes
    bits, size = attributes.get_int("bits", 4), attributes.get_int("block_size", 0)
    rows, columns = attributes.get_int("K", 0), attributes.get_int("N", 0)
    if size is None or size < 16 or size & (size - 1):
        raise _wrong(node, path, f"block_size is {size}, and a power of two from 16 on is expected")
    blocks = -(-(rows or 0) // size)
    held = -(-size * (bits or 0) // 8)
    _expect(node, path, 1, ([columns, blocks, held], [columns, blocks * held]), f"blocks of {size}")
    packed = -(-blocks * (bits or 0) // 8)
    _expect(node, path, 2, ([columns, blocks], [(columns or 0) * blocks]), f"blocks of {size}")
    zeros = [[columns, blocks], [columns, packed], [(columns or 0) * packed], [(columns or 0) * blocks]]
    _expect(node, path, 3, zeros, f"blocks of {size}")


def _check_table(node: ir.Node, path: Path) -> None:
    data, scales = (_shape(node, index) for index in (0, 2))
    if data is None or scales is None or not data:
        return
    size, bits = node.attributes.get_int("block_size", 128) or 128, node.attributes.get_int("bits", 4) or 4
    axis = (node.attributes.get_int("quantize_axis", 1) or 0) % len(data)
    value = node.inputs[0]
    packed = value is not None and value.dtype is not None and value.dtype.bitwidth == 8 and bits < 8
    extent = data[axis] * (8 // bits if packed else 1)
    wanted = [-(-extent // size) if index == axis else extents for index, extents in enumerate(data)]
    _expect(node, path, 2, (wanted,), f"blocks of {size}")


def _expect(node: ir.Node, path: Path, index: int, wanted: Iterable[Sequence[int | None]], what: str) -> None:
    """Check the shape of an input that is a weight against those that an operator takes."""
    shape = _shape(node, index)
    allowed = [list(one) for one in wanted]
    if shape is None or shape in allowed:
        return
    value = node.inputs[index]
    name = name_of(value) if value is not None else ""
    raise _wrong(node, path, f"'{name}' is {shape}, and {what} need {allowed[0]}")


def _shape(node: ir.Node, index: int) -> list[int] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.const_value is None:
        return None
    return [int(extent) for extent in value.const_value.shape]  # type: ignore[arg-type]


def _wrong(node: ir.Node, path: Path, what: str) -> DovetailError:
    return DovetailError(f"{path}: node '{node.name}' ({node.op_type}): {what}", _AGAIN)
