"""Minimal ctypes bindings of the CUDA runtime for running engines; no further distribution is needed."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    import numpy as np


_DRIVER = "libcuda.so.1"
_RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
_MAJOR, _MINOR = 75, 76  # device attributes of the compute capability
_UPLOAD, _DOWNLOAD = 1, 2
_NON_BLOCKING = 1


class NoDevice(DovetailError):
    """Raised if there is no GPU, or no way to access it."""


class Cuda:
    """A GPU.

    Args:
        runtime: The CUDA runtime, loaded by ctypes.
    """

    def __init__(self, runtime: ctypes.CDLL):
        self._runtime = runtime
        runtime.cudaGetErrorString.restype = ctypes.c_char_p

    def capability(self) -> tuple[int, int]:
        """Return the compute capability, such as (8, 9)."""
        found = []
        for attribute in (_MAJOR, _MINOR):
            number = ctypes.c_int()
            self._check(self._runtime.cudaDeviceGetAttribute(ctypes.byref(number), attribute, 0), "is asked")
            found.append(number.value)
        return found[0], found[1]

    def stream(self) -> int:
        """Create a stream."""
        handle = ctypes.c_void_p()
        self._check(self._runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), _NON_BLOCKING), "makes a stream")
        return handle.value or 0

    def end(self, stream: int) -> None:
        """Destroy a stream."""
        self._runtime.cudaStreamDestroy(ctypes.c_void_p(stream))

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes on the GPU.

        Raises:
            NoDevice: There is not enough memory.
        """
        pointer = ctypes.c_void_p()
        what = f"allocates {size} bytes"
        self._check(self._runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(max(size, 1))), what)
        return pointer.value or 0

    def free(self, pointer: int) -> None:
        """Free memory on the GPU."""
        self._runtime.cudaFree(ctypes.c_void_p(pointer))

    def upload(self, array: np.ndarray, pointer: int, stream: int) -> None:
        """Copy a contiguous array to the GPU, ordered by the stream."""
        self._copy(pointer, array.ctypes.data, array.nbytes, _UPLOAD, stream)

    def download(self, pointer: int, array: np.ndarray, stream: int) -> None:
        """Copy from the GPU to a contiguous array, ordered by the stream."""
        self._copy(array.ctypes.data, pointer, array.nbytes, _DOWNLOAD, stream)

    def wait(self, stream: int) -> None:
        """Wait until a stream has finished.

        Raises:
            NoDevice: Something in it failed.
        """
        self._check(self._runtime.cudaStreamSynchronize(ctypes.c_void_p(stream)), "runs")

    def _copy(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        if size:
            result = self._runtime.cudaMemcpyAsync(
                ctypes.c_void_p(target), ctypes.c_void_p(source), ctypes.c_size_t(size), kind, ctypes.c_void_p(stream)
            )
            self._check(result, f"copies {size} bytes")

    def _check(self, result: int, what: str) -> None:
        if result:
            text = self._runtime.cudaGetErrorString(result)
            said = text.decode(errors="replace") if isinstance(text, bytes) else str(result)
            raise NoDevice(f"CUDA fails while it {what}: {said}")


def check_driver() -> None:
    """Check that there is a GPU with its driver, without loading large libraries.

    Raises:
        NoDevice: There is none.
    """
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        raise NoDevice(f"there is no NVIDIA driver here ({_DRIVER})") from None
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise NoDevice("the NVIDIA driver finds no GPU here")


def open_cuda(runtime: Path | None) -> Cuda:
    """Open the GPU with the CUDA runtime that came with TensorRT, or with the system's.

    Raises:
        NoDevice: There is no driver, no GPU or no runtime.
    """
    check_driver()
    tried = []
    for name in _candidates(runtime):
        try:
            return Cuda(ctypes.CDLL(name))
        except OSError as error:
            tried.append(str(error))
    raise NoDevice(f"the CUDA runtime does not load: {'; '.join(tried)}", "pip install nvidia-cuda-runtime")


def _candidates(runtime: Path | None) -> Iterator[str]:
    if runtime is not None:
        yield str(runtime)
        return
    yield from _RUNTIMES
    found = ctypes.util.find_library("cudart")
    if found:
        yield found
