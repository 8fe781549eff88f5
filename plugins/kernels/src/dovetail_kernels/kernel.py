"""The contracts of kernels, which compute one operator, and of device memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np


class Kernel(ABC):
    """Computes one operator on NumPy arrays.

    Registered as `registry.kernel("acme-scale", "acme_npu.kernels:Scale")`, and created once, without arguments.

    Attributes:
        function: The operator that it computes, with its domain, `acme::scale` (ONNX operators have none), or the
            function that the operator's entry names under `kernel: func`.
        device: The device that it computes on, as under `device:` in backend files.
        in_device_memory: Whether inputs and results are buffers of the device's `DeviceMemory`, not host arrays.
        layout: Axis order of four-dimensional tensors, `NCHW` or `NHWC`; `any` if it does not matter.
        types: Names of the supported element types (`float32`); empty for all.
    """

    function: ClassVar[str]
    device: ClassVar[str] = "cpu"
    in_device_memory: ClassVar[bool] = False
    layout: ClassVar[str] = "any"
    types: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def run(self, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, object]) -> Sequence[np.ndarray]:
        """Compute all outputs; thread-safe.

        Args:
            inputs: One array per input, None for an absent one; they must not be changed.
            attributes: Attributes by name, including those that the node leaves at their defaults.

        Returns:
            One array per output.
        """

    def run_in_place(
        self, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, object]
    ) -> Sequence[np.ndarray]:
        """Compute all outputs; may overwrite the inputs that the operator's entry lists under `inplace:`.

        Called only if all of these inputs may be overwritten, because nothing reads them afterwards.
        """
        return self.run(inputs, attributes)


class DeviceMemory(ABC):
    """Moves arrays between host and device memory.

    Registered as `registry.device_memory("npu", "acme_npu.memory:NpuMemory")` under the name of the device, and created
    once, without arguments. Its methods must be thread-safe. A buffer is any object that the device's kernels accept;
    its memory is freed when nothing refers to it anymore.
    """

    @abstractmethod
    def upload(self, array: np.ndarray) -> object:
        """Copy a host array to the device; return the buffer."""

    @abstractmethod
    def download(self, buffer: object) -> np.ndarray:
        """Copy a buffer to the host; return an array of its shape and element type."""
