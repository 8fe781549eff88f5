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
        (DECODED, "second s h join turn"),  # what a unit convolution reads has eight bits
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


RULES = {  # march, what stands behind two convolutions, and what is said of its last node
    "X3": (
        "bernoulli2", "[act] y = Relu (b) }",
        "only products (Conv, ConvTranspose, Gemm, MatMul), sums of two computed images (Add, Sum) and what gives "
        "indices may end a region",
    ),
    "X5": (
        "bayes", "[act] y = Relu (b) }",
        "an image times a number (Mul), tables (Abs, Atan, Ceil, Cos and 14 more) and what gives indices may end",
    ),
    "J6": ("nash", "[act] y = Relu (b) }", "only products (Conv, ConvTranspose, Gemm, MatMul) and what gives indices"),
    "sums that are moved": (
        "bayes", "[act] y = Concat <axis = 1> (a, b) }",
        "'first' (Conv) computes what it moves: at the end of a region, only results of tables and arithmetic are",
    ),
    "another passive operator": (
        "bayes", "[act] y = MaxPool <kernel_shape = [2, 2]> (b) }", "of passive operators only Concat, Flatten",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_remarks_say_what_may_end_a_region_on_the_march(case):
    march, body, expected = RULES[case]
    (why,) = [remark.why for remark in plan_of(body, march).remarks if remark.node == "act" and remark.kind == "missed"]
    assert expected in why


ATTENTION = f"""<ir_version: 8, opset_import: ["": 11]>
g (float[B,8,16,16] x) => (float[N,C,H,K] y)
<float[8,8,1,1] w = {{{", ".join(map(str, WEIGHTS))}}}, float half = {{0.5}}> {{
  [first] a = Conv (x, w) [product] p = MatMul (a, a) [scale] m = Mul (p, half) [soft] s = Softmax <axis = 3> (m)
  [turn] t = Transpose <perm = [0, 1, 3, 2]> (s) [last] y = MatMul (a, t) }}"""
AROUND = {  # march and batch: the nodes on the CPU. The first two are rows of the vendor's logs
    ("bayes", 1): "soft",  # YOLOv10n and YOLO11n: scale is HzSQuantizedConv with int32, turn begins the next region
    ("bayes", 4): "scale soft",  # YOLO12n: HzSElementwiseMul, which keeps no sums
    ("bernoulli2", 1): "product scale soft turn last",  # the X3 list: a MatMul of two images needs one of 1x1xKxN
    ("nash", 1): "scale soft turn",  # nothing is known of it, so the article holds
}


@pytest.mark.parametrize(("march", "batch"), AROUND)
def test_a_scale_before_and_a_transpose_behind_a_softmax_on_the_cpu(march, batch):
    text = ATTENTION.replace("[B,", f"[{batch},")
    plan = dovetail.plan(open_text(text, "m"), f"bpu-int8:march={march}")
    assert " ".join(node.name for node in plan.nodes if node.backend != "bpu-int8") == AROUND[march, batch]
    (soft,) = [node for node in plan.nodes if node.name == "soft"]
    assert soft.backend == "host"


def test_the_scale_at_the_end_of_a_region_leaves_it_whole():
    text = ATTENTION.replace("[B,", "[1,")
    result = dovetail.compile(open_text(text, "m"), "bpu-int8:march=bayes,observer=minmax", data=DATA)
    (scale,) = [node for node in result.plan.nodes if node.name == "scale"]
    assert str(scale.ports.get("C", scale.precision)) == "float32"
    assert result.verification.worst_snr_db > 20


ON_X3 = {  # what has no row of its own on X3: list and logs have nothing but the single operators, which refuse
    "hard swish": ("[three] p = Add (b, three) [clip] c = Clip (p, zero, six) [m] m = Mul (b, c) [d] d = Div (m, six) ",
                   "three clip m d"),
    "GELU": ("[r] r = Div (b, root) [e] e = Erf (r) [o] o = Add (e, one) [m] m = Mul (b, o) [d] d = Mul (m, half) ",
             "r e o m d"),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_X3)
def test_activations_of_several_operators_are_tables_on_x5_alone(case):
    """The X3 list has no Erf, and refuses an Add and a Div with constants; no log of X3 has either activation."""
    body, away = ON_X3[case]
    numbers = "float three = {3.0}, float zero = {0.0}, float six = {6.0}, float root = {1.4142135}, float one = {1.0}"
    text = HEAD.replace("float half = {0.5}", f"float half = {{0.5}}, {numbers}")
    for march, expected in {"bernoulli2": away, "bayes": ""}.items():
        plan = dovetail.plan(open_text(f"{text}{body} [relu] q = Relu (d) [end] y = Conv (q, w) }}", "m"),
                             f"bpu-int8:march={march}")  # fmt: skip
        off = [node.name for node in plan.nodes if node.backend != "bpu-int8" and node.name not in ("relu", "end")]
        assert " ".join(off) == expected


MATMULS = {  # extents of the image and of the constant, and the marches that list them
    ((1, 5, 8), (8, 4)): ["bernoulli2", "bayes"],  # X3: BxMxK by KxN; X5: logs of YOLO13, where it becomes a Conv
    ((3, 5, 8), (8, 4)): ["bernoulli2", "bayes"],
    ((1, 2, 5, 8), (8, 4)): ["bernoulli2", "bayes"],
    ((1, 2, 5, 8), (1, 8, 4)): [],  # X5: both must have the same number of axes
    ((1, 5, 8), (1, 8, 4)): ["bernoulli2", "bayes"],
}


@pytest.mark.parametrize(("image", "constant"), MATMULS)
def test_a_product_of_three_axes_by_a_constant(image, constant):
    shape, weight = (",".join(map(str, extents)) for extents in (image, constant))
    text = f"""<ir_version: 8, opset_import: ["": 11]>
      g (float[{shape}] x) => (float[A,B,C] y) <float[{weight}] w> {{ [m] y = MatMul (x, w) }}"""
    found = [
        march
        for march in ("bernoulli2", "bayes")
        if on_bpu(dovetail.plan(open_text(text, "m"), f"bpu-int8:march={march}"))
    ]
    assert found == MATMULS[image, constant]
