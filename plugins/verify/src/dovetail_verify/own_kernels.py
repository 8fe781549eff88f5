"""Kernels of an original that compute otherwise than their operator is documented: no result can be near these."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.passes import Context, Manager, Pipeline, Request
from dovetail_runtime.data.batches import batches
from dovetail_transforms.decompositions import decompose, is_known, operator_of

from dovetail_verify.compare import verify
from dovetail_verify.metrics import decibels_text
from dovetail_verify.own_rounding import FEW_BATCHES, FINE, own_rounding
from dovetail_verify.runners import reference_runner, source_runner

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_verify.compare import OutputVerification

_MOST_OPERATORS = 8


def doubts_about(original: Model, found: OutputVerification, data: object, ctx: Context) -> list[str]:
    """Return why an original, and not a result, may be the reason for the figures of a comparison, as sentences."""
    return list(filter(None, (own_rounding(original, found, data, ctx), own_kernels(original, found, data, ctx))))


def own_kernels(original: Model, found: OutputVerification, data: object, ctx: Context) -> str:
    """Say which operator of an original its engine computes otherwise than documented, where a result is far from it.

    The host computes the original once more for each of its operators that are ONNX Runtime's own, with that operator
    written in standard ONNX.

    Args:
        original: The original.
        found: The comparison of a result with it.
        data: What that was measured on; nothing is said of random inputs.
        ctx: The context, with the host.

    Returns:
        A sentence; empty if the result is near, or if all operators are as they are documented.
    """
    worst = found.worst_snr_db
    if data is None or worst is None or worst >= FINE:
        return ""
    try:
        distances = _distances(original, data, ctx)
    except DovetailError:
        return ""  # it explains a figure that stands without it
    if not distances:
        return ""
    operator, distance = min(distances.items(), key=lambda item: item[1])
    if distance >= FINE:
        return ""
    nodes = [node.name for node in original.nodes() if operator_of(node) == operator]
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return (
        f"the source is at fault: its engine computes {operator} ('{nodes[0]}'{more}) otherwise than documented; with "
        f"that written in standard ONNX, the source is {decibels_text(distance)} from itself"
    )


def _distances(original: Model, data: object, ctx: Context) -> dict[str, float]:
    """Return the SNR of the worst output with each operator written out, against the original."""
    operators = list(dict.fromkeys(operator_of(node) for node in original.nodes() if is_known(node)))
    if not operators:
        return {}
    run, found = source_runner(original, ctx), {}
    few = [feeds for feeds, _ in islice(batches(original, data, None, run), FEW_BATCHES)]
    prepared, apart = original.clone(), Context(Request(), registry=ctx.registry)
    Manager(Pipeline.parse("normalize{opset=17}", ctx.registry), apart).run(prepared)
    for operator in operators[:_MOST_OPERATORS]:
        written = prepared.clone()
        if not decompose(written, apart, [operator]):
            continue
        distance = verify(original, run, reference_runner(written, ctx), few).worst_snr_db
        if distance is not None:
            found[operator] = distance
    return found
