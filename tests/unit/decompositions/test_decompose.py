"""What is written out, what stays and why, and what is kept of a node."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail.planning import Placement, get_placement, origin_of, set_placement
from dovetail_onnx.opening import open_proto
from dovetail_transforms.canonicalize.normalize import Normalize
from dovetail_transforms.decompositions import can_decompose, decompose, formula, is_known, known_operators
from dovetail_transforms.decompositions.decomposing import WriteOut
from onnx import parser

HEAD = '<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>\n'


def opened(text, opset=21):
    model = open_proto(parser.parse_model(HEAD.format(opset=opset) + text))
    Normalize().run(model, Context(model=model))
    return model


GATE = "agraph (float[N, 8] x) => (float[N, 8] y) {\n [gate] y = com.microsoft.QuickGelu <alpha = 1.5> (x)\n}"


def test_names_origin_and_placement_stay():
    model = opened(GATE)
    set_placement(model.graph[0], Placement("acme"))
    ctx = Context(model=model)
    assert decompose(model, ctx)
    assert [node.op_type for node in model.graph] == ["Mul", "Sigmoid", "Mul"]
    assert model.graph.outputs[0].name == "y" and [str(size) for size in model.graph.outputs[0].shape] == ["N", "8"]
    assert {origin_of(node) for node in model.graph} == {("gate",)}
    assert {get_placement(node).backend for node in model.graph} == {"acme"}
    assert [(one.kind, one.node, one.why) for one in ctx.remarks] == [
        ("passed", "gate", "com.microsoft.QuickGelu is written out: Mul, Sigmoid")
    ]
    assert not decompose(model, Context(model=model))


def test_an_older_library_lacks_ports_and_attributes_of_newer_definitions(monkeypatch):
    text = "agraph (float[2, 8] x, float[8] b) => (float[2, 8] y) {\n y = com.microsoft.FastGelu (x, b)\n}"
    newest, find = opened(text), formula.find_signature
    decompose(newest, Context(model=newest))

    def older(*key):
        found = find(*key)
        return found and replace(found, inputs=found.inputs[:1], attributes=frozenset(), defaults={})

    monkeypatch.setattr(formula, "find_signature", older)
    oldest = opened(text.replace("(x, b)", "(x)"))
    assert decompose(oldest, Context(model=oldest))
    assert [node.op_type for node in newest.graph if node.op_type != "Add"][-1] == oldest.graph[-1].op_type


def test_only_what_is_asked_for():
    text = """agraph (float[2, 8] x) => (float[2, 8] y) {
        [a] t = com.microsoft.Gelu (x)
        [b] y = com.microsoft.QuickGelu (t)
    }"""
    model = opened(text)
    WriteOut(ops="com.microsoft.Gelu").run(model, Context(model=model))
    assert model.graph[-1].op_type == "QuickGelu"
    assert "Gelu" not in {node.op_type for node in model.graph}
    with pytest.raises(DovetailError, match="'com.microsoft.QuickGelo' has no decomposition.*QuickGelu"):
        WriteOut(ops="com.microsoft.Gelu;com.microsoft.QuickGelo").run(model, Context(model=model))


def test_nodes_in_bodies():
    text = """agraph (bool c, float[2, 8] x) => (float[2, 8] y) {
        y = If (c) <
            then_branch = yes () => (float[2, 8] a) { [inner] a = com.microsoft.Gelu (x) },
            else_branch = no () => (float[2, 8] b) { b = Neg (x) }
        >
    }"""
    model = opened(text)
    inner = next(node for node in model.nodes() if node.op_type == "Gelu")
    assert can_decompose(inner, {"": 21}) is None
    with pytest.raises(ValueError, match="the opset of node 'inner' is unknown"):
        can_decompose(inner, {})
    assert decompose(model, Context(model=model))
    assert not any(is_known(node) for node in model.nodes())


REFUSED = {
    "activation": (
        "agraph (float[1, 2, 4, 4] x, float[2, 2, 1, 1] w) => (float[1, 2, 4, 4] y) "
        '{ [n] y = com.microsoft.FusedConv <activation = "Cosine"> (x, w) }',
        "its activation 'Cosine' is unknown",
    ),
    "layout": (
        "agraph (float[1, 32] a, uint8[4, 1, 16] b, float[4, 1] s) => (float[1, 4] y) "
        "{ [n] y = com.microsoft.MatMulNBits <K = 32, N = 4, block_size = 32, weight_prepacked = 1> (a, b, s) }",
        "its weight is laid out for one GPU kernel",
    ),
    "bits": (
        "agraph (float[1, 32] a, uint8[4, 1, 20] b, float[4, 1] s) => (float[1, 4] y) "
        "{ [n] y = com.microsoft.MatMulNBits <K = 32, N = 4, block_size = 32, bits = 5> (a, b, s) }",
        "its numbers have 5 bits",
    ),
    "training": (
        "agraph (float[2, 8] x, float[8] b, bool t) => (float[2, 8] y) "
        "{ [n] y = com.microsoft.BiasDropout (x, b, , , t) }",
        "it may run in training mode",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_stays(name):
    text, why = REFUSED[name]
    model = opened(text)
    node = next(node for node in model.graph if node.domain == "com.microsoft")
    before = str(model)
    assert why in can_decompose(node).text
    ctx = Context(model=model)
    assert not decompose(model, ctx)
    assert str(model) == before
    assert [(one.kind, one.node) for one in ctx.remarks] == [("missed", "n")]
    assert why in ctx.remarks[0].why


def test_an_old_opset_is_refused():
    model = opened(GATE, opset=15)
    assert "opset 17 or newer, and the model has opset 15" in can_decompose(model.graph[0]).text


def test_other_operators_have_no_decomposition():
    model = opened("agraph (float[2] x) => (float[2] y) { [n] y = Relu (x) }")
    assert can_decompose(model.graph[0]).text == "Relu has no decomposition"
    assert "Relu" not in known_operators()


def test_weights_are_read_when_the_model_is_saved(tmp_path):
    """A weight of 4 bits stays one, and its numbers are those of the packed weight."""
    packed = np.arange(128, dtype=np.uint8).reshape(4, 2, 16)
    text = """agraph (float[1, 64] a) => (float[1, 4] y) {
        [n] y = com.microsoft.MatMulNBits <K = 64, N = 4, block_size = 32> (a, b, s)
    }"""
    proto = parser.parse_model(HEAD.format(opset=21) + text)
    proto.graph.initializer.extend(
        [onnx.numpy_helper.from_array(packed, "b"), onnx.numpy_helper.from_array(np.ones((4, 2), np.float32), "s")]
    )
    model = open_proto(proto)
    Normalize().run(model, Context(model=model))
    assert decompose(model, Context(model=model))
    model.save(tmp_path / "written.onnx")
    saved = onnx.load(tmp_path / "written.onnx")
    (weight,) = (
        one for one in saved.graph.initializer if one.data_type == onnx.TensorProto.UINT4 and one.dims == [4, 64]
    )
    expected = np.stack([packed & 15, packed >> 4], -1).reshape(4, 64)
    assert np.array_equal(onnx.numpy_helper.to_array(weight).astype(np.uint8), expected)
    assert "b" not in {one.name for one in saved.graph.initializer}
