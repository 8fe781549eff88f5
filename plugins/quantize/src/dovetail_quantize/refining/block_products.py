"""Products with weights in blocks, which refinements that depend on their inputs can change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import input_of
from dovetail.planning import get_placement, placement_of

from dovetail_quantize.refining.layers import layer_of, refined_layers
from dovetail_quantize.refining.steps import READING_SCALES

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format, Model
    from dovetail.passes import Context

_WEIGHT, _TABLE = "B", "data"


class BlockProduct(NamedTuple):
    """A product whose weight has a scale per block along the channels that are read.

    Attributes:
        node: The product.
        weight: Its weight, or the table that a head shares with an embedding and reads through a Transpose.
        format: The format of the weight.
    """

    node: ir.Node
    weight: ir.Value
    format: Format

    @property
    def read(self) -> ir.Value:
        """The value that the weight is multiplied with."""
        return input_of(self.node, 0)

    @property
    def channels(self) -> int:
        """Number of channels that are read."""
        assert self.weight.shape is not None, "a weight has a shape"
        layer = layer_of(self.node)
        return self.weight.shape.numpy()[1] if layer is None else layer.layout.extents[2]


def block_products(
    model: Model, step: str, steps: Mapping[str, tuple[str, ...]], ctx: Context
) -> dict[ir.Value, list[BlockProduct]]:
    """Return the products of a model that a refinement can change, by the value that they read.

    Those whose scales other refinements read are left out, with a remark.

    Args:
        model: The model.
        step: The refinement.
        steps: The refinements by backend.
        ctx: The context of the run.
    """
    found = [*_layers(model, step, steps), *_tied(model, step, steps)]
    by_value: dict[ir.Value, list[BlockProduct]] = {}
    for product in found:
        if set(READING_SCALES).intersection(steps[placement_of(product.node).backend]):
            why = "scales of its weight are found before, because other refinements read them"
            ctx.remark("missed", product.node, step, why)
        else:
            by_value.setdefault(product.read, []).append(product)
    return by_value


def _layers(model: Model, step: str, steps: Mapping[str, tuple[str, ...]]) -> list[BlockProduct]:
    found = []
    for layer in refined_layers(model.graph, step, steps):
        format_ = placement_of(layer.node).port_format(_WEIGHT)
        if not layer.is_convolution and format_ is not None and format_.group is not None:
            found.append(BlockProduct(layer.node, layer.weight, format_))
    return found


def _tied(model: Model, step: str, steps: Mapping[str, tuple[str, ...]]) -> list[BlockProduct]:
    """Return heads that read an embedding, through a Transpose, in blocks along the channels of its rows."""
    found = []
    for node in model.graph:
        transpose = input_of(node, 1).producer() if node.op_type == "MatMul" and len(node.inputs) > 1 else None
        placement = get_placement(transpose) if transpose is not None and transpose.op_type == "Transpose" else None
        if transpose is None or placement is None or step not in steps.get(placement.backend, ()):
            continue
        table, format_ = input_of(transpose, 0), placement.port_format(_TABLE)
        if table.is_initializer() and format_ is not None and format_.group is not None and format_.axis == 1:
            found.append(BlockProduct(node, table, format_))
    return found
