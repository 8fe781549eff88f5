"""Which backends have engines: those whose file names the emitter, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.plugin import Backend


_EMITTER = "tensorrt-engine"


def makes_engines(backend: Backend) -> bool:
    """Whether the regions of a backend become engines of TensorRT."""
    return _EMITTER in backend.artifacts


def engine_backend(backends: Iterable[Backend], asked: str) -> Backend:
    """The first backend with engines.

    Args:
        backends: The backends of a request.
        asked: What needs one, for the message: `--profile`.

    Raises:
        UsageError: No backend has any.
    """
    found = next(filter(makes_engines, backends), None)
    if found is None:
        raise UsageError(f"{asked} is for engines of TensorRT, and no backend makes any", "add --backend tensorrt")
    return found
