"""The cpu-bf16 member: what it registers, its fact, and what its engine reports."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from dovetail.passes import Pipeline
from dovetail.plugin import RegionModel
from dovetail_cpu_bf16 import facts
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_placement.edge_kinds import MarkEdgeKinds

from .models import parse


class Tables:
    """Stands for the registry."""

    def __init__(self):
        self.things = {}

    def __getattr__(self, kind):
        return lambda name, target: self.things.__setitem__((kind, name), target)


def test_registration_names_things_and_imports_nothing_heavy():
    import dovetail_cpu_bf16

    tables = Tables()
    dovetail_cpu_bf16.register(tables)
    registered = {("fact", name) for name in facts.__all__}
    assert set(tables.things) == {
        ("engine", "openvino-cpu"),
        ("backend", "cpu-bf16"),
        ("conformance", "cpu-bf16"),
        *registered,
    }
    code = (
        "import sys, dovetail_cpu_bf16.engine as e;"
        "import dovetail_host.onnxruntime_cpu as o, dovetail_host.reference as r;"
        "e.OpenVinoCpu().available(); o.OnnxRuntimeCpu().available(); r.ReferenceEngine().available();"
        "print({'openvino', 'onnx', 'onnx_ir', 'onnxruntime', 'numpy'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("g (int64[2] x) => (int64[2] y) { y = Add(x, x) }", True),
        ("g (int32[2] x) => (int32[2] y) { y = Add(x, x) }", False),
        ("g (uint64[2] x) => (uint64[2] y) { y = Identity(x) }", True),
        ("g (float[2] x, int64[1] i) => (float[1] y) { y = Gather(x, i) }", False),
        ("g (int64[2] x, int64[1] i) => (int64[1] y) { y = Gather(x, i) }", True),
        ("g (float[2,2] x, int64[1] s) => (float[4] y) { y = Reshape(x, s) }", False),
        ("g (float[2] x) => (int64[1] y) { y = ArgMax(x) }", False),
        ("g (float[2] x) => (int64[1] y) { y = Shape(x) }", False),
        ("g (int64[2] x) => (float[2] y) { y = Cast<to=1>(x) }", True),
        ("g (float[2] x) => (int64[2] y) { y = Cast<to=7>(x) }", True),
        ("g (float[2] x) => (int32[2] y) { y = Cast<to=6>(x) }", False),
        ("g (int64[2] x) => (bool[2] y) { y = Less(x, x) }", True),
        ("g (float[2] x) => (bool[2] y) { y = Less(x, x) }", False),
    ],
)
def test_int64_data(graph, expected):
    """Shapes and indices are small by nature; everything else in 64 bits may not be."""
    model = parse(graph)
    Pipeline([MarkEdgeKinds()]).run(model)
    assert facts.int64_data(model.graph[0]) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m = Equal(ids, one) c = Cast<to=7>(m) p = CumSum(c, zero) q = Mul(p, c) y = Add(q, one)", False),
        ("m = Cast<to=7>(narrow) y = Cast<to=1>(m)", False),
        ("m = Cast<to=7>(narrow) y = Add(m, one)", True),  # the largest int32 and one more
        ("m = ArgMax(x) y = Cast<to=1>(m)", False),
        ("v, m = TopK(x, two) y = Mul(m, two)", False),
        ("m = Mod(ids, five) y = Add(m, one)", False),
        ("m = ArgMax(x) y = Mul(m, m)", True),  # of an axis of unknown extent
        ("m = Where(flag, one, five) n = Concat<axis=0>(m, one) y = Cast<to=1>(n)", False),
        ("m = Cast<to=7>(x) y = Add(m, one)", True),  # floats may be of any size
        ("m = ReduceMax<keepdims=0>(ids) y = Add(m, one)", True),
        ("m = Equal(ids, one) c = Cast<to=13>(m) d = Cast<to=13>(flag) y = Sub(c, d)", True),  # 0 - 1 of unsigned
    ],
)
def test_integers_that_are_proven_to_fit(text, expected):
    """The last node reads and gives 64-bit integers that other nodes bound."""
    model = parse(
        f"""g (int64[N] ids, int32[4] narrow, float[N,8] x, bool[1] flag) => (y) <
        int64[1] one = {{1}}, int64[1] two = {{2}}, int64 zero = {{0}}, int64[1] five = {{5}}> {{ {text} }}"""
    )
    Pipeline([MarkEdgeKinds()]).run(model)
    assert facts.int64_data(model.graph[-1]) is expected


def test_what_openvino_fused_and_folded_is_said():
    text = """g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,8,8] z) <float[4] b = {1, 2, 3, 4}> {
        one = Constant<value = float[1] {1.0}>()
        c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w, b)
        r = Relu(c)
        z = Add(r, one) }"""
    session = OpenVinoCpu().load(RegionModel(parse(text)), {"threads": 1})
    rng = np.random.default_rng(0)
    feeds = {"x": rng.random((1, 3, 8, 8), np.float32), "w": rng.random((4, 3, 3, 3), np.float32)}
    assert session.run(feeds)["z"].shape == (1, 4, 8, 8)
    executed = session.executed()
    assert executed["constant_0"].how == "folded"
    assert executed["add_3"] == ("float32", "reported")
    assert all(how.precision == "float32" for name, how in executed.items() if name != "constant_0")


def test_fusions_that_begin_with_a_mask_compute_floats():
    """OpenVINO says `u8` of the whole fusion there, the type of the mask."""
    text = """g (bool[4,4] c, float[4,4] x) => (float[4,4] z, bool[4,4] more) <float zero = {0}> {
        y = Where(c, x, zero)
        z = Add(y, x)
        more = Greater(x, z) }"""
    executed = OpenVinoCpu().load(RegionModel(parse(text)), {}).executed()
    assert {name: how.precision for name, how in executed.items()} == dict.fromkeys(
        ["where_0", "add_1", "greater_2"], "float32"
    )


def test_float32_models_stay_in_float32():
    model = parse("g (float[N,64] x, float[64,64] w) => (float[N,64] y) { y = MatMul(x, w) }")
    session = OpenVinoCpu().load(RegionModel(model), {})
    assert session.executed()["matmul_0"] == ("float32", "reported")
