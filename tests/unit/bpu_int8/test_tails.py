"""Ends of regions that are no products: on bayes, tables and what moves their results, in int16 at outputs.

As in the vendor's logs: an activation in front of an output is a table of 16 bits on X5, and the head of a YOLO has a
Sigmoid and a Split at the end of a region on Ultra.
"""

import dovetail
import numpy as np
import pytest
from dovetail_onnx.opening import open_text

from .vendor_files import yaml

WEIGHTS = np.random.default_rng(0).normal(0, 0.4, 64).round(3)
HEAD = f"""<ir_version: 8, opset_import: ["": 11]>
g (float[1,8,16,16] x) => (float[N,C,H,K] y)
<float[8,8,1,1] w = {{{", ".join(map(str, WEIGHTS))}}}, float half = {{0.5}}> {{
  [first] a = Conv (x, w) [second] b = Conv (a, w) """
DATA = [{"x": np.random.default_rng(n).standard_normal((1, 8, 16, 16)).astype(np.float32)} for n in range(2)]
SILU = "[s] s = Sigmoid (b) [m] y = Mul (b, s) }"
DECODED = """[s] s = Sigmoid (b) [h] h = Mul (a, half) [join] c = Concat <axis = 1> (h, s)
  [turn] y = Transpose <perm = [0, 2, 3, 1]> (c) }"""


def plan_of(body, march="bayes"):
    return dovetail.plan(open_text(HEAD + body, "m"), f"bpu-int8:march={march}")


def on_bpu(plan):
    return {node.name: str(node.precision).partition("[")[0] for node in plan.nodes if node.backend == "bpu-int8"}


@pytest.mark.parametrize(
    ("body", "wide"),
    [
        ("[act] y = Sigmoid (b) }", "second act"),
        (SILU, "second s m"),
        (DECODED, "first second s h join turn"),
    ],
    ids=["a table", "SiLU", "movement of tables and arithmetic"],
)
def test_an_output_is_held_in_int16(body, wide):
    result = dovetail.compile(open_text(HEAD + body, "m"), "bpu-int8:march=bayes,observer=minmax", data=DATA)
    held = on_bpu(result.plan)
    assert {node.backend for node in result.plan.nodes} == {"bpu-int8"}
    assert " ".join(name for name, element in held.items() if element == "int16") == wide
    assert result.verification.worst_snr_db > 30
    said = [remark.why for remark in result.plan.remarks if remark.rule == "int16"]
    assert any("as the vendor's rule for outputs of the model says" in why for why in said)


@pytest.mark.parametrize("march", ["bernoulli2", "nash"])
def test_other_marches_end_regions_with_products_alone(march):
    assert set(on_bpu(plan_of(SILU, march))) == {"first", "second"}


@pytest.mark.parametrize(
    ("body", "away"),
    [
        ("[act] y = Relu (b) }", "act"),
        ("[s] s = Sigmoid (a) [join] y = Concat <axis = 1> (b, s) }", "join"),
        ("[pool] y = MaxPool <kernel_shape = [2, 2]> (b) }", "pool"),
        ("[h] y = Mul (a, b) }", "h"),
    ],
    ids=["Relu", "movement of sums", "a pool", "arithmetic"],
)
def test_what_else_gives_an_output_is_on_the_cpu(body, away):
    plan = plan_of(body)
    assert [node.name for node in plan.nodes if node.backend != "bpu-int8"] == [away]


def test_a_table_and_a_split_may_end_a_region_in_front_of_the_cpu():
    plan = plan_of("[s] s = Sigmoid (b) [split] p, q = Split <axis = 1> (s) [e] e = Erf (p) [f] y = Mul (e, q) }")
    assert on_bpu(plan) == {"first": "int8", "second": "int8", "s": "int8", "split": "int8"}


def test_a_table_between_operators_of_the_cpu_is_a_region():
    plan = plan_of("[e] e = Erf (b) [root] r = Sqrt (e) [f] y = Erf (r) }")
    assert "root" in on_bpu(plan)


def test_outputs_have_the_width_that_is_asked_for(tmp_path):
    file = yaml(tmp_path, calibration="optimization: set_model_output_int8")
    plan = dovetail.plan(open_text(HEAD + SILU, "m"), hb_yaml=file)
    assert on_bpu(plan) == dict.fromkeys(("first", "second", "s", "m"), "int8")
