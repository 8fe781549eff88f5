"""Engines that take nothing but integers: floats between the nodes of a region only say what integers stand for."""

import dovetail
import numpy as np
import pytest
from dovetail.planning import get_placement
from dovetail.plugin import Reads
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from onnx import TensorProto, helper, numpy_helper

BACKEND = """
backend: integer-npu
device: npu
opset: 13..22
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
ops:
  Conv: {role: active, types: {X: q8, W: w8, Y: q8}}
  Relu: {role: passive, types: q8}
place: {strategy: autocast}
border: BORDER
emit: {engines: [narrow]}
"""


class Narrow(OnnxRuntimeCpu):
    """ONNX Runtime with the borders of an integer device."""

    name = "narrow"
    reads = Reads(22, 10, frozenset({"int8"}))


def net():
    weights = [numpy_helper.from_array(np.float32([[[[1]]], [[[-1]]]]).repeat(2, 1), "w")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv_1"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w"], ["y"], name="conv_2"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 3, 3]) for name in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def conversions(with_backend):
    """Compile the net, and return the backend of every conversion by its operator and value."""

    def compiled(border):
        plugins = with_backend(BACKEND.replace("BORDER", border))
        plugins.registry.engine("narrow", f"{__name__}:Narrow")
        data = {"x": np.random.default_rng(0).standard_normal((1, 2, 3, 3)).astype(np.float32)}
        model = dovetail.compile(net(), "integer-npu", data=data, plugins=plugins).model
        return {
            (node.op_type[0], node.inputs[0].name): get_placement(node).backend
            for node in model.graph
            if node.op_type.endswith("Linear")
        }

    return compiled


def test_conversions_inside_of_a_region_stay_there(conversions):
    found = conversions("{in: outside, out: outside}")
    host = {key for key, backend in found.items() if backend == "host"}
    assert host == {("Q", "x"), ("D", "y_int8")}
    assert set(found) - host == {
        ("D", "w_int8"), ("D", "x_int8"), ("D", "a_int8"), ("D", "b_int8"),
        ("Q", "a"), ("Q", "b"), ("Q", "y_float32_1"),
    }  # fmt: skip


def test_floats_that_cross_the_border_need_an_engine_that_takes_floats(conversions):
    found = conversions("{in: inside, out: inside}")
    assert found["Q", "x"] == found["D", "y_int8"] == "host"
    assert found["D", "w_int8"] == "integer-npu"
