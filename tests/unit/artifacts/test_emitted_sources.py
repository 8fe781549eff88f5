"""What an emitter is given as the source of a region: every node and value that the plan has there."""

import dovetail
import numpy as np
import pytest
from dovetail.plugin import Artifact, Emitter
from onnx import TensorProto, helper, numpy_helper

BACKEND = """
backend: seen-npu
device: npu
opset: 13..22
precision: {low: int8, high: float32}
types:
  q8: {dtype: int8, scheme: symmetric}
  w8: {dtype: int8, scheme: symmetric, granularity: channel, axis: 0}
ops:
  Conv: {role: active, types: {X: q8, W: w8, Y: q8}}
  Relu: {role: passive, types: q8}
  Add: {role: active, types: {A: q8, B: q8, C: q8}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [looks], arithmetic: ARITHMETIC}
"""


class Looks(Emitter):
    """Notes what it was given."""

    seen = []

    def emit(self, region, folder):
        graph = region.source.graph
        self.seen.append((
            [node.name for node in graph], [value.name for value in graph.inputs],
            [value.name for value in graph.outputs], sorted(quantized.value for quantized in region.quantized_values),
            sorted({value.name for value in region.model.graph.outputs}),
        ))  # fmt: skip
        return Artifact()


def net(*outputs):
    """Conv, Relu, [Tanh elsewhere], Conv, Relu; values that a test names are outputs of the model."""
    weights = [
        numpy_helper.from_array(np.float32([[[[n]]], [[[-1]]]]).repeat(2, 1), name) for n, name in ((1, "v"), (2, "w"))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], name="conv_1"),
        helper.make_node("Relu", ["a"], ["b"], name="relu_1"),
        helper.make_node("Tanh", ["b"], ["c"], name="away"),
        helper.make_node("Conv", ["c", "w"], ["d"], name="conv_2"),
        helper.make_node("Relu", ["d"], ["e"], name="relu_2"),
    ]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 3, 3]) for name in "xabcde"}
    graph = helper.make_graph(nodes, "net", [values["x"]], [values[name] for name in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.fixture
def seen(with_backend, monkeypatch):
    """Compile a net for the backend, and return what its emitter was given of each region."""
    monkeypatch.setattr(Looks, "seen", [])

    def compiled(model, arithmetic="floats"):
        plugins = with_backend(BACKEND.replace("ARITHMETIC", arithmetic))
        plugins.registry.emitter("looks", f"{__name__}:Looks")
        data = {"x": np.random.default_rng(0).standard_normal((1, 2, 3, 3)).astype(np.float32)}
        dovetail.compile(model, "seen-npu", data=data, plugins=plugins)
        return Looks.seen

    return compiled


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("arithmetic", ["floats", "integers"])
@pytest.mark.parametrize(
    ("outputs", "leaving"), [("e", [["b"], ["e"]]), ("be", [["b"], ["e"]]), ("ae", [["a", "b"], ["e"]])]
)
def test_a_node_that_computes_an_output_of_the_model_is_in_its_region(seen, outputs, leaving, arithmetic):
    """Its value is renamed on the way, because the output is what the last conversion behind it gives."""
    first, second = seen(net(*outputs), arithmetic)[-2:]
    assert first[:3] == (["conv_1", "relu_1"], ["x"], leaving[0])
    assert second[:3] == (["conv_2", "relu_2"], ["c"], leaving[1])
    assert first[3] == ["a", "b", "v", "x"]
    assert second[3] == ["c", "d", "e", "w"]


def test_no_weight_leaves_a_region(seen):
    """Conversions of weights are ready before everything else; they belong to the region that reads them."""
    for *_, leaving in seen(net("e")):
        assert not [name for name in leaving if name.startswith(("v_", "w_"))]
