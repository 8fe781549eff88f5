"""Originals that are in integers already: no result gives less than these; else other kernels compute them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.passes import Context
from dovetail.planning import IN_FLOATS, Remark

from dovetail_verify.accuracy.costly_nodes import chooses_integers
from dovetail_verify.accuracy.goals import worst_of
from dovetail_verify.compiled_from import exact_model
from dovetail_verify.own_rounding import distance_from_itself, rounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Request
    from dovetail.plugin import CompiledModel, CompileJob

    from dovetail_verify.compare import OutputVerification
    from dovetail_verify.held_out import HeldOut

_CLEAR = 1.0  # dB
_SAME = 60.0  # dB; rounding of float32 alone differs by as much between engines
_ONNXRUNTIME, _UNOPTIMIZED = "onnxruntime", "without its engine's optimizations"
_KEPT = "the original's own integers are computed as the original has them"

SOURCE_INTEGERS = "source-integers"
"""The rule of the remark on a result whose original has integers that the host computes."""


def with_source_integers(
    job: CompileJob, held_out: HeldOut, compiled: CompiledModel, shapes: Mapping[str, Sequence[int]]
) -> CompiledModel:
    """Return a result that is no farther from an original in integers than this is from itself.

    An engine of a backend may fuse such integers in another way than the engine that runs the original, and each sum
    that it rounds to another integer is carried on. If the result has less than 60 dB, and less than the original
    without its engine's optimizations, the options that suit ONNX Runtime (`runtimes` of a backend's file) are tried,
    whose kernels round as the original does. If that is not enough, the host computes the integers: the whole model if
    a backend quantizes nothing more, else the nodes that round or read what was rounded, if that is better.

    Args:
        job: The compilation.
        held_out: Its data, a part of which judges.
        compiled: The result of the request as it is.
        shapes: Shapes of inputs by name that the model leaves open.
    """
    if not any(map(rounds, job.original.graph)) or not chooses_integers(job, compiled):
        return compiled
    try:
        before = held_out.judged(compiled, shapes)
        worst = before.worst_snr_db
        if worst is None or worst >= _SAME:
            return compiled
        itself = distance_from_itself(job.original, held_out.judgment, job.ctx)
        if itself is None or worst >= min(itself, _SAME) - _CLEAR:
            return compiled
        alike = "is the same" if itself == math.inf else f"is {itself:.1f} dB from itself"
        elsewhere = f"elsewhere the worst output has {worst_of(before)}, and the original {alike} {_UNOPTIMIZED}"
        request = _in_onnxruntime(job, held_out.request)
        if request is not None and (found := _tried(held_out, request, shapes)) is not None:
            kept, after = found
            if (after.worst_snr_db or 0.0) >= min(itself, _SAME) - _CLEAR:
                chosen = ", ".join(map(str, request.backends))
                return _remarked(kept, f"{chosen} computes the original's own integers, because {elsewhere}", after)
        if compiled.plan.values:  # the backend quantizes what the original has in floats
            ctx = Context(held_out.request, plugins=job.ctx.plugins)
            named, _ = exact_model(job.original, compiled, ctx, job.passes, job.progress)
            kept = held_out.compile(dict.fromkeys(_in_integers(named), (IN_FLOATS, _KEPT)))
        else:
            kept = held_out.compile(request=replace(held_out.request, backends=(), strategy=None))
        after = held_out.judged(kept, shapes)
    except DovetailError:
        return compiled  # whoever compares the result later says why that fails
    if (after.worst_snr_db or 0.0) < worst + _CLEAR:
        return compiled
    return _remarked(kept, f"the host computes the original's own integers, because {elsewhere}", after)


def _tried(
    held_out: HeldOut, request: Request, shapes: Mapping[str, Sequence[int]]
) -> tuple[CompiledModel, OutputVerification] | None:
    """Return a result of another request, with its comparison; None if it fails."""
    try:
        kept = held_out.compile(request=request)
        return kept, held_out.judged(kept, shapes)
    except DovetailError:
        return None


def _remarked(kept: CompiledModel, why: str, after: OutputVerification) -> CompiledModel:
    advice = "--all-integers leaves them where the request has them"
    text = f"{why}; {worst_of(after)} now"
    kept.plan.remarks.append(Remark("analysis", "", "accuracy", SOURCE_INTEGERS, text, advice=advice))
    kept.verification = after
    return kept


def _in_onnxruntime(job: CompileJob, request: Request) -> Request | None:
    """Return the request with the options that suit ONNX Runtime; None if its backends have none, or have them."""
    suited = {backend.name: backend.runtimes.get(_ONNXRUNTIME, {}) for backend in job.ctx.backends}
    choices = tuple(
        replace(choice, options={**suited.get(choice.name, {}), **choice.options}) for choice in request.backends
    )
    return replace(request, backends=choices) if choices != request.backends else None


def _in_integers(model: Model) -> Iterator[str]:
    """Yield the names of the nodes that convert to or from integers, or read what was converted."""
    for node in model.graph:
        producers = (value.producer() for value in node.inputs if value is not None)
        if _converts(node) or any(one is not None and _converts(one) for one in producers):
            yield name_of(node)


def _converts(node: ir.Node) -> bool:
    return node.op_type == "DequantizeLinear" or rounds(node)
