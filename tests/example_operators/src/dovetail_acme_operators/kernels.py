"""Kernels for the host: one in NumPy, one in C."""

import ctypes

import numpy as np
from dovetail_kernels import Kernel

_SWAB = ctypes.CDLL(None).swab
_SWAB.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t]


class TopBits(Kernel):
    """Keeps the upper bits of bytes."""

    function = "acme.vision::top_bits"
    types = ("uint8",)

    def run(self, inputs, attributes):
        return [inputs[0] & self._mask(attributes)]

    def run_in_place(self, inputs, attributes):
        inputs[0] &= self._mask(attributes)
        return [inputs[0]]

    def _mask(self, attributes):
        return np.uint8((0xFF << (8 - attributes["count"])) & 0xFF)


class SwapBytes(Kernel):
    """Exchanges the bytes of every number."""

    function = "acme.vision::swap_bytes"
    types = ("int16", "uint16")

    def run(self, inputs, attributes):
        x = np.ascontiguousarray(inputs[0])
        out = np.empty_like(x)
        _SWAB(x.ctypes.data, out.ctypes.data, x.nbytes)
        return [out.reshape(len(out), -1) if attributes["rows"] else out]
