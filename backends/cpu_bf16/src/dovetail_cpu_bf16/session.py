"""Sessions of `openvino-cpu`: compiled, thread-safe regions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import openvino as ov
from dovetail.errors import DovetailError
from dovetail.ir import bodies, input_of, name_of
from dovetail.plugin import Executed, RegionModel, TemporaryFolder
from dovetail_runtime import SelfChecking, extract_body

from dovetail_cpu_bf16.report import executed_precisions, refusal
from dovetail_cpu_bf16.shape_checks import ShapeChecks

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model


_ALONE = {"reported": "reported-alone"}
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_LARGE = 1 << 16
_LEAST, _LARGEST = -(2**31), 2**31 - 1


class OpenVinoSession(SelfChecking):
    """A region compiled by OpenVINO.

    An infer request holds the inputs and outputs of one call, so every call takes its own from a pool. The pool grows
    to the largest number of concurrent calls; `executed()` needs none.

    Args:
        compiled: The compiled region.
        region: The region.
        load_body: Loads a body of the region as a separate region.
        files: The files that it was compiled from.
        engine: Its engine, for messages.
        checks: Checks of input shapes; None if it needs none.
        plain: Loads the region without fused attention, for calls in which there are no keys.
    """

    def __init__(
        self,
        compiled: ov.CompiledModel,
        region: RegionModel,
        load_body: Callable[[Model], OpenVinoSession],
        files: TemporaryFolder | None = None,
        engine: str = "openvino-cpu",
        checks: ShapeChecks | None = None,
        plain: Callable[[], OpenVinoSession] | None = None,
    ):
        self._engine = engine
        self._checks = checks
        self._plain = plain if plain is None else cache(plain)
        self._compiled = compiled
        self._files = files  # OpenVINO maps the weights, so the files must outlive the session
        self._load_body = load_body
        # Appending to and popping from a deque are atomic: no lock is needed.
        self._idle: deque[ov.InferRequest] = deque([compiled.create_infer_request()])
        self._model = region.model
        self._inputs = _input_names(compiled, region.model.graph, engine)
        self._outputs = list(map(name_of, region.model.graph.outputs))
        if len(self._outputs) != len(compiled.outputs):
            raise DovetailError(f"{engine} gives {len(compiled.outputs)} outputs, the region has {len(self._outputs)}")
        self._written = {index: port for index, port in enumerate(compiled.outputs) if _is_large(port)}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name; thread-safe. The caller owns the results."""
        try:
            # The request reads the arrays in place, so they must live until it has finished.
            held = [_to_tensor(inputs[name]) for name in self._inputs]
            if self._needs_plain(inputs):
                assert self._plain is not None
                return self._plain().run(inputs)
            request = self._take()
            for index, tensor in enumerate(held):
                request.set_input_tensor(index, tensor)
            made = {index: _new_array(port) for index, port in self._written.items()}
            for index, array in made.items():
                request.set_output_tensor(index, _to_tensor(array))
            request.infer()
            results = {
                name: made[i] if i in made else _to_array(request.get_output_tensor(i))
                for i, name in enumerate(self._outputs)
            }
            self._idle.append(request)  # a request that failed is not reused
            return results
        except Exception as error:  # the binding raises RuntimeError and its own classes
            raise refusal(error, "fails at", self._model, self._engine) from error

    def _needs_plain(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Check the shapes of the inputs, and whether the region has to run without fused attention."""
        if self._checks is None or not self._checks.always and all(np.size(inputs[name]) for name in self._inputs):
            return False
        return self._checks.check(tuple(np.shape(inputs[name]) for name in self._inputs)) and self._plain is not None

    def executed(self) -> dict[str, Executed]:
        """Return how every node was executed.

        OpenVINO does not report the bodies of loops and branches, so each is compiled again on its own.
        """
        answers = executed_precisions(self._model, self._compiled.get_runtime_model())
        for node in self._model.graph:
            for body in bodies(node):
                answers.update(self._executed_alone(body))
        return answers

    def _take(self) -> ov.InferRequest:
        """Return an infer request that no other call uses."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._compiled.create_infer_request()

    def _executed_alone(self, body: ir.Graph) -> dict[str, Executed]:
        try:
            inner = self._load_body(extract_body(self._model, body)).executed()
        except DovetailError:
            return {}
        return {name: Executed(precision, _ALONE.get(how, how)) for name, (precision, how) in inner.items()}


def _input_names(compiled: ov.CompiledModel, graph: ir.Graph, engine: str) -> list[str]:
    """Return the graph input of every input of the compiled model.

    OpenVINO removes unused inputs. An input that reaches an output through dropped operators only (such as Dropout) has
    only the name of that output, so it is traced back along first inputs.
    """
    wanted = {value.name for value in graph.inputs}
    produced = {output.name: node for node in graph for output in node.outputs}
    found = []
    for port in compiled.inputs:
        names = port.get_names()
        name = next((name for name in names if name in wanted), None) or next(iter(names), "")
        while name not in wanted:
            if name not in produced:
                raise DovetailError(f"{engine} has an input {sorted(names)} that the region does not have")
            name = name_of(input_of(produced[name], 0))
        found.append(name)
    return found


def _to_tensor(array: np.ndarray) -> ov.Tensor:
    array = np.asarray(array, order="C")
    if array.dtype == np.int64 and array.size:
        array = _saturated(array)
    if array.dtype == _BFLOAT16:
        return ov.Tensor(array.view(np.uint16), list(array.shape), ov.Type.bf16)
    if array.dtype.kind in "iu":
        # On some platforms NumPy has two 64-bit integer types of different names; the binding knows one of them.
        array = array.view(np.dtype(array.dtype.str))
    return ov.Tensor(array, shared_memory=array.size > 0)


def _saturated(array: np.ndarray) -> np.ndarray:
    """Limit integers to 32 bits, which OpenVINO cuts them to: they are bounds and counts, so large ones stay large."""
    if array.min() >= _LEAST and array.max() <= _LARGEST:
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
    # Copy, because the request reuses this memory for its next results. OpenVINO exposes bfloat16 as float16.
    array = tensor.data.copy()
    return array.view(_BFLOAT16) if tensor.element_type == ov.Type.bf16 else array
