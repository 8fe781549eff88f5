"""Activations that exporters write as several operators, and that the vendor's tool computes by one table."""

import itertools

import dovetail
import numpy as np
import pytest
from dovetail_onnx.opening import open_text

HEAD = """<ir_version: 8, opset_import: ["": 11]>
g (float[1,16,64,64] x) => (float[1,16,64,64] y) <float[16,16,1,1] w = {W}, float half = {0.5}, float one = {1.0},
  float two = {1.41421356}, float three = {3.0}, float zero = {0.0}, float six = {6.0}, float small = {0.044715}> {
  [first] a = Conv (x, w) BODY [last] y = Conv (z, w) }"""
BODIES = {
    "SiLU": "[s] s = Sigmoid (a) [m] z = Mul (a, s)",
    "GELU": "[d] d = Div (a, two) [e] e = Erf (d) [p] p = Add (e, one) [m] m = Mul (a, p) [h] z = Mul (m, half)",
    "tanh GELU": "[q] q = Pow (a, three) [k] k = Mul (q, small) [u] u = Add (a, k) [r] r = Mul (u, half) "
    "[t] t = Tanh (r) [p] p = Add (t, one) [m] m = Mul (a, p) [h] z = Mul (half, m)",
    "Mish": "[o] o = Softplus (a) [t] t = Tanh (o) [m] z = Mul (t, a)",
    "hard swish": "[p] p = Add (a, three) [c] c = Clip (p, zero, six) [m] m = Mul (a, c) [d] z = Div (m, six)",
}
DATA = [{"x": np.random.default_rng(n).standard_normal((1, 16, 64, 64)).astype(np.float32)} for n in range(2)]


def model(body):
    weight = np.random.default_rng(0).normal(0, 0.3, 256).round(3)
    return open_text(HEAD.replace("{W}", f"{{{', '.join(map(str, weight))}}}").replace("BODY", body), "m")


@pytest.mark.generated
@pytest.mark.parametrize(("name", "march"), [("SiLU", "bernoulli2"), *itertools.product(BODIES, ("bayes", "nash"))])
def test_a_composite_is_on_the_bpu_as_a_whole(name, march):
    result = dovetail.compile(model(BODIES[name]), f"bpu-int8:march={march},observer=minmax", data=DATA)
    assert {node.backend for node in result.plan.nodes} == {"bpu-int8"}
    assert result.verification.worst_snr_db > 25


@pytest.mark.generated
@pytest.mark.parametrize("name", BODIES)
def test_a_composite_rounds_only_its_result(name):
    """The table of a composite is computed in real numbers: so integers agree with floats between Q and DQ."""
    integers = dovetail.compile(model(BODIES[name]), "bpu-int8:march=bayes,observer=minmax", data=DATA)
    floats = dovetail.compile(model(BODIES[name]), "bpu-int8:march=bayes,observer=minmax,arithmetic=floats", data=DATA)
    assert sum(node.op_type == "GatherElements" for node in integers.model.graph) == 1
    assert not any(remark.rule == "computed-in-floats" for remark in integers.remarks)
    assert [node.op_type for node in floats.model.graph].count("QuantizeLinear") == 3  # x, a and z
    inner = [held["source"] for values in floats.plan.values.values() for held in values if "scale" in held]
    assert sum(source.startswith("computed together with") for source in inner) == BODIES[name].count("[") - 1
    for feeds in DATA:
        np.testing.assert_allclose(integers.run(feeds)["y"], floats.run(feeds)["y"], atol=1e-3)


def test_a_division_by_a_number_is_a_table():
    compiled = dovetail.compile(
        model("[d] d = Div (a, three) [m] z = Mul (a, d)"), "bpu-int8:march=bayes,observer=minmax", data=DATA
    )
    assert not any(remark.rule == "computed-in-floats" for remark in compiled.remarks)
    assert "GatherElements" in {node.op_type for node in compiled.model.graph}


def test_a_gate_of_another_value_is_rounded():
    """Squeeze-and-excite multiplies by the Sigmoid of something else, which is no table of the image alone."""
    body = "[g] g = GlobalAveragePool (a) [s] s = Sigmoid (g) [m] z = Mul (a, s)"
    plan = dovetail.compile(model(body), "bpu-int8:march=bayes,observer=minmax", data=DATA).plan
    assert not any("together" in held["source"] for values in plan.values.values() for held in values)


@pytest.mark.parametrize(
    ("body", "march", "node"),
    [
        ("[s] s = Sigmoid (a) [m] z = Neg (s)", "bernoulli2", "s"),
        ("[s] s = Sigmoid (a) [r] r = Relu (a) [m] z = Mul (r, s)", "bernoulli2", "s"),
        ("[e] e = Erf (a) [p] z = Add (e, one)", "bayes", "e"),
        ("[d] d = Div (a, three) [e] e = Erf (d) [p] p = Add (e, one) [m] z = Mul (a, p)", "bayes", "e"),
    ],
    ids=["no product", "a product with something else", "no GELU", "another root"],
)
def test_single_operators_have_the_limits_of_the_list(body, march, node):
    plan = dovetail.plan(model(body), f"bpu-int8:march={march}")
    assert next(one.backend for one in plan.nodes if one.name == node) == "host"
