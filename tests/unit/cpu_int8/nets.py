"""Small nets for cpu-int8, as text, with data to calibrate them on."""

import functools

import dovetail
import numpy as np
import onnx
from onnx import numpy_helper

SHAPES = {"w": (4, 4, 3, 3), "v": (4, 4, 1, 1), "b": (4,), "m": (16, 16), "o": (16, 16), "n": (16,)}
"""Weights that nets may name: of convolutions (w, v, the bias b) and of matrix products (m, o, the bias n)."""


def net(body, x="1,4,6,6", y=None):
    """A net from x to y; `body` may name the weights."""
    text = f'<ir_version: 10, opset_import: ["": 20]> g (float[{x}] x) => (float[{y or x}] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(1)
    read = {name for node in model.graph.node for name in node.input}
    for name, shape in SHAPES.items():
        if name in read:
            array = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def samples(model, count=16):
    """Inputs of a net."""
    shape = [extent.dim_value for extent in model.graph.input[0].type.tensor_type.shape.dim]
    return [{"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)} for seed in range(count)]


@functools.cache
def plugins():
    """The installed plugins."""
    return dovetail.load_plugins()


def compiled(model, backend="cpu-int8", **request):
    """A net, compiled for the backend on its samples."""
    request = {"refine": "none", "verify": False, **request}
    return dovetail.compile(model, backend, data=samples(model), plugins=plugins(), **request)


def quantized(result):
    """The names of the values that a QuantizeLinear reads."""
    return {node.inputs[0].name for node in result.model.graph if node.op_type == "QuantizeLinear"}
