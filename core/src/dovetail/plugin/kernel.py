"""What computes one operator: the contract of a kernel, and of the memory that it computes in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np


class Kernel(ABC):
    """Computes one operator on NumPy arrays.

    It is registered as `registry.kernel("acme-scale", "acme_npu.kernels:Scale")`, and made once, without arguments.

    Attributes:
        function: What it computes: the operator with its domain, `acme::scale`, or the function that the operator's
            entry has under `kernel: func`; one of ONNX has no domain.
        device: Where it computes, as backends have it under `device:`.
        in_device_memory: Inputs and results are buffers of the device's `DeviceMemory`, and no arrays of the host.
        layout: The order of axes of tensors with four of them, `NCHW` or `NHWC`; `any` if it does not matter.
        types: Names of the element types that it computes in (`float32`); empty if it does not matter.
    """

    function: ClassVar[str]
    device: ClassVar[str] = "cpu"
    in_device_memory: ClassVar[bool] = False
    layout: ClassVar[str] = "any"
    types: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def run(self, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, object]) -> Sequence[np.ndarray]:
        """Compute all outputs; may be called from several threads at once.

        Args:
            inputs: An array per input, None for one that is absent; they must not be changed.
            attributes: By name, those that the node leaves to their defaults included.

        Returns:
            An array per output.
        """

    def run_in_place(
        self, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, object]
    ) -> Sequence[np.ndarray]:
        """The same, where the inputs that the operator's entry has under `inplace:` may be overwritten.

        Nothing reads them afterwards. Called only where all of them may be.
        """
        return self.run(inputs, attributes)


class DeviceMemory(ABC):
    """Moves arrays between the host and the memory of a device.

    It is registered as `registry.device_memory("npu", "acme_npu.memory:NpuMemory")` under the name of the device, and
    made once, without arguments. Its methods may be called from several threads at once. A buffer is whatever kernels
    of the device take; its memory is free when nothing refers to it anymore.
    """

    @abstractmethod
    def upload(self, array: np.ndarray) -> object:
        """Copy an array of the host to the device; returns the buffer."""

    @abstractmethod
    def download(self, buffer: object) -> np.ndarray:
        """Copy a buffer to the host; returns an array of its shape and element type."""
