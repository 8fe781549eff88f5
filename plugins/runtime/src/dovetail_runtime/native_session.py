"""Sessions that pass a region to one session of ONNX Runtime, for callers that use its interface."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from dovetail_runtime.direct_run import SelfChecking

if TYPE_CHECKING:
    import onnxruntime as ort
    from dovetail.ir import Model
    from dovetail_onnx import SessionStart


class OnnxRuntimeBacked(SelfChecking):
    """Base class of sessions that hand every run, unchanged, to one session of ONNX Runtime."""

    @property
    @abstractmethod
    def native(self) -> ort.InferenceSession | None:
        """The session of ONNX Runtime; None if inputs or outputs are converted on the way.

        Its inputs and outputs have the names of the region's.
        """

    @property
    def joins_neighbors(self) -> bool:
        """Whether one session may run regions of several backends, whose options mean nothing to it."""
        return False

    def start_of(self, model: Model) -> SessionStart | None:
        """Return how the session is made from the file of `model` alone; None if it was made of anything else."""
        return None
