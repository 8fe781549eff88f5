"""Bound inputs and outputs for results that several engines run; ONNX Runtime's own binding serves all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.errors import DovetailError
from dovetail_onnx.native_runtime import onnx_runtime

if TYPE_CHECKING:
    import onnxruntime as ort

_HERE = "cpu"


class IOBinding:
    """Inputs and outputs of repeated runs, in main memory; the methods are those of `onnxruntime.IOBinding`.

    Args:
        outputs: Names of the outputs, in order.
        run: Computes all outputs from arrays by name.
    """

    def __init__(self, outputs: Sequence[str], run: Callable[[dict[str, Any]], dict[str, Any]]):
        self._names = list(outputs)
        self._run = run
        self._inputs: dict[str, Any] = {}
        self._targets: dict[str, ort.OrtValue | None] = {}
        self._results: dict[str, Any] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an input to an array, which is read at every run."""
        self._inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: ort.OrtValue) -> None:
        """Bind an input to a value of ONNX Runtime, which is read at every run.

        Raises:
            DovetailError: The value is on a device.
        """
        _check_place(name, ortvalue.device_name())
        self._inputs[name] = ortvalue

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: object, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Refuse an address in memory: the engines take arrays.

        Raises:
            DovetailError: Always.
        """
        raise DovetailError(
            f"input '{name}' cannot be bound to an address: several engines run this result",
            "bind_cpu_input takes an array",
        )

    def bind_output(self, name: str, device_type: str = _HERE, device_id: int = 0, **buffer: Any) -> None:
        """Ask for an output, in a new array of every run.

        Raises:
            DovetailError: There is no such output, it is asked for on a device, or a buffer is given.
        """
        _check_place(name, device_type)
        self._check_output(name)
        if given := sorted(key for key, value in buffer.items() if value is not None):
            raise DovetailError(
                f"output '{name}' cannot be written to a buffer ({', '.join(given)}): several engines run this result",
                "bind_ortvalue_output copies an output into a value",
            )
        self._targets[name] = None

    def bind_ortvalue_output(self, name: str, ortvalue: ort.OrtValue) -> None:
        """Ask for an output, copied into a value of ONNX Runtime after every run.

        Raises:
            DovetailError: There is no such output, or the value is on a device.
        """
        _check_place(name, ortvalue.device_name())
        self._check_output(name)
        self._targets[name] = ortvalue

    def run(self) -> None:
        """Compute the bound outputs from the bound inputs.

        Raises:
            DovetailError: An input is missing or does not fit, an output does not fit its value, or an engine fails.
        """
        results = self._run(dict(self._inputs))
        wanted = self._targets or dict.fromkeys(self._names)
        self._results = {name: results[name] for name in wanted}
        for name, target in wanted.items():
            if target is not None:
                try:
                    target.update_inplace(np.ascontiguousarray(results[name]))
                except RuntimeError as error:
                    raise DovetailError(
                        f"output '{name}' does not fit its value: {str(error).splitlines()[0]}",
                        f"bind a value of the shape {list(np.shape(results[name]))}",
                    ) from error

    def get_outputs(self) -> list[ort.OrtValue]:
        """Return the outputs of the last run as values of ONNX Runtime."""
        ort = onnx_runtime()
        values = []
        for name, array in self._results.items():
            target = self._targets.get(name)
            values.append(ort.OrtValue.ortvalue_from_numpy(array) if target is None else target)
        return values

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs of the last run as arrays."""
        return list(self._results.values())

    def clear_binding_inputs(self) -> None:
        """Forget the bound inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the bound outputs, and the results of the last run."""
        self._targets.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: everything is in main memory."""

    def synchronize_outputs(self) -> None:
        """Do nothing: everything is in main memory."""

    def _check_output(self, name: str) -> None:
        if name not in self._names:
            raise DovetailError(f"the model has no output '{name}'", f"its outputs are {', '.join(self._names)}")


def _check_place(name: str, device: str) -> None:
    if device.lower() != _HERE:
        raise DovetailError(
            f"'{name}' cannot be bound on '{device}': several engines run this result",
            "bind arrays in main memory, or compile for a backend that ONNX Runtime runs as a whole",
        )
