"""Region models with their weights beside them."""

import numpy as np
import onnx
import onnx_ir as ir
from dovetail.plugin import RegionModel, load_plugins
from dovetail.plugin.loading import open_any
from dovetail_onnx.type_gaps import to_proto
from dovetail_runtime.serialize import engine_source, source_without_weights

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[4,64] x) => (float[4,64] y) <float[64,64] w, float[64] b> { y = Gemm (x, w, b) }"""


def opened():
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(TEXT)
    for value in list(proto.graph.value_info):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
    del proto.graph.value_info[:]
    return open_any(proto, load_plugins())


def test_large_weights_stand_beside_the_model_and_small_ones_in_it():
    model = opened()
    before = {name: value.const_value for name, value in model.graph.initializers.items()}
    source, weights = source_without_weights(model)
    assert set(weights) == {"w"} and np.array_equal(weights["w"], before["w"].numpy())
    assert len(source) < 4096 < len(engine_source(RegionModel(model)))
    assert {name: value.const_value for name, value in model.graph.initializers.items()} == before


def test_the_weights_of_the_model_are_never_replaced_while_it_is_serialized(monkeypatch):
    """Other threads may run it meanwhile."""
    model = opened()
    before = {name: value.const_value for name, value in model.graph.initializers.items()}
    during = []

    def watched(given):
        during.append({name: value.const_value for name, value in model.graph.initializers.items()})
        return to_proto(given)

    monkeypatch.setattr("dovetail_runtime.serialize.to_proto", watched)
    source_without_weights(model)
    assert during == [before]


def test_types_between_nodes_are_left_to_the_engine_but_for_custom_operators():
    text = """<ir_version: 10, opset_import: ["": 21, "acme": 1]>
    g (float[4] x) => (float[4] y) <float[4] a, float[4] b> { a = Relu (x) b = acme.Scale (a) y = Relu (b) }"""
    model = open_any(onnx.parser.parse_model(text), load_plugins())
    source, _ = source_without_weights(model)
    written = onnx.ModelProto.FromString(source).graph
    whole = onnx.ModelProto.FromString(engine_source(RegionModel(model))).graph
    assert [info.name for info in whole.value_info] == ["a", "b"]
    assert [info.name for info in written.value_info] == ["b"]
    assert (written.node, written.input, written.output) == (whole.node, whole.input, whole.output)


def test_a_session_that_shares_weights_computes_the_same():
    engine = load_plugins().registry.engine["onnxruntime-cpu"]()
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    results = []
    for share in (False, True):
        model = opened()
        session = engine.load(RegionModel(model), {"optimize": "none", "share_weights": share})
        del model
        results.append(session.run({"x": x})["y"])
    assert np.array_equal(*results)


def test_weights_in_types_without_arrays_stay_in_the_model():
    model = opened()
    value = model.graph.initializers["w"]
    packed = ir.Tensor(np.zeros((64, 128), ir.DataType.INT4.numpy()), dtype=ir.DataType.INT4, name="w")
    value.const_value = packed
    _, weights = source_without_weights(model)
    assert weights == {} and value.const_value is packed
