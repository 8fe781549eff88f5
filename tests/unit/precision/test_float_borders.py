"""Regions that take and give floats in the high precision: how their neighbors are typed, and where casts stand."""

import dovetail
import onnx
import pytest
from dovetail.passes import Context, Request, compose
from dovetail.planning import get_placement

STAGES = ("normalize", "analyze", "place", "type", "join")
ENGINE = """
backend: test-engine
device: cuda
opset: 13..26
precision: {{low: float16, high: float32}}
types: {{f: [float16, float32]}}
border: {{floats: {floats}}}
ops: {{MatMul: {{types: f, policy: lower}}}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""
MIDDLE = """
backend: test-middle
device: cuda
opset: 13..26
precision: {low: float16, high: float32}
types: {f: [float16, float32]}
ops: {Relu: {types: f, policy: pass}, Softmax: {types: f, policy: lower}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""
TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {{{weights}}}>
{{ a = MatMul(x, w)
   b = {operator}(a)
   y = MatMul(b, w) }}"""


@pytest.fixture
def typed(with_backend):
    """`typed("high", "Relu")`: the model with that operator between two products of engines with such a border."""

    def make(floats, operator, **request):
        plugins = with_backend(ENGINE.format(floats=floats), MIDDLE)
        weights = ",".join(["0.5"] * 64)
        model = dovetail.open(onnx.parser.parse_model(TEXT.format(weights=weights, operator=operator)))
        context = Context(Request.of("test-engine", "test-middle", **request), plugins=plugins)
        compose(plugins.registry, stages=STAGES, plugins=plugins).run(model, context)
        return model

    return make


def described(model):
    """Operators with the types that they read and the backend that has them."""
    return [
        (node.op_type, node.inputs[0].dtype.name, get_placement(node).backend.removeprefix("test-"))
        for node in model.graph
        if not node.inputs[0].is_initializer()
    ]


@pytest.mark.parametrize("solver", ["forward", "fixpoint"])
def test_engines_that_take_low_types_are_low_neighbors(typed, solver):
    assert described(typed("low", "Relu", solver=solver)) == [
        ("Cast", "FLOAT", "engine"),
        ("MatMul", "FLOAT16", "engine"),
        ("Relu", "FLOAT16", "middle"),
        ("MatMul", "FLOAT16", "engine"),
        ("Cast", "FLOAT16", "engine"),
    ]


@pytest.mark.parametrize("solver", ["forward", "fixpoint"])
def test_engines_that_take_high_types_are_high_neighbors(typed, solver):
    """Relu between them reads float32, because in float16 it would need two casts more."""
    assert described(typed("high", "Relu", solver=solver)) == [
        ("Cast", "FLOAT", "engine"),
        ("MatMul", "FLOAT16", "engine"),
        ("Cast", "FLOAT16", "engine"),
        ("Relu", "FLOAT", "middle"),
        ("Cast", "FLOAT", "engine"),
        ("MatMul", "FLOAT16", "engine"),
        ("Cast", "FLOAT16", "engine"),
    ]


def test_a_low_neighbor_casts_on_its_own_side(typed):
    assert described(typed("high", "Softmax"))[2:6] == [
        ("Cast", "FLOAT16", "engine"),
        ("Cast", "FLOAT", "middle"),
        ("Softmax", "FLOAT16", "middle"),
        ("Cast", "FLOAT16", "middle"),
    ]


def test_inputs_of_the_model_keep_the_high_precision_in_front_of_such_engines(typed):
    assert typed("low", "Relu", keep_io_types=False).graph.inputs[0].dtype.name == "FLOAT16"
    assert typed("high", "Relu", keep_io_types=False).graph.inputs[0].dtype.name == "FLOAT"


def test_outputs_keep_their_names(typed):
    model = typed("high", "Relu", keep_io_types=False)
    assert [(value.name, value.dtype.name) for value in model.graph.outputs] == [("y", "FLOAT")]
