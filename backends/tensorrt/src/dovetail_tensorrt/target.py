"""The GPUs that an engine is for."""

from __future__ import annotations

from typing import Any

from dovetail_tensorrt.libraries import RTX, Library

ANY = "any"
"""TensorRT-RTX finishes compiling on the GPU that it meets, from Turing on."""
_PREFIX = "sm"


def target_of(library: Library, asked: str, capability: tuple[int, int] | None) -> str:
    """What an engine is built for, as text: `any`, `sm89`.

    Args:
        library: What builds it.
        asked: The value of the backend's option `target`.
        capability: The compute capability of the GPU that is here, for which the full TensorRT always builds.
    """
    if library.sdk == RTX:
        return asked or ANY
    return f"{_PREFIX}{capability[0]}{capability[1]}" if capability is not None else ANY


def fits(target: str, capability: tuple[int, int]) -> bool:
    """Whether an engine for `target` runs on a GPU of this compute capability."""
    return target in (ANY, f"{_PREFIX}{capability[0]}{capability[1]}")


def set_target(config: Any, library: Library, target: str) -> None:
    """Tell the builder's configuration the GPU; only TensorRT-RTX builds for one that is not here."""
    if library.sdk != RTX or target == ANY:
        return
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(library.trt.ComputeCapability, target.upper()), 0)
