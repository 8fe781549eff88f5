"""Session on an engine: one stream, growing device memory, and a lock, because a context serves one call at a time."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dovetail.plugin import EngineError, Executed, Session

from dovetail_tensorrt.profiles.bounds import ExtentBounds

if TYPE_CHECKING:
    import numpy as np

    from dovetail_tensorrt.runtime.cuda import Cuda


class Outputs:
    """Outputs of one execution context.

    Args:
        context: The context.
        trt: The module of its TensorRT.
        cuda: The GPU.
        bindings: The outputs.
        types: The types of their arrays, by tensor.
        room: Allocates device memory for a tensor, given its size in bytes.
    """

    def __init__(
        self,
        context: Any,
        trt: Any,
        cuda: Cuda,
        bindings: Sequence[EngineBinding],
        types: Mapping[str, np.dtype],
        room: Callable[[str, int], int],
    ):
        self._context, self._trt, self._cuda, self._room = context, trt, cuda, room
        self._bindings, self._types = tuple(bindings), types
        self._allocators: dict[str, Any] = {}

    def prepare(self) -> None:
        """Allocate memory for every output, after the shapes of all inputs are set."""
        import math

        for binding in self._bindings:
            name = binding.tensor
            shape = tuple(self._context.get_tensor_shape(name))
            if -1 in shape:
                # The size depends on the data, so TensorRT requests the memory at run time.
                if name not in self._allocators:
                    self._allocators[name] = _allocator(self._trt, self._room)
                self._context.set_output_allocator(name, self._allocators[name])
            else:
                size = math.prod(shape) * self._types[name].itemsize
                self._context.set_tensor_address(name, self._room(name, size))

    def fetch(self, stream: int) -> dict[str, np.ndarray]:
        """Copy the outputs to arrays by value name, and wait for the stream; the caller owns the arrays."""
        import numpy as np

        if any(binding.tensor in self._allocators for binding in self._bindings):
            self._cuda.wait(stream)  # data-dependent extents are known only now
        found = {}
        for binding in self._bindings:
            name = binding.tensor
            allocator = self._allocators.get(name)
            shape = tuple(self._context.get_tensor_shape(name)) if allocator is None else allocator.shape
            array = np.empty(shape, self._types[name])
            self._cuda.download(self._room(name, array.nbytes), array, stream)
            found[binding.value] = array
        self._cuda.wait(stream)
        return found


def _allocator(trt: Any, room: Callable[[str, int], int]) -> Any:
    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            trt.IOutputAllocator.__init__(self)
            self.shape: tuple[int, ...] = ()

        def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
            return room(name, size)

        def reallocate_output_async(self, name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return room(name, size)

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    return Allocator()


_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}

READ_TYPES = frozenset(_TYPES.values())
"""Element types that an engine supports at its border."""


def array_type(name: str, tensor: str) -> np.dtype:
    """Return the NumPy type of a tensor.

    Args:
        name: TensorRT's name of its type: `HALF`.
        tensor: The name of the tensor, for the message.

    Raises:
        EngineError: NumPy has no such type.
    """
    import ml_dtypes
    import numpy as np

    if name not in _TYPES:
        raise EngineError(f"'{tensor}' has the type {name}, of which there are no arrays")
    return np.dtype(ml_dtypes.bfloat16 if name == "BF16" else _TYPES[name])


@dataclass(frozen=True)
class EngineBinding:
    """Binding of a region's value to a tensor of the engine.

    Attributes:
        value: The name of the value.
        tensor: The name of the tensor.
        bounds: The bounds that the engine was built for; None for an output, or static extents.
    """

    value: str
    tensor: str
    bounds: ExtentBounds | None = None


class TensorRTSession(Session):
    """Runs an engine; thread-safe.

    Args:
        engine: A deserialized engine.
        trt: The module of the TensorRT that deserialized it.
        cuda: The GPU.
        inputs: The inputs of the region.
        outputs: Its outputs.
        nodes: The names of the nodes that the engine computes.
        made_by: The logger and the runtime that made the engine, which must live as long.
        notes: Messages for the user.
        passed: Outputs that are not computed, by name: the name of an input, or a constant array.
    """

    def __init__(
        self,
        engine: Any,
        trt: Any,
        cuda: Cuda,
        inputs: Sequence[EngineBinding],
        outputs: Sequence[EngineBinding],
        nodes: Sequence[str] = (),
        made_by: tuple[Any, Any] = (None, None),
        notes: Sequence[str] = (),
        passed: Mapping[str, str | np.ndarray] = MappingProxyType({}),
    ):
        self.notes = tuple(notes)
        self._passed = dict(passed)
        self._made_by, self._logger = made_by, made_by[0]
        self._engine, self._trt, self._cuda = engine, trt, cuda
        self._inputs, self._nodes = tuple(inputs), tuple(nodes)
        self._lock = threading.Lock()
        self._memory: dict[str, tuple[int, int]] = {}
        self._stream = 0
        self._context = engine.create_execution_context()
        if self._context is None:
            raise EngineError(f"TensorRT makes no context for the engine{self._said()}")
        self._stream = cuda.stream()
        self._types = {
            one.tensor: array_type(engine.get_tensor_dtype(one.tensor).name, one.tensor) for one in (*inputs, *outputs)
        }
        self._outputs = Outputs(self._context, trt, cuda, outputs, self._types, self._room)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute all outputs by name.

        Raises:
            EngineError: An input is outside the profile, or TensorRT fails.
        """
        with self._lock:
            held = [self._give(binding, inputs[binding.value]) for binding in self._inputs]
            self._outputs.prepare()
            if not self._context.execute_async_v3(self._stream):
                raise EngineError(f"TensorRT fails to run the engine{self._said()}")
            results = self._outputs.fetch(self._stream)
            del held  # pending copies read these arrays until here
        for name, source in self._passed.items():
            results[name] = (inputs[source] if isinstance(source, str) else source).copy()
        return results

    def executed(self) -> dict[str, Executed]:
        """Return all nodes as not reported: an engine fuses its nodes without telling how."""
        return {name: Executed("", "not-reported") for name in self._nodes}

    def _give(self, binding: EngineBinding, given: np.ndarray) -> np.ndarray:
        import numpy as np

        kind, name = self._types[binding.tensor], binding.tensor
        array = np.asarray(given, order="C")
        if array.dtype != kind:
            raise EngineError(f"'{binding.value}' is {array.dtype.name}, and the engine reads {kind.name}")
        _check_profile(binding, array)
        if self._engine.get_tensor_location(name) == self._trt.TensorLocation.HOST:
            # Host tensors with extents are read in place, before execution starts.
            self._set_shape(binding, array)
            self._context.set_tensor_address(name, array.ctypes.data)
            return array
        pointer = self._room(name, array.nbytes)
        self._cuda.upload(array, pointer, self._stream)
        self._set_shape(binding, array)
        self._context.set_tensor_address(name, pointer)
        return array

    def _set_shape(self, binding: EngineBinding, array: np.ndarray) -> None:
        if not self._context.set_input_shape(binding.tensor, tuple(array.shape)):
            shape = "x".join(map(str, array.shape))
            raise EngineError(f"the engine does not take '{binding.value}' with the shape {shape}{self._said()}")

    def _room(self, name: str, size: int) -> int:
        """Return device memory for a tensor; existing memory is reused if it is large enough."""
        pointer, there = self._memory.get(name, (0, -1))
        if there < size:
            if pointer:
                self._cuda.free(self._memory.pop(name)[0])
            pointer = self._cuda.allocate(size)
            self._memory[name] = pointer, size
        return pointer

    def _said(self) -> str:
        said = [text for kind, text in self._logger.taken() if kind == "error"] if self._logger is not None else []
        return f": {said[0]}" if said else ""

    def __del__(self) -> None:
        for pointer, _ in getattr(self, "_memory", {}).values():
            self._cuda.free(pointer)
        if getattr(self, "_stream", 0):
            self._cuda.end(self._stream)


def _check_profile(binding: EngineBinding, array: np.ndarray) -> None:
    bounds = binding.bounds
    if bounds is None:
        return
    if bounds.values is not None:
        numbers = tuple(map(int, array.reshape(-1)))
        if why := ExtentBounds(bounds.values).excludes(numbers).replace("extent", "number").replace("axis", "place"):
            raise EngineError(
                f"the numbers of '{binding.value}' are outside of the engine's profile: {why}",
                f"compile with --profile {shlex.quote(binding.value)}:=MIN:=OPT:=MAX that holds "
                f"{','.join(map(str, numbers))}",
            )
        return
    if why := bounds.excludes(array.shape):
        low, usual, high = bounds.texts()
        shape = "x".join(map(str, array.shape))
        raise EngineError(
            f"'{binding.value}' is {shape}, outside of the engine's profile {low}:{usual}:{high}: {why}",
            f"compile with --profile {shlex.quote(binding.value)}:MIN:OPT:MAX that holds {shape}",
        )
