"""The scales that nodes of the BPU share, and those that they do not."""

import dovetail
import numpy as np
import onnx_ir as ir
import pytest
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 11]>
g (float[1,4,16,16] x) => (float[1,4,{left},{left}] y) <float[4,4,1,1] w, float[4,4,1,1] v> {{
  [one] a = Conv (x, w) [pool] b = {pool} (a) [two] y = Conv (b, v) }}"""

POOLS = {
    "GlobalAveragePool": 1,
    "AveragePool <kernel_shape = [4, 4], strides = [4, 4]>": 4,
}


@pytest.mark.parametrize("pool", POOLS)
def test_what_an_average_reads_keeps_a_scale_of_its_own(pool):
    """The vendor's logs give a pool a threshold of its own (314 where the layer behind it has 21.6).

    With that of the average, all that is much larger than an average would saturate.
    """
    model, rng = open_text(TEXT.format(pool=pool, left=POOLS[pool]), "m"), np.random.default_rng(0)
    for name in "wv":
        array = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    data = {"x": rng.standard_normal((8, 4, 16, 16)).astype(np.float32)}
    compiled = dovetail.compile(model, "bpu-int8:march=bayes,observer=minmax", data=data)
    scales = {name: held[0]["scale"] for name, held in compiled.plan.values.items() if name in "ab"}
    assert scales["a"] > 3 * scales["b"]
    assert compiled.coverage().startswith("bpu-int8 3/")
    assert compiled.verification.worst_snr_db > 25


RESIZE = """<ir_version: 10, opset_import: ["": 11]>
g (float[1,4,8,8] x) => (float[1,4,16,16] y)
<float[4,4,1,1] w, float[4,4,1,1] v, float[4] s = {1, 1, 2, 2}, float[0] r> {
  [one] a = Conv (x, w)
  [up] b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (a, r, s)
  [two] y = Conv (b, v) }"""


def test_the_scales_of_a_resize_are_not_said_to_have_missed_a_type():
    plan = dovetail.plan(open_text(RESIZE, "m"), "bpu-int8:march=bayes")
    said = [(remark.kind, remark.why) for remark in plan.remarks if remark.node == "up"]
    assert said == [("passed", "int8[symmetric], the type of its input")]


JOINED = """<ir_version: 10, opset_import: ["": 11]>
g (float[1,4,8,8] x) => (float[1,4,{0},{0}] y) <float[4,4,1,1] w, float[2,2,1,1] v, float[4,{1},1,1] u,
  float[4,8,1,1] z, float[4,4,1,1] k, float[4] s = {{1, 1, 2, 2}}, float[0] r> {{
  [one] a = Conv (x, w) {2} [last] y = Conv (c, u) }}"""
UP = "Resize <mode = 'nearest', coordinate_transformation_mode = 'asymmetric', nearest_mode = 'floor'> (a, r, s)"
POOL = "MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"


def groups(body, channels, size=8):
    """The sharing groups of the values of a net with a Concat in front of its last Conv, and how near results are."""
    text = JOINED.format(size, channels, body.replace("'", '"'))
    model, rng = open_text(text, "m"), np.random.default_rng(0)
    for name, shape in {
        "w": (4, 4, 1, 1),
        "v": (2, 2, 1, 1),
        "z": (4, 8, 1, 1),
        "k": (4, 4, 1, 1),
        "u": (4, channels, 1, 1),
    }.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    data = {"x": rng.standard_normal((4, 4, 8, 8)).astype(np.float32)}
    compiled = dovetail.compile(model, "bpu-int8:march=bayes,observer=minmax", data=data)
    assert {node.backend for node in compiled.plan.nodes} == {"bpu-int8"}
    return {name: held[0]["group"] for name, held in compiled.plan.values.items()}, compiled.verification.worst_snr_db


def test_what_a_concat_alone_reads_has_its_scale_and_other_parts_keep_theirs():
    """In the vendor's logs of C2f blocks, both parts of the Split are requantized for the Concat.

    A Conv reads one of them, and a Split has one scale; the branch behind that Conv is made at the scale of the Concat.
    """
    split = "[split] p, q = Split <axis = 1, split = [2, 2]> (a) [two] b = Conv (q, v)"
    found, snr = groups(f"{split} [join] c = Concat <axis = 1> (p, q, b)", 6)
    assert found["a"] == found["p"] == found["q"] != found["c"] == found["b"]
    assert snr > 25


def test_pools_pass_on_the_scale_of_the_concat_that_reads_them_all():
    found, _ = groups(f"[p1] p = {POOL} (a) [p2] q = {POOL} (p) [join] c = Concat <axis = 1> (a, p, q)", 12)
    assert found["a"] == found["p"] == found["q"] == found["c"]


def test_of_two_concats_the_last_has_its_scale_on_what_both_read():
    """As in the necks of YOLOs: what a Resize brings to an early Concat is what a later one reads directly."""
    early = (
        f"[up] b = {UP} [other] h = Conv (x, k) [up2] t = {UP.replace('(a', '(h')} [early] e = Concat <axis = 1> (b, t)"
    )
    late = "[mid] f = Conv (e, z) [down] d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (f)"
    found, _ = groups(f"{early} {late} [late] c = Concat <axis = 1> (a, d)", 8)
    assert found["a"] == found["b"] == found["c"] == found["f"]
    assert found["e"] == found["h"] == found["t"] != found["c"]
