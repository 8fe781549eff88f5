"""Defects that a widely used converter has, on small graphs: none of the solvers has them.

The converter is Paddle's mixed precision pass; the networks on which it goes wrong are recorded beside the repository.
"""

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, numpy_helper

SOLVERS = ("fixpoint", "forward", "min-cut")
LOW, HIGH = TensorProto.FLOAT16, TensorProto.FLOAT
SHARED = """g (float[8,8] x) => (float[8,8] y) <float[8,8] w> {
  [product] a = MatMul (x, w)
  [kept] b = Max (a, w)
  y = MatMul (b, w)
}"""
CAST = """g (int8[8,8] i) => (float[8,8] r, float[8,8] e) <float[8,8] w> {
  c = Cast <to = 1> (i)
  p = MatMul (c, w)
  r = Relu (p)
  [exp] e = Exp (c)
}"""
NORM = """g (float[8,8] x) => (float[8,8] y) <float[8,8] w, float[8] scale, float[8] bias> {
  a = MatMul (x, w)
  n = LayerNormalization (a, scale, bias)
  s = Add (n, scale)
  y = MatMul (s, w)
}"""
STATISTICS = """g (float[1,4,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] z)
<float[4,4,1,1] w, float[4] scale, float[4] bias, float[4] mean, float[4] var, int64[4] shape = {1, 4, 1, 1}> {
  a = Conv (x, w)
  r = Relu (a)
  y = BatchNormalization (r, scale, bias, mean, var)
  m = Reshape (mean, shape)
  z = Mul (r, m)
}"""
SCALE = """g (float[8,8] x) => (float[8,8] y) <float[8,8] w, float big = {1e6}, float two = {2}> {
  a = MatMul (x, w)
  [times] b = Mul (a, big)
  y = Add (b, two)
}"""
LOOP = """g (float[8,8] x, int64 n) => (float[8,8] y) <float[8,8] w, bool yes = {1}> {
  a = MatMul (x, w)
  o, y = Loop (n, yes, x, x) <
    body = b (int64 k, bool go, float[8,8] h, float[8,8] g) => (bool on, float[8,8] next, float[8,8] last) {
      on = Identity (go)
      last = MatMul (h, a)
      next = Tanh (last)
    }
  >
}"""
NONE = "g (float[8,8] x) => (float[8,8] y) { a = Relu (x)  y = Softmax (a) }"
GRAPHS = {
    "shared": SHARED,
    "cast": CAST,
    "norm": NORM,
    "statistics": STATISTICS,
    "scale": SCALE,
    "loop": LOOP,
    "none": NONE,
}


def compiled(text, folder, solver, **options):
    """Compile a text whose declared weights get random values; what was saved, checked and loaded again."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')
    rng = np.random.default_rng(0)
    for value in list(model.graph.value_info):
        array = rng.uniform(0.1, 0.5, [dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        model.graph.value_info.remove(value)
    model.producer_name, model.producer_version, model.doc_string = "exporter", "7", "what it is for"
    entry = model.metadata_props.add()
    entry.key, entry.value = "version map", "68 entries"
    onnx.save(model, folder / "m.onnx")
    result = dovetail.compile(folder / "m.onnx", ["gpu-fp16"], solver=solver, verify=False, **options)
    result.save(folder / "out")
    saved = folder / "out" / "model.onnx"
    onnx.checker.check_model(saved, full_check=True)
    return result, onnx.load(saved)


def types_of(model):
    """The element type of every value of the main graph, by name; full inference agrees with what is written."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph
    known = {value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *inferred.input)}
    known |= {value.name: value.type.tensor_type.elem_type for value in inferred.output}
    return known | {tensor.name: tensor.data_type for tensor in inferred.initializer}


def node_of(model, operator, position=0):
    return [node for node in model.graph.node if node.op_type == operator][position]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_weight_that_both_sides_read_has_a_version_for_each(tmp_path, solver):
    """Defect 1: the weight became low for all of its readers."""
    _, saved = compiled(SHARED, tmp_path, solver, high=["kept"])
    types = types_of(saved)
    assert [types[name] for name in node_of(saved, "Max").input] == [HIGH, HIGH]
    assert [types[name] for name in node_of(saved, "MatMul").input] == [LOW, LOW]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_cast_of_the_source_model_keeps_its_high_readers_high(tmp_path, solver):
    """Defect 2: a Cast that was there already was redirected for everybody, a black-listed operator among them."""
    _, saved = compiled(CAST, tmp_path, solver, high=["type:Exp"])
    types = types_of(saved)
    assert types[node_of(saved, "Exp").input[0]] == HIGH
    assert types[node_of(saved, "MatMul").input[0]] == LOW


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_parameter_that_a_low_node_reads_too_stays_what_the_norm_wants(tmp_path, solver):
    """Defect 3: a parameter that stays high by rule became low because another node read it."""
    _, saved = compiled(NORM, tmp_path, solver)
    types = types_of(saved)
    assert len({types[name] for name in node_of(saved, "LayerNormalization").input}) == 1
    (tmp_path / "statistics").mkdir()
    _, saved = compiled(STATISTICS, tmp_path / "statistics", solver)
    types = types_of(saved)
    assert [types[name] for name in node_of(saved, "BatchNormalization").input[1:]] == [HIGH] * 4


@pytest.mark.generated
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", GRAPHS)
def test_metadata_stays(tmp_path, solver, name):
    """Defect 6: the map of operator versions was emptied."""
    _, saved = compiled(GRAPHS[name], tmp_path, solver)
    assert (saved.producer_name, saved.producer_version, saved.doc_string) == ("exporter", "7", "what it is for")
    assert {entry.key: entry.value for entry in saved.metadata_props}["version map"] == "68 entries"


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_factor_beyond_the_range_keeps_its_node_high(tmp_path, solver):
    """Defect 7, as far as the constant says it; what its result reaches is for the analysis of ranges."""
    _, saved = compiled(SCALE, tmp_path, solver)
    types = types_of(saved)
    assert [types[name] for name in node_of(saved, "Mul").input] == [HIGH, HIGH]


@pytest.mark.generated
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", GRAPHS)
def test_compiling_the_result_again_changes_no_type(tmp_path, solver, name):
    """Defect 8: a second conversion left operators whose inputs did not go together."""
    _, saved = compiled(GRAPHS[name], tmp_path, solver)
    del saved.metadata_props[:]  # without the cache key the model is not recognized
    for node in saved.graph.node:
        del node.metadata_props[:]
    onnx.save(saved, tmp_path / "again.onnx")
    dovetail.compile(tmp_path / "again.onnx", ["gpu-fp16"], solver=solver, verify=False).save(tmp_path / "twice")
    again = onnx.load(tmp_path / "twice" / "model.onnx")
    assert casts(again.graph) == casts(saved.graph)
    before, after = types_of(saved), types_of(again)
    assert {name: after[name] for name in after.keys() & before.keys()} == {
        name: before[name] for name in after.keys() & before.keys()
    }


@pytest.mark.parametrize("solver", SOLVERS)
def test_what_does_not_change_in_a_loop_is_converted_outside(tmp_path, solver):
    """Defect 9: two Casts in the body, executed every time around, and high at all of its borders."""
    _, saved = compiled(LOOP, tmp_path, solver)
    body = node_of(saved, "Loop").attribute[0].g
    defined = {value.name for value in body.input} | {name for node in body.node for name in node.output}
    assert all(node.input[0] in defined for node in body.node if node.op_type == "Cast")


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_model_without_weights_is_compiled(tmp_path, solver):
    """A network without parameters was refused after half of it had been written."""
    result, saved = compiled(NONE, tmp_path, solver)
    assert not saved.graph.initializer
    assert {node.backend for node in result.plan.nodes} == {"gpu-fp16"}


def casts(graph):
    inner = [body.g for node in graph.node for body in node.attribute if body.type == onnx.AttributeProto.GRAPH]
    return sum(node.op_type == "Cast" for node in graph.node) + sum(map(casts, inner))
