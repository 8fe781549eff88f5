"""Backends with TensorRT engines: those whose file names the emitter, regardless of the backend's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.plugin import Backend


_EMITTER = "tensorrt-engine"


def makes_engines(backend: Backend) -> bool:
    """Check whether the regions of a backend become TensorRT engines."""
    return _EMITTER in backend.artifacts


def engine_backend(backends: Iterable[Backend], asked: str) -> Backend:
    """Return the first backend with engines.

    Args:
        backends: The backends of a request.
        asked: The option that requires it, for the message: `--profile`.

    Raises:
        UsageError: No backend has engines.
    """
    found = next(filter(makes_engines, backends), None)
    if found is None:
        raise UsageError(f"{asked} is for engines of TensorRT, and no backend makes any", "add --backend tensorrt")
    return found
