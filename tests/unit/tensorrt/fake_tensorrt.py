"""A TensorRT without a GPU: it parses and "builds" a model into its own bytes, and runs these with ONNX Runtime.

It has the calls that Dovetail makes, with their rules: addresses before running, shapes inside of a profile, one
context for one call at a time. Device memory is memory of the process, apart from that of arrays.
"""

import ctypes
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
from dovetail_tensorrt.libraries import Library

MAGIC = b"fake-engine:"
NAMES = {1: "FLOAT", 10: "HALF", 16: "BF16", 3: "INT8", 2: "UINT8", 6: "INT32", 7: "INT64", 9: "BOOL"}


class FakeCuda:
    """Memory that is like a GPU's: nothing but copies reaches it, and giving back what is not there fails."""

    def __init__(self, capability=(8, 9)):
        self.memory, self.streams, self._capability = {}, 0, capability

    def capability(self):
        return self._capability

    def stream(self):
        self.streams += 1
        return 77

    def end(self, stream):
        self.streams -= 1

    def allocate(self, size):
        buffer = ctypes.create_string_buffer(max(size, 1))
        self.memory[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def free(self, pointer):
        del self.memory[pointer]

    def upload(self, array, pointer, stream):
        assert array.nbytes <= len(self.memory[pointer])
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)

    def download(self, pointer, array, stream):
        ctypes.memmove(array.ctypes.data, pointer, array.nbytes)

    def wait(self, stream):
        pass


def _tensor(value):
    kind = value.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    return SimpleNamespace(
        name=value.name, dtype=SimpleNamespace(name=NAMES[kind.elem_type]), shape=shape, is_shape_tensor=False
    )


class Logger:
    def log(self, severity, text):
        raise NotImplementedError


class Network:
    num_layers = 0

    def load(self, model):
        self.model = model
        weights = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [_tensor(value) for value in model.graph.input if value.name not in weights]
        self._outputs = [_tensor(value) for value in model.graph.output]
        self.num_inputs, self.num_outputs = len(self._inputs), len(self._outputs)

    def get_input(self, index):
        return self._inputs[index]

    def get_output(self, index):
        return self._outputs[index]


class Parser:
    num_errors = 0

    def __init__(self, network, logger):
        self._network = network

    def parse(self, data):
        self._network.load(onnx.load_from_string(data))
        return True


class Builder:
    def __init__(self, logger):
        pass

    def create_network(self, flags):
        return Network()

    def create_builder_config(self):
        return SimpleNamespace(
            add_optimization_profile=lambda profile: 0, set_memory_pool_limit=lambda pool, size: None
        )

    def create_optimization_profile(self):
        return SimpleNamespace(set_shape=lambda name, *points: None)

    def build_serialized_network(self, network, config):
        return MAGIC + network.model.SerializeToString()


class Runtime:
    def __init__(self, logger):
        self._logger = logger

    def deserialize_cuda_engine(self, data):
        if not data.startswith(MAGIC):
            self._logger.log(SimpleNamespace(name="ERROR"), "the magic tag does not match")
            return None
        return Engine(onnx.load_from_string(data.removeprefix(MAGIC)))


class Engine:
    def __init__(self, model):
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        weights = {tensor.name for tensor in model.graph.initializer}
        ends = [value for value in (*model.graph.input, *model.graph.output) if value.name not in weights]
        self.types = {value.name: value.type.tensor_type.elem_type for value in ends}
        self.shapes = {value.name: _tensor(value).shape for value in ends}

    def get_tensor_dtype(self, name):
        return SimpleNamespace(name=NAMES[self.types[name]])

    def get_tensor_location(self, name):
        return "device"

    def create_execution_context(self):
        return Context(self)


class Context:
    def __init__(self, engine):
        self._engine, self._shapes, self._addresses, self._results = engine, {}, {}, {}
        self._allocators = {}

    def set_input_shape(self, name, shape):
        declared = self._engine.shapes[name]
        self._shapes[name] = tuple(shape)
        return len(declared) == len(shape) and all(d in (-1, s) for d, s in zip(declared, shape))

    def set_tensor_address(self, name, address):
        assert address
        self._addresses[name] = address

    def set_output_allocator(self, name, allocator):
        self._allocators[name] = allocator

    def get_tensor_shape(self, name):
        declared = self._engine.shapes[name]
        batch = next(iter(self._shapes.values()), (1,))[:1]
        # An open extent behind the first one stands for what only the data decides.
        return tuple(batch[0] if d == -1 and not i else d for i, d in enumerate(declared))

    def execute_async_v3(self, stream):
        session = self._engine.session
        feeds = {one.name: self._read(one.name, self._shapes[one.name]) for one in session.get_inputs()}
        for one, result in zip(session.get_outputs(), session.run(None, feeds)):
            result = np.ascontiguousarray(result)
            if one.name in self._allocators:
                allocator = self._allocators[one.name]
                self._addresses[one.name] = allocator.reallocate_output(one.name, 0, result.nbytes, 1)
                allocator.notify_shape(one.name, result.shape)
            ctypes.memmove(self._addresses[one.name], result.ctypes.data, result.nbytes)
        return True

    def _read(self, name, shape):
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(self._engine.types[name]))
        size = int(np.prod(shape)) * kind.itemsize
        data = bytearray(ctypes.string_at(self._addresses[name], size))
        return np.frombuffer(data, kind).reshape(shape)


class OutputAllocator:
    pass


def fake_library(version="11.4.0", sdk="TensorRT"):
    """A `Library` that stands for a TensorRT of this version."""
    trt = SimpleNamespace(
        Builder=Builder,
        OnnxParser=Parser,
        Runtime=Runtime,
        ILogger=Logger,
        IOutputAllocator=OutputAllocator,
        TensorLocation=SimpleNamespace(HOST="host", DEVICE="device"),
        NetworkDefinitionCreationFlag=SimpleNamespace(),
        DataType=SimpleNamespace(FLOAT="FLOAT"),
        MemoryPoolType=SimpleNamespace(WORKSPACE=0),
    )
    return Library(sdk, version, trt)
