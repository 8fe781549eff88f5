"""The text of a model: the same every time, and it can be read back."""

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.planning import Placement, set_kind, set_placement
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["" : 22, "com.acme" : 1]>
g (float[N,8] x, bool c, int64 n) => (float[N,8] y, float z)
<
  float[2] k = {1.0, 2.5},
  int64 few = {3},
  float[3,3] w
>
{
  [a] p = Clip (x, , few)  # ?
  ["a b/c"] q, r = com.acme.Split <axis = 1, how = "fast", parts = [1, 2], ratio = 0.5> (p)  # ?, ?
  y = If (c) <  # float32[N,8]
    then_branch = t () => (float[N,8] t0)
    {
      t0 = Neg (q)  # float32[N,8]
    },
    else_branch = e () => (float[N,8] e0)
    {
      e0 = Constant <value = float[2] {1.0, 2.0}> ()  # float32[N,8]
    }
  >
  z = Sum (r, r)  # float32[]
}
"""


def test_what_is_printed_is_what_was_read():
    assert str(open_text(TEXT, "test")) == TEXT


def test_printing_is_stable():
    model = open_text(TEXT, "test")
    assert str(model) == str(model) == str(model.clone())


@pytest.mark.parametrize(
    ("placement", "kind", "comment"),
    [
        (None, "data", "# ?"),
        (Placement(), "data", "# ? @host"),
        (Placement("npu", "float16"), "data", "# ? @npu float16"),
        (Placement("npu", "float16", {"min": "int64", "max": "float32"}, 3), "data",
         "# ? @npu float16 max:float32 min:int64 region 3"),
        (Placement("npu"), "shape", "# ? @npu (shape)"),
    ],
)  # fmt: skip
def test_placements_stand_in_comments(placement, kind, comment):
    model = open_text(TEXT, "test")
    node = model.graph[0]
    set_placement(node, placement)
    set_kind(node, kind)
    line = next(line for line in str(model).splitlines() if "[a]" in line)
    assert line.endswith(comment)
    assert open_text(str(model), "again").graph[0].op_type == "Clip"


HELD = """<ir_version: 11, opset_import: ["" : 23]>
g (float[1] x) => (float[1] y) {
  [one] y = Identity (x)
}"""

BITS = [
    "float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float", "double",
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
]  # fmt: skip
WITHOUT_LITERALS = ["int4", "uint4", "float4e2m1", "complex64", "complex128"]


def with_constant(dtype, numbers):
    """A model with a tensor as an initializer, in an attribute, and as an initializer of a body."""
    model = open_text(HELD, "held")
    kind = ir.DataType[dtype.upper()]
    array = np.asarray(numbers, object if kind == ir.DataType.STRING else None)
    tensor = ir.StringTensor(array) if kind == ir.DataType.STRING else ir.Tensor(array.astype(kind.numpy()), dtype=kind)
    value = ir.Value(name="k", const_value=tensor, type=ir.TensorType(kind), shape=ir.Shape(array.shape))
    model.graph.register_initializer(value)
    node = ir.node("Constant", [], {"value": tensor}, name="constant")
    node.outputs[0].name = "c"
    model.graph.insert_before(model.graph[0], node)
    model.touch()
    return model, tensor


def read_back(model):
    again = open_text(str(model), "again")
    node = next(node for node in again.graph if node.op_type == "Constant")
    return again.graph.initializers["k"].const_value, node.attributes["value"].value


@pytest.mark.parametrize("dtype", BITS)
def test_small_tensors_of_every_type_come_back_bit_for_bit(dtype):
    model, tensor = with_constant(
        dtype, [0, 1, 0, 1, 1, 0, 1, 1] if dtype == "bool" else [0, 1, 1.5, 3, 0.25, 96, 7, 2]
    )
    for found in read_back(model):
        assert found.dtype == tensor.dtype
        assert found.tobytes() == tensor.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float", "double"])
def test_what_is_no_ordinary_number_comes_back(dtype):
    model, tensor = with_constant(dtype, [np.inf, -np.inf, -0.0, -1e-3, 1e-7, 5e4])
    for found in read_back(model):
        assert found.tobytes() == tensor.tobytes()


@pytest.mark.parametrize("dtype", [*BITS, *WITHOUT_LITERALS])
def test_larger_tensors_come_back_as_zeros_of_their_type_and_shape(dtype):
    model, tensor = with_constant(dtype, np.ones((3, 4)))
    for found in read_back(model):
        assert (found.dtype, tuple(found.shape)) == (tensor.dtype, (3, 4))
        assert not np.asarray(found.numpy()).astype(complex).any()


@pytest.mark.parametrize("dtype", WITHOUT_LITERALS)
def test_types_without_literals_are_declared_however_few_their_elements(dtype):
    model, tensor = with_constant(dtype, [1, 0, 1])
    for found in read_back(model):
        assert (found.dtype, tuple(found.shape)) == (tensor.dtype, (3,))


def test_strings_come_back():
    model, _ = with_constant("string", [b"plain", b'with "quotes"'])
    for found in read_back(model):
        assert found.numpy().tolist() == [b"plain", b'with "quotes"']
    model, _ = with_constant("string", [b"x"] * 9)
    for found in read_back(model):
        assert found.numpy().tolist() == [b""] * 9


def test_what_is_declared_in_a_body_is_filled_unless_it_is_defined_outside():
    text = """<ir_version: 10, opset_import: ["" : 22]>
g (float[10] x, bool c) => (float[10] y) <float[10] outside> {
  [choice] y = If (c) <
    then_branch = t () => (float[10] t0) <float16[10] inside> {
      wide = Cast <to = 1> (inside)  t0 = Add (wide, outside)
    },
    else_branch = e () => (float[10] e0) <float[10] x> { e0 = Neg (x) }
  >
}"""
    model = open_text(text, "bodies")
    held = {name: list(graph.initializers) for name, graph in model.graphs()}
    assert held == {"": ["outside"], "choice/then_branch": ["inside"], "choice/else_branch": []}


def test_numbers_that_stand_as_bits_are_told_in_comments():
    lines = str(with_constant("float16", [1.0, 2.5])[0]).splitlines()
    assert "  float16[2] k = {15360, 16640}  # 1.0, 2.5" in lines
    assert "  [constant] c = Constant <value = float16[2] {15360, 16640}> ()  # ?; value = 1.0, 2.5" in lines
