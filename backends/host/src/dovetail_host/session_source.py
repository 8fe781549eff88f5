"""What a session of ONNX Runtime is made of: a region as it is, or rewritten for kernels that the CPU has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dovetail.plugin import RegionModel, TemporaryFolder
from dovetail_runtime import engine_source, needs_file, saturates_dot_products, source_without_weights

from dovetail_host.emulated import KEPT, emulated, rounded
from dovetail_host.kernel_versions import at_older_opset
from dovetail_host.misread import with_all_inputs
from dovetail_host.unsigned_weights import with_unsigned_weights

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model


class SessionSource(NamedTuple):
    """What ONNX Runtime loads for a region.

    Attributes:
        content: The model, or its path.
        arrays: Large weights that are passed separately.
        kept: Names of optimizers that must not run on it.
        files: The temporary folder that was written for it.
        is_region: Whether it is the region as it is.
    """

    content: bytes | Path
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})
    kept: Sequence[str] = ()
    files: TemporaryFolder | None = None
    is_region: bool = False


def source_of(region: RegionModel, on_cpu: bool, share: bool, fuses: bool) -> SessionSource:
    """Return what ONNX Runtime loads for a region.

    Args:
        region: The region.
        on_cpu: Whether the CPU provider alone runs it, which needs models rewritten that it would not run or misread.
        share: Whether large weights may be passed separately.
        fuses: Whether a DequantizeLinear may become part of an integer product.
    """
    if not on_cpu:
        return SessionSource(engine_source(region), is_region=True)
    changed: Model | None = None
    kept: Sequence[str] = ()
    changes: list[Callable[[Model], Model | None]] = [with_all_inputs, at_older_opset, emulated, rounded]
    if saturates_dot_products():
        changes.append(partial(with_unsigned_weights, fuses=fuses))
    for change in changes:
        if (work := change(changed or region.model)) is not None:
            changed = work
            kept = KEPT if change is rounded else kept
    if changed is None and share and region.path is None:
        return SessionSource(*source_without_weights(region.model))
    if changed is None:
        return SessionSource(engine_source(region), is_region=True)
    if not needs_file(changed):
        return SessionSource(engine_source(RegionModel(changed)), kept=kept)
    files = TemporaryFolder("rounded")
    path = files.path / "model.onnx"
    changed.save(path, external=True)
    return SessionSource(path, kept=kept, files=files)
