"""Calls of compiled regions: requests, arrays and tensors."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import openvino as ov

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_LARGE = 1 << 16
_LEAST, _LARGEST = -(2**31), 2**31 - 1


class Calls:
    """Runs a compiled region; thread-safe.

    An infer request holds the inputs and outputs of one call, so every call takes its own from a pool. The pool grows
    to the largest number of concurrent calls.

    Args:
        compiled: The compiled region.
        inputs: The name of each of its inputs.
        outputs: The name of each of its outputs.
        passed: The positions of outputs that are inputs, each with that of its input: they are copied here.
    """

    def __init__(
        self, compiled: ov.CompiledModel, inputs: Sequence[str], outputs: Sequence[str], passed: Mapping[int, int]
    ):
        self._compiled, self.passed = compiled, passed
        self.inputs, self.outputs = list(inputs), list(outputs)
        # Appending to and popping from a deque are atomic: no lock is needed.
        self._idle: deque[ov.InferRequest] = deque([compiled.create_infer_request()])
        self._written = {index: port for index, port in enumerate(compiled.outputs) if _is_large(port)}

    def tensors(self, inputs: Mapping[str, np.ndarray]) -> list[ov.Tensor]:
        """Return a tensor for each input, which shares the memory of its array where it can."""
        return [_to_tensor(_in_32_bits(_readable(inputs[name]))) for name in self.inputs]

    def run(self, tensors: Sequence[ov.Tensor]) -> dict[str, np.ndarray]:
        """Compute all outputs by name. The caller owns the results.

        Args:
            tensors: A tensor for each input. The request reads them in place, so they must live until it has finished.

        Raises:
            RuntimeError: OpenVINO's own error.
        """
        request = self._take()
        for index, tensor in enumerate(tensors):
            request.set_input_tensor(index, tensor)
        made = {index: _new_array(port) for index, port in self._written.items()}
        for index, array in made.items():
            request.set_output_tensor(index, _to_tensor(array))
        request.infer(share_outputs=True)  # or the binding copies them, for a dictionary that is not used
        results = {
            name: made[i] if i in made else _to_array(self._computed(request, i, tensors))
            for i, name in enumerate(self.outputs)
        }
        self._idle.append(request)  # a request that failed is not reused
        return results

    def bind(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Callable[[], None]:
        """Return a call that runs over fixed arrays, on a request of its own; see `dovetail_runtime.Bindable`."""
        request = self._compiled.create_infer_request()
        given = [inputs[name] for name in self.inputs]
        limited = [np.empty_like(array) if array.dtype == np.int64 else array for array in given]
        clipped = [(array, limit) for array, limit in zip(given, limited) if array is not limit]
        for index, array in enumerate(limited):
            request.set_input_tensor(index, _to_tensor(array))
        copied = []
        for index, name in enumerate(self.outputs):
            array = outputs[name]
            if index not in self.passed and array.ndim and self._compiled.outputs[index].get_partial_shape().is_static:
                request.set_output_tensor(index, _to_tensor(array))
            else:
                copied.append((index, array))
        passed = {index: limited[of] for index, of in self.passed.items()}

        def call(held: object = (limited, outputs)) -> None:  # a request does not keep the arrays
            for array, limit in clipped:
                np.clip(array, _LEAST, _LARGEST, out=limit)
            request.infer(share_outputs=True)
            for index, array in copied:
                made = passed[index] if index in passed else _viewed(request.get_output_tensor(index))
                if made.shape != array.shape:
                    raise ValueError(f"output {index} has the shape {made.shape} in place of {array.shape}")
                array[...] = made

        return call

    def _computed(self, request: ov.InferRequest, output: int, tensors: Sequence[ov.Tensor]) -> ov.Tensor:
        return tensors[self.passed[output]] if output in self.passed else request.get_output_tensor(output)

    def _take(self) -> ov.InferRequest:
        """Return an infer request that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._compiled.create_infer_request()


def _readable(array: np.ndarray) -> np.ndarray:
    """Return an array that OpenVINO reads in place, or a copy of it.

    Memory maps and broadcast views may be read-only, and OpenVINO has no tensors of constant memory.
    """
    array = np.asarray(array)
    if array.flags.carray and array.dtype.isnative:
        return array
    return np.array(array, None if array.dtype.isnative else array.dtype.newbyteorder("="), order="C")


def _to_tensor(array: np.ndarray) -> ov.Tensor:
    if array.dtype == _BFLOAT16:
        return ov.Tensor(array.view(np.uint16), list(array.shape), ov.Type.bf16)
    if array.dtype.kind in "iu":
        # On some platforms NumPy has two 64-bit integer types of different names; the binding knows one of them.
        array = array.view(np.dtype(array.dtype.str))
    return ov.Tensor(array, shared_memory=array.size > 0)


def _in_32_bits(array: np.ndarray) -> np.ndarray:
    """Limit integers to 32 bits, which OpenVINO cuts them to: they are bounds and counts, so large ones stay large."""
    if array.dtype != np.int64 or not array.size or array.min() >= _LEAST and array.max() <= _LARGEST:
        return array
    return np.clip(array, _LEAST, _LARGEST)


def _is_large(port: ov.ConstOutput) -> bool:
    """Check whether results of a port are written directly to new arrays, because copying them would take longer."""
    shape = port.get_partial_shape()
    return shape.is_static and port.get_element_type().size * math.prod(shape.to_shape()) >= _LARGE


def _new_array(port: ov.ConstOutput) -> np.ndarray:
    type_ = port.get_element_type()
    return np.empty(list(port.get_partial_shape().to_shape()), _BFLOAT16 if type_ == ov.Type.bf16 else type_.to_dtype())


def _to_array(tensor: ov.Tensor) -> np.ndarray:
    return _viewed(tensor).copy()  # because the request reuses this memory for its next results


def _viewed(tensor: ov.Tensor) -> np.ndarray:
    """Return the memory of a tensor as an array. OpenVINO exposes bfloat16 as float16."""
    array = tensor.data
    return array.view(_BFLOAT16) if tensor.element_type == ov.Type.bf16 else array
