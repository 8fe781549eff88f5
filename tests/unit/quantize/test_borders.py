"""What crosses the border of a region is what `border:` of its backend says, also where the neighbor reads the same."""

import itertools

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.planning import numbered_regions, placed_backend

BACKEND = """
backend: {name}
device: npu
opset: 13..21
dynamic: accept
precision: {{low: uint8, high: float32, accumulate: int32}}
types:
  q: {{dtype: uint8, scheme: asymmetric, observer: minmax}}
ops: {{"{operators}": {{role: active, types: q}}}}
border: {{in: {into}, out: {out}}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""
NET = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) {
  a = Relu(x)  b = Neg(a)  t = Sigmoid(b)  d = Add(t, a)  e = Tanh(d)  y = Mul(e, x)
}"""
X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
ENDS = ("inside", "outside")
WAYS = list(itertools.product(ENDS, repeat=4))


@pytest.fixture
def compiled(with_backend):
    def make(first, second, operators=("Relu, Add", "Neg, Sigmoid, Mul")):
        ways = zip(("border-a", "border-b"), operators, (first, second))
        files = [BACKEND.format(name=name, operators=taken, into=into, out=out) for name, taken, (into, out) in ways]
        names = ["border-a", "border-b"]
        model = onnx.parser.parse_model(NET)
        return dovetail.compile(model, names, data={"x": X}, verify=False, plugins=with_backend(*files))

    return make


def floats_cross(values):
    return {value.dtype.name == "FLOAT" for value in values}


def backend_of(value):
    return None if value.producer() is None else placed_backend(value.producer())


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_borders_between_two_backends_are_as_their_files_say(compiled, way):
    ends = {"border-a": way[:2], "border-b": way[2:]}
    result = compiled(*ends.values())
    for region in numbered_regions(result.model.graph):
        if region.backend in ends:
            into, out = ends[region.backend]
            made = [value for value in region.inputs if backend_of(value) == region.backend]
            others = [value for value in region.inputs if value not in made]
            assert floats_cross(others) == {into == "inside"}, f"what enters region {region.index}"
            assert floats_cross((*region.outputs, *made)) == {out == "inside"}, f"what leaves region {region.index}"
    expected = compiled(("outside", "outside"), ("outside", "outside")).run({"x": X})["y"]
    np.testing.assert_allclose(result.run({"x": X})["y"], expected, atol=1e-6)


@pytest.mark.parametrize("out", ENDS)
def test_a_value_from_elsewhere_does_not_leave_a_region_that_reads_it(compiled, out):
    """Two regions of a backend that quantize the same input each do it for themselves."""
    result = compiled(("inside", out), ("outside", "outside"), ("Relu, Neg, Add, Mul", "Erf"))
    regions = [region for region in numbered_regions(result.model.graph) if region.backend == "border-a"]
    assert [sum(value.name == "x" for value in region.inputs) for region in regions] == [1, 0, 1]
    assert not any(value.name.startswith("x_") for region in regions for value in (*region.inputs, *region.outputs))


FUSING = """
backend: end-npu
device: npu
opset: 13..21
dynamic: accept
precision: {low: uint8, high: float32, accumulate: int32}
types:
  q: {dtype: uint8, scheme: asymmetric, observer: minmax}
  end: {dtype: float32, when: {region.last: true}}
ops:
  Neg: {role: active, types: {X: q, Y: [end, q]}, fuses: [Relu]}
  Relu: {role: passive, types: {X: q, Y: [end, q]}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu]}
"""


@pytest.mark.parametrize("text,held", [
    ("b = Neg(x) y = Relu(b)", ["x"]),  # the Relu is computed with the Neg, and what leaves is in floats
    ("b = Neg(x) c = Relu(b) d = Neg(c) y = Relu(d)", ["x", "c"]),
    ("b = Neg(x) c = Relu(b) y = Sigmoid(b)", ["x", "b"]),  # read twice, it is held
])  # fmt: skip
def test_what_is_fused_at_the_end_of_a_region_is_not_held_in_integers(with_backend, text, held):
    outputs = "float[2, 4] y, float[2, 4] c" if "Sigmoid" in text else "float[2, 4] y"
    net = f'<ir_version: 8, opset_import: ["": 17]> g (float[2, 4] x) => ({outputs}) {{ {text} }}'
    plugins = with_backend(FUSING)
    result = dovetail.compile(onnx.parser.parse_model(net), "end-npu", data={"x": X}, verify=False, plugins=plugins)
    quantized = [node.inputs[0].name for node in result.model.graph if node.op_type == "QuantizeLinear"]
    assert [name.removesuffix("_float32") for name in quantized] == held
