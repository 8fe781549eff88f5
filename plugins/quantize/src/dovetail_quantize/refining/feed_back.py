"""The `feed-back-errors` pass: integers of weights in blocks for the errors of products, not of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, constant_of, name_of
from dovetail_precision.sharing_groups import quantized_forms

from dovetail_quantize.integers import scale_shape
from dovetail_quantize.refining.block_products import block_products
from dovetail_quantize.refining.record import RefinementRecord
from dovetail_quantize.refining.steps import FEEDBACK, needs_data
from dovetail_quantize.stored_blocks import BLOCKS, StoredBlocks, packed_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail_precision.sharing_groups import QuantizedForm

    from dovetail_quantize.refining.block_products import BlockProduct

_PARTS = ("integers", "scale", "zero_point")
_CHECKED = 1 << 20  # numbers of a replayed weight
_ALIKE = 0.5  # of the energy of a weight, which the error of its integers stays below


def feed_back_errors(model: Model, ctx: Context) -> bool:
    """Round the weights of products; return whether any changed."""
    record = RefinementRecord.of(ctx)
    read = block_products(model, FEEDBACK, record.steps, ctx)
    if not read:
        return False
    if record.replayed:
        changed = sum(_replay(product, record) for products in read.values() for product in products)
    else:
        needs_data(ctx, FEEDBACK)
        forms = {one.value: one for one in quantized_forms(ctx.analysis(FlatGraph, model), model.ir.opset_imports)}
        changed = _feed_back(model, read, forms, record, ctx)
    ctx.count("fed back", changed)
    record.count(FEEDBACK, changed)
    return bool(changed)


def _feed_back(
    model: Model,
    read: Mapping[ir.Value, list[BlockProduct]],
    forms: Mapping[ir.Value, QuantizedForm],
    record: RefinementRecord,
    ctx: Context,
) -> int:
    from dovetail_quantize.observing import NamedObserver, observe
    from dovetail_quantize.refining.error_feedback import ErrorFeedback, SampledRows
    from dovetail_quantize.refining.samples import decibels

    samples = {value: SampledRows(products[0].channels) for value, products in read.items()}
    observe(model, {name_of(value): [sample] for value, sample in samples.items()}, ctx)
    changed = 0
    for number, (value, products) in enumerate(read.items(), start=1):
        if ctx.progress:
            ctx.progress("round weights", number, len(read))
        rows = samples.pop(value).rows
        if not len(rows):
            continue
        feedback = ErrorFeedback(rows)
        for product in products:
            observer = NamedObserver(forms[product.weight], ctx.registry.observer)
            weight = constant_of(product.weight).numpy()
            found = feedback.rounded(weight, product.format, observer.of_part)
            name = name_of(product.weight)
            parts = zip(_PARTS, found.blocks.packed(product.format.dtype.bitwidth), strict=True)
            kept = StoredBlocks(*(record.save(FEEDBACK, f"{name}:{part}", array) for part, array in parts))
            product.weight.meta[BLOCKS] = kept
            change = f"{decibels(found.signal, found.nearest):.1f} to {decibels(found.signal, found.chosen):.1f} dB"
            if found.chosen < found.nearest:
                why = f"errors of its weight are fed back: SNR of its results {change} on rows held back"
                ctx.remark("passed", product.node, FEEDBACK, why)
            else:
                why = f"its weight is rounded to the nearest integers: feedback changes SNR from {change}"
                ctx.remark("analysis", product.node, FEEDBACK, why)
            changed += 1
    return changed


def _replay(product: BlockProduct, record: RefinementRecord) -> bool:
    """Take the integers of a weight from the replayed plan.

    Raises:
        DovetailError: They are not those of this weight.
    """
    weight, format_ = constant_of(product.weight), product.format
    shape = tuple(weight.shape.numpy())
    scales = scale_shape(format_, shape)
    shapes = (packed_shape(shape, format_.dtype.bitwidth), scales, scales)
    name = name_of(product.weight)
    saved = [
        array
        for part, each in zip(_PARTS, shapes, strict=True)
        if (array := record.saved(FEEDBACK, f"{name}:{part}", each)) is not None
    ]
    if len(saved) < len(_PARTS):
        return False
    rows = max(1, _CHECKED // max(1, shape[1])) // (format_.group or 1) * (format_.group or 1)
    found = StoredBlocks(*saved).real(format_, shape, rows)
    exact = weight.numpy()[: len(found)].astype(np.float32)
    if not np.square(exact - found).sum() <= _ALIKE * np.square(exact).sum():
        raise DovetailError(
            f"plan: the integers of weight '{name}' are not those of this model's weight",
            "replay the plan on the model that it was made for, or compile without --plan and give --data",
        )
    kept = [record.save(FEEDBACK, f"{name}:{part}", array) for part, array in zip(_PARTS, saved, strict=True)]
    product.weight.meta[BLOCKS] = StoredBlocks(*kept)
    return True
