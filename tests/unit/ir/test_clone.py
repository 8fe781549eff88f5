"""A clone shares the weights of a model and nothing else."""

from dovetail_onnx.opening import open_text
from onnx_ir import DataType

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x, bool c) => (float[4] y) <float[4] w = {1, 2, 3, 4}> {
  a = Add (x, w)
  s = SequenceConstruct (a)
  y = If (c) <
    then_branch = t () => (float[4] t0) { t0 = Relu (a) },
    else_branch = e () => (float[4] e0) <float[4] v = {1, 2, 3, 4}> { e0 = Mul (a, v) }
  >
}"""


def values(model):
    for _, graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def test_a_change_of_the_clone_leaves_the_model_as_it_was():
    model = open_text(MODEL, "model")
    _ = model.ir  # otherwise a proto is copied
    before = str(model)
    for value in list(values(model.clone())):
        value.dtype = DataType.DOUBLE
        value.name += "_changed"
    assert str(model) == before


def test_weights_are_shared():
    model = open_text(MODEL, "model")
    assert model.ir.graph.initializers["w"].const_value is model.clone().ir.graph.initializers["w"].const_value
