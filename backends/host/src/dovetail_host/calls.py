"""Calls of ONNX Runtime's sessions, with arrays of types that NumPy lacks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dovetail_onnx import onnx_runtime

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort


class ForeignType(NamedTuple):
    """An element type that NumPy lacks.

    Attributes:
        number: Its number in ONNX.
        name: Its name in `ml_dtypes`.
    """

    number: int
    name: str


class Calls:
    """Runs a session of ONNX Runtime; thread-safe, as its sessions are.

    Args:
        session: The session.
        foreign: Inputs and outputs of types that NumPy lacks. Such tensors are passed as integers of the same width.
    """

    def __init__(self, session: ort.InferenceSession, foreign: Mapping[str, ForeignType]):
        self._session, self._foreign = session, foreign
        self._outputs = [output.name for output in session.get_outputs()]

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name.

        Raises:
            Exception: ONNX Runtime's own.
        """
        if not self._foreign:
            return dict(zip(self._outputs, self._session.run(self._outputs, dict(inputs))))
        values = {name: self._to_value(name, array) for name, array in inputs.items()}
        results = self._session.run_with_ort_values(self._outputs, values)
        return {name: self._from_value(name, value) for name, value in zip(self._outputs, results)}

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call that runs over fixed arrays of the CPU's memory; see `dovetail_runtime.Bindable`."""
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, self._to_value(name, array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, self._to_value(name, array))

        def call(held: object = (inputs, outputs)) -> None:  # the binding does not keep the arrays
            self._session.run_with_iobinding(binding)

        return call

    def _to_value(self, name: str, array: np.ndarray) -> ort.OrtValue:
        import numpy as np

        ort = onnx_runtime()
        array = np.asarray(array, order="C")
        if name not in self._foreign:
            return ort.OrtValue.ortvalue_from_numpy(array)
        number = self._foreign[name].number
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.itemsize}"), number)

    def _from_value(self, name: str, value: ort.OrtValue) -> np.ndarray:
        import ml_dtypes
        import numpy as np

        if name not in self._foreign:
            return value.numpy()
        target = np.dtype(vars(ml_dtypes)[self._foreign[name].name])
        shape = value.shape()
        size = int(np.prod(shape)) * target.itemsize
        # Copy, because the binding has no view of such a tensor, and its memory is freed with `value`.
        data = ctypes.string_at(value.data_ptr(), size) if size else b""
        return np.frombuffer(bytearray(data), dtype=target).reshape(shape)
