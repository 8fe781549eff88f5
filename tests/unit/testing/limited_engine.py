"""An engine with limits of several kinds: it refuses, fails, computes something else, ends its process, and hangs."""

import os
import time

import numpy as np
from dovetail.plugin import Availability, Engine, EngineError, Executed, Reads, Session
from dovetail_host import OnnxRuntimeCpu


class Limited(Engine):
    name = "acme-limited"
    reads = Reads(21, 10, frozenset({"float32", "int32", "int64"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        (node,) = region.model.graph
        kernel = node.attributes.get("kernel_shape")
        if kernel is not None and max(kernel.as_ints()) > 5:
            raise EngineError(f"kernels of {max(kernel.as_ints())} are not supported", node=node.name)
        return Runs(OnnxRuntimeCpu().load(region, options), node)


class Runs(Session):
    def __init__(self, session, node):
        self._session, self._operator, self._name = session, node.op_type, node.name

    def run(self, inputs):
        first = next(iter(inputs.values()), np.float32(0))
        if self._operator == "Neg" and first.dtype == np.float64:
            raise RuntimeError("no kernel for doubles")
        if self._operator == "Abs" and first.dtype == np.int8:
            os.abort()
        if self._operator == "Sign" and first.dtype == np.int64:
            time.sleep(60)
        found = self._session.run(inputs)
        if self._operator == "Neg" and first.dtype == np.int8:  # limits instead of wrapping
            found = {name: np.where(first == -128, np.int8(127), array) for name, array in found.items()}
        if self._operator == "Floor" and first.ndim > 4:
            found = {name: array + 1 for name, array in found.items()}
        return found

    def executed(self):
        return {self._name: Executed("float32", "reported")}
