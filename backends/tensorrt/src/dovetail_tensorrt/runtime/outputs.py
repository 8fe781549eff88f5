"""The outputs of an engine: those whose extents follow from the inputs, and those that the data decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from dovetail_tensorrt.runtime.cuda import Cuda
    from dovetail_tensorrt.runtime.session import Binding


class Outputs:
    """The outputs of one context.

    Args:
        context: The context.
        trt: The module of its TensorRT.
        cuda: The GPU.
        bindings: The outputs.
        types: The types of their arrays, by tensor.
        room: Gives device memory for a tensor, of so many bytes.
    """

    def __init__(
        self,
        context: Any,
        trt: Any,
        cuda: Cuda,
        bindings: Sequence[Binding],
        types: Mapping[str, np.dtype],
        room: Callable[[str, int], int],
    ):
        self._context, self._trt, self._cuda, self._room = context, trt, cuda, room
        self._bindings, self._types = tuple(bindings), types
        self._allocators: dict[str, Any] = {}

    def prepare(self) -> None:
        """Give every output its memory, once the shapes of all inputs are set."""
        import math

        for binding in self._bindings:
            name = binding.tensor
            shape = tuple(self._context.get_tensor_shape(name))
            if -1 in shape:
                # Only the data tells how large it is, so TensorRT asks for the memory while it runs.
                if name not in self._allocators:
                    self._allocators[name] = _allocator(self._trt, self._room)
                self._context.set_output_allocator(name, self._allocators[name])
            else:
                size = math.prod(shape) * self._types[name].itemsize
                self._context.set_tensor_address(name, self._room(name, size))

    def fetch(self, stream: int) -> dict[str, np.ndarray]:
        """The arrays, by name of the value, when the stream is done; they belong to the caller."""
        import numpy as np

        if any(binding.tensor in self._allocators for binding in self._bindings):
            self._cuda.wait(stream)  # the extents are known only then
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
