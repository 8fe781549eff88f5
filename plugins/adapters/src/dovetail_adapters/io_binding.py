"""Bound inputs and outputs for results that several engines run; ONNX Runtime's own binding serves all others."""

from __future__ import annotations

import ctypes
import math
import operator
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
        self._targets: dict[str, ort.OrtValue | np.ndarray | None] = {}
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
        """Bind an input to memory of the caller, which is read at every run.

        Args:
            name: The input.
            device_type, device_id: Where the memory is: `cpu`.
            element_type: A type of NumPy, or a number of `onnx.TensorProto`.
            shape: The shape of the array in it, whose rows are contiguous.
            buffer_ptr: Its address.

        Raises:
            DovetailError: The memory is on a device, or nothing of this type and shape can be there.
        """
        _check_place(name, device_type)
        self._inputs[name] = _array_at(name, element_type, shape, buffer_ptr)

    def bind_output(
        self,
        name: str,
        device_type: str = _HERE,
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output, in a new array of every run, or in memory of the caller.

        Args:
            name: The output.
            device_type, device_id: Where it is asked for: `cpu`.
            element_type, shape, buffer_ptr: The memory to write to, as for `bind_input`; ignored without an address.

        Raises:
            DovetailError: There is no such output, it is asked for on a device, or the memory is not described.
        """
        _check_place(name, device_type)
        self._check_output(name)
        if buffer_ptr is None:
            self._targets[name] = None
        elif element_type is None or shape is None:
            raise DovetailError(f"output '{name}' is bound to an address alone", "give element_type and shape, too")
        else:
            self._targets[name] = _array_at(name, element_type, shape, buffer_ptr)

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
        for name, target in wanted.items():  # before anything is written
            if isinstance(target, np.ndarray):
                _check_fits(name, results[name], target)
        self._results = {name: results[name] for name in wanted}
        for name, target in wanted.items():
            if isinstance(target, np.ndarray):
                np.copyto(target, results[name])
            elif target is not None:
                try:
                    target.update_inplace(np.ascontiguousarray(results[name]))
                except RuntimeError as error:
                    raise DovetailError(
                        f"output '{name}' does not fit its value: {str(error).splitlines()[0]}",
                        f"bind a value of the shape {list(np.shape(results[name]))}",
                    ) from error

    def get_outputs(self) -> list[ort.OrtValue]:
        """Return the outputs of the last run as values of ONNX Runtime."""
        new = onnx_runtime().OrtValue.ortvalue_from_numpy
        targets = {name: target for name, target in self._targets.items() if not isinstance(target, np.ndarray)}
        return [targets.get(name) or new(array) for name, array in self._results.items()]

    def get_outputs_as_ortvaluevector(self) -> Any:
        """Return the outputs of the last run as ONNX Runtime's own list of values."""
        vector = onnx_runtime().capi.onnxruntime_pybind11_state.OrtValueVector()
        for value in self.get_outputs():
            vector.push_back(value._ortvalue)
        return vector

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


def _array_at(name: str, element_type: object, shape: Sequence[int], address: int) -> np.ndarray:
    """Return the array in memory of the caller.

    Raises:
        DovetailError: No array of this type and shape can be there.
    """
    import onnx_ir as ir

    problem = f"'{name}' cannot be bound to memory of the type {element_type} and the shape {list(shape)}"
    try:
        given: Any = element_type
        dtype: np.dtype = ir.DataType(given).numpy() if isinstance(given, int) else np.dtype(given)
        is_plain = dtype.kind not in "OSU" and ir.DataType.from_numpy(dtype).bitwidth % 8 == 0
        extents = [operator.index(extent) for extent in shape]
    except (TypeError, ValueError) as error:
        raise DovetailError(problem, "the type is one of NumPy, or a number of onnx.TensorProto") from error
    if not is_plain or any(extent < 0 for extent in extents):
        raise DovetailError(problem, "an element has whole bytes, and an extent is 0 or more")
    size = math.prod(extents)
    if size and not address:
        raise DovetailError(
            f"'{name}' cannot be bound to the address {address}", "give that of an array: x.ctypes.data"
        )
    held = memoryview((ctypes.c_char * (size * dtype.itemsize)).from_address(address)) if size else b""
    return np.frombuffer(held, dtype).reshape(extents)


def _check_fits(name: str, result: Any, target: np.ndarray) -> None:
    if np.shape(result) != target.shape or np.asarray(result).dtype != target.dtype:
        raise DovetailError(
            f"output '{name}' is {np.asarray(result).dtype.name}{list(np.shape(result))}, and does not fit its memory, "
            f"which is {target.dtype.name}{list(target.shape)}",
            "bind memory of that type and shape, or leave the address out",
        )
