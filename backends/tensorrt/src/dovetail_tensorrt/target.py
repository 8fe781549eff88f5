"""Target GPUs of an engine."""

from __future__ import annotations

from typing import Any

from dovetail_tensorrt.libraries import RTX, Library

ANY = "any"
"""Target of TensorRT-RTX, which finishes compilation on the actual GPU, from Turing on."""
_PREFIX = "sm"


def target_of(library: Library, asked: str, capability: tuple[int, int] | None) -> str:
    """Return the target of an engine as text: `any`, `sm89`.

    Args:
        library: The TensorRT that builds it.
        asked: The value of the backend's option `target`.
        capability: The compute capability of the local GPU, the only target of the full TensorRT.
    """
    if library.sdk == RTX:
        return asked or ANY
    return f"{_PREFIX}{capability[0]}{capability[1]}" if capability is not None else ANY


def fits(target: str, capability: tuple[int, int]) -> bool:
    """Check whether an engine for `target` runs on a GPU of this compute capability."""
    return target in (ANY, f"{_PREFIX}{capability[0]}{capability[1]}")


def set_target(config: Any, library: Library, target: str) -> None:
    """Set the target in the builder's configuration; only TensorRT-RTX builds for other GPUs than the local one."""
    if library.sdk != RTX or target == ANY:
        return
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(library.trt.ComputeCapability, target.upper()), 0)
