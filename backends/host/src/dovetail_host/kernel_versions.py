"""Lowering of a region's opset if ONNX Runtime lacks kernels for the newest definitions.

A model is raised to the opset that its backends need. ONNX Runtime 1.31 lacks some kernels there: opset 22 only added
bfloat16 to the random operators, RoiAlign, Multinomial and others, and none of these was registered. A region that uses
no new feature has the same meaning at the older opset, and is loaded at that.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from dovetail.plugin import is_onnx
from dovetail_onnx import Signature, find_signature, node_problem

if TYPE_CHECKING:
    from dovetail.ir import Model


_CPU = "CPUExecutionProvider"
_OPEN_END = 1 << 20  # ONNX Runtime writes the largest integer


def at_older_opset(model: Model) -> Model | None:
    """Return a copy of `model` at the newest older opset for which ONNX Runtime's CPU provider has all kernels.

    Returns:
        The copy; None if no kernel is missing, or some node has another definition at that opset.
    """
    nodes = [node for node in model.nodes() if is_onnx(node)]
    lacking = [sig for op in {node.op_type for node in nodes} if (sig := _lacking(op, model.opset))]
    if not lacking:
        return None
    older = min(sig.version for sig in lacking) - 1
    if not all(
        _same(find_signature("", op, model.opset), find_signature("", op, older))
        for op in {node.op_type for node in nodes}
    ):
        return None
    opsets = {**model.ir.opset_imports, "": older}
    if any(node_problem(node, opsets) for node in nodes):
        return None
    copy = model.clone()
    copy.ir.opset_imports[""] = older
    return copy


def _lacking(op_type: str, opset: int) -> Signature | None:
    """Return the definition of an operator if only older definitions have kernels."""
    sig, ranges = find_signature("", op_type, opset), _kernels().get(op_type, ())
    if sig is None or not ranges or any(_fits(sig.version, *bounds) for bounds in ranges):
        return None
    older = find_signature("", op_type, sig.version - 1) if sig.version > 1 else None
    return sig if older is not None and any(_fits(older.version, *bounds) for bounds in ranges) else None


def _fits(version: int, first: int, last: int) -> bool:
    """Check whether a kernel for definitions `first` to `last` accepts `version`; an open range means `first` only."""
    return version == first if last > _OPEN_END else first <= version <= last


@cache
def _kernels() -> dict[str, list[tuple[int, int]]]:
    """Return the version ranges of ONNX Runtime's CPU kernels, by operator; none where it cannot be asked for them.

    `get_all_opkernel_def` starts every provider of a build. Where one does not start, as TensorRT's in a build for
    NVIDIA's GPUs beside which TensorRT is not installed, it ends the process (1.31).
    """
    from dovetail_onnx import native_state

    state, found = native_state(), dict[str, list[tuple[int, int]]]()
    if "get_registered_ep_kernel_defs" in vars(state):  # from 1.31 on
        kernels = state.get_registered_ep_kernel_defs(_CPU)
    elif set(state.get_available_providers()) <= {_CPU, "AzureExecutionProvider"}:
        kernels = [kernel for kernel in state.get_all_opkernel_def() if kernel.provider == _CPU]
    else:
        kernels = []
    for kernel in kernels:
        if kernel.domain in ("", "ai.onnx"):
            found.setdefault(kernel.op_name, []).append(tuple(kernel.version_range))
    return found


def _same(new: Signature | None, old: Signature | None) -> bool:
    """Check whether two definitions of an operator differ only in their types."""
    if new is None or old is None or new.version == old.version:
        return new is old or new is not None and old is not None

    def form(sig: Signature) -> tuple:
        ports = [(port.name, port.variadic, port.optional) for port in (*sig.inputs, *sig.outputs)]
        return ports, sig.attribute_types, sig.defaults, sig.required, len(sig.inputs)

    return form(new) == form(old)
