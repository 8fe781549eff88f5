"""How far an original that rounds to integers is from itself: no result of it can be said to be nearer."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail_runtime.data.batches import batches

from dovetail_verify.compare import verify
from dovetail_verify.runners import reference_runner, source_runner

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context

    from dovetail_verify.compare import OutputVerification

_ROUNDS = ("Quantize", "QLinear", "QAttention", "QGemm")  # beginnings of the names of operators that round
FINE = 30.0  # dB; whatever is nearer needs no explanation
FEW_BATCHES = 8


def own_rounding(original: Model, found: OutputVerification, data: object, ctx: Context) -> str:
    """Say how far two runs of an original are from each other that rounds numbers to integers as it computes.

    Where a number lies between two integers, the order of a sum decides which one it becomes. So the same host computes
    the original once more without its engine's optimizations, where a result is far from the original.

    Args:
        original: The original.
        found: The comparison of a result with it.
        data: What that was measured on; nothing is said of random inputs.
        ctx: The context, with the host.

    Returns:
        A sentence; empty if the original does not round, if the result is near, or if both runs are equal.
    """
    worst = found.worst_snr_db
    if data is None or worst is None or not -math.inf < worst < FINE or not any(map(rounds, original.nodes())):
        return ""
    try:
        itself = distance_from_itself(original, data, ctx)
    except DovetailError:
        return ""  # it explains a figure that stands without it
    if itself is None or not -math.inf < itself < 2 * FINE:
        return ""
    return (
        f"the original rounds to integers as it runs: without the optimizations of its engine it is {itself:.1f} dB "
        "from itself, so an SNR near that is no loss of the result"
    )


def distance_from_itself(original: Model, data: object, ctx: Context) -> float | None:
    """Return the SNR of the worst float output of an original without its engine's optimizations; None without one.

    Args:
        original: The original.
        data: What to measure on, of which a few batches are run.
        ctx: The context, with the host.

    Raises:
        DovetailError: The original cannot be run.
    """
    run = source_runner(original, ctx)
    few = [feeds for feeds, _ in islice(batches(original, data, None, run), FEW_BATCHES)]
    return verify(original, run, reference_runner(original, ctx, {"optimize": "none"}), few).worst_snr_db


def rounds(node: ir.Node) -> bool:
    """Check whether a node of an original rounds numbers to integers."""
    return node.op_type.removeprefix("Dynamic").startswith(_ROUNDS)
