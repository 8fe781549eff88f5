"""The cpu-bf16 member: what it registers, its fact, and what its engine reports."""

from __future__ import annotations

import subprocess
import sys

import dovetail
import numpy as np
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Pipeline
from dovetail.plugin import RegionModel
from dovetail_cpu_bf16 import facts, loop_trips
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
    registered = {("fact", name) for name in (*facts.__all__, *loop_trips.__all__)}
    assert set(tables.things) == {
        ("engine", "openvino-cpu"),
        ("session_start", "openvino-cpu"),
        ("backend", "cpu-bf16"),
        ("conformance", "cpu-bf16"),
        ("edit", "clamp-comparisons"),
        ("edit", "early-casts"),
        ("edit", "expand-tiles"),
        ("edit", "explicit-pads"),
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
        ("g (float[2] x) => (int64[1] y) <int64[1] n = {3}> { y = ConstantOfShape<value = int64[1] {5}>(n) }", False),
    ],
)
def test_int64_data(graph, expected):
    """Shapes and indices are small by nature; everything else in 64 bits may not be."""
    model = parse(graph)
    Pipeline([MarkEdgeKinds()]).run(model)
    assert facts.wide_integers(model.graph[0]) is expected


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
    assert facts.wide_integers(model.graph[-1]) is expected


MASK = """g (float[2,N] x, int64[2,1] lengths, int64[2,1] others) => (float[2,N] y) <
    int64 zero = {{0}}, int64 one = {{1}}> {{
    s = Shape<start = 1>(x) n = Squeeze(s) i = Range(zero, n, one)
    mask = {}
    e = Exp(x) y = Where(mask, e, x) }}"""
LENGTHS = (
    3, -1, 0, 2**31 - 1, 2**31, 2**32, 2**32 + 3, 2**40, 2**63 - 1,
    -(2**31), -(2**31) - 1, -(2**32) + 3, -(2**63),
)  # fmt: skip


def masked(mask):
    """Compile a model with a mask; return the result, and the backends by operator."""
    compiled = dovetail.compile(parse(MASK.format(mask)), "cpu-bf16")
    return compiled, {node.op_type: node.backend for node in compiled.plan.nodes}


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("inputs", ["i, lengths", "lengths, i"])
@pytest.mark.parametrize(
    ("operator", "compute"),
    [
        ("Less", np.less),
        ("LessOrEqual", np.less_equal),
        ("Greater", np.greater),
        ("GreaterOrEqual", np.greater_equal),
        ("Equal", np.equal),
    ],
)
def test_masks_of_lengths_are_exact(operator, compute, inputs):
    """OpenVINO has 32 bits, so the host clamps lengths to them, and the region computes the mask."""
    compiled, backends = masked(f"{operator}({inputs})")
    assert (backends["Clip"], backends[operator]) == ("host", "cpu-bf16")
    x = np.full((2, 6), -2, np.float32)
    for pair in zip(LENGTHS, LENGTHS[1:]):
        lengths = np.array(pair)[:, np.newaxis]
        arrays = {"i": np.arange(6), "lengths": lengths}
        mask = compute(*(arrays[name] for name in inputs.split(", ")))
        result = compiled.run({"x": x, "lengths": lengths, "others": lengths})["y"]
        np.testing.assert_array_equal(result > 0, mask, err_msg=str(pair))


@pytest.mark.parametrize(
    ("mask", "backend"),
    [
        pytest.param("Less(lengths, others)", "host", id="both inputs may exceed 32 bits"),
        pytest.param("Less(i, n)", "cpu-bf16", id="no input does"),
        pytest.param("Less(lengths, one)", "host", id="clamping costs as much as comparing"),
    ],
)
def test_comparisons_that_are_not_clamped(mask, backend):
    _, backends = masked(mask)
    assert backends["Less"] == backend
    assert "Clip" not in backends


def test_positions_beyond_24_bits_are_compared_by_their_difference():
    """OpenVINO compares in float32, where 2^24 and 2^24 + 1 are one number: the mask of a long cache would be off."""
    text = """g (float[N,1] cache, float[M,1] new) => (bool[Q,T] mask, float[1,1] count) <
        int64 zero = {0}, int64 one = {1}, int64[1] back = {-1}> {
        c = Shape<end = 1>(cache) past = Squeeze(c) d = Shape<end = 1>(new) more = Squeeze(d)
        end = Add(past, more) i = Range(past, end, one) p = Unsqueeze(i, back)
        second = Add(past, one) mask = Less(p, second)
        f = Cast<to = 1>(mask) count = ReduceSum<keepdims = 1>(f) }"""
    compiled = dovetail.compile(parse(text), "cpu-bf16")
    assert {node.op_type: node.backend for node in compiled.plan.nodes}["Less"] == "cpu-bf16"
    feeds = {"cache": np.zeros((2**24, 1), np.float32), "new": np.zeros((3, 1), np.float32)}
    assert compiled.run(feeds)["mask"].tolist() == [[True], [False], [False]]


@pytest.mark.parametrize(("to", "dtype"), [(9, bool), (6, np.int32), (1, np.float32)])
def test_masks_are_cast_before_they_are_moved(to, dtype):
    """OpenVINO would take 2^32 for 0, so the host casts what the model is given; the region moves the result."""
    text = """g (int64[2,N] mask, float[2,1,3,N] x) => (float[2,1,3,N] y) <int64[2] axes = {1, 2}> {
        u = Unsqueeze(mask, axes) s = Shape(x) e = Expand(u, s) c = Cast<to = TYPE>(e)
        f = Cast<to = 1>(c) y = Add(f, x) }""".replace("TYPE", str(to))
    compiled = dovetail.compile(parse(text), "cpu-bf16")
    assert [node.op_type for node in compiled.plan.nodes if node.backend == "host"] == ["Cast"]
    mask = np.array([[0, 1, 2**32], [2**40, 3, 0]])
    result = compiled.run({"mask": mask, "x": np.zeros((2, 1, 3, 3), np.float32)})["y"]
    np.testing.assert_allclose(result, np.broadcast_to(mask.astype(dtype)[:, None, None], (2, 1, 3, 3)), rtol=2**-8)


@pytest.mark.parametrize(
    ("shape", "extents", "repeats", "computed"),
    [
        pytest.param(
            "N,1,C,1", (2, 1, 4, 1), (1, 1, 1, 2), False, id="the angles of GPT-J: only one element is repeated"
        ),
        pytest.param("N,3,H,W", (2, 3, 2, 2), (1, 2, 1, 3), False, id="several elements"),
        pytest.param("N,1,H,W", (2, 1, 3, 2), (2, 3, 1, 1), False, id="one channel"),
        pytest.param("1,N", (1, 5), (3, 1), True, id="the positions of Whisper, once for each sample"),
        pytest.param("N", (3,), (4,), True, id="one axis"),
        pytest.param("N,2,M", (2, 2, 3), (3, 2, 2), True, id="all axes"),
        pytest.param("N,2,M", (2, 2, 3), (1, 1, 1), True, id="none"),
        pytest.param("N,M", (0, 3), (2, 2), True, id="no elements"),
        pytest.param("N,M", (2, 3), (2, 0), True, id="no repetition"),
    ],
)
def test_repeated_tensors_are_expanded(shape, extents, repeats, computed):
    """OpenVINO's Tile leaves memory unwritten with computed repeats, and mixes layouts up with open extents."""
    rank = len(extents)
    given = f", int64[{rank}] r" if computed else ""
    held = "" if computed else f"int64[{rank}] r = {{{', '.join(map(str, repeats))}}}"
    text = f"""g (float[{shape}] x{given}) => (float[{",".join("PQRS"[:rank])}] y) <{held}> {{
        e = Abs(x) t = Tile(e, r) y = Neg(t) }}"""
    compiled = dovetail.compile(parse(text), "cpu-bf16", input_ranges={"r": (0, 100)} if computed else {})
    assert {node.backend for node in compiled.plan.nodes} == {"cpu-bf16"}
    x = np.arange(np.prod(extents), dtype=np.float32).reshape(extents)
    for _ in range(2):  # memory of a first call must not show in a second
        found = compiled.run({"x": x, **({"r": np.array(repeats)} if computed else {})})["y"]
        np.testing.assert_array_equal(found, -np.tile(x, repeats))


def test_an_index_that_is_also_a_number_elsewhere_is_an_index_where_it_selects_rows():
    """The distances of T5's decoder choose rows of a table; their logarithm is computed in floats besides."""
    text = """g (float[N,1] cache, float[M,1] new, float[32,4] table) => (float[Q,T,4] y, float[Q,T] z) <
        int64 zero = {0}, int64 one = {1}, int64[1] back = {-1}, int64 most = {31}> {
        c = Shape<end = 1>(cache) past = Squeeze(c) d = Shape<end = 1>(new) more = Squeeze(d)
        end = Add(past, more) i = Range(past, end, one) p = Unsqueeze(i, back) j = Range(zero, end, one)
        o = Sub(p, j) distance = Max(o, zero) near = Less(distance, most)
        row = Where(near, distance, most) y = Gather(table, row) z = Cast<to = 1>(distance) }"""
    compiled = dovetail.compile(parse(text), "cpu-bf16")
    assert {node.backend for node in compiled.plan.nodes} == {"cpu-bf16"}
    feeds = {"cache": np.zeros((40, 1), np.float32), "new": np.zeros((2, 1), np.float32)}
    table = np.arange(128, dtype=np.float32).reshape(32, 4)
    distance = np.maximum(np.arange(40, 42)[:, None] - np.arange(42), 0)
    found = compiled.run({**feeds, "table": table})
    np.testing.assert_array_equal(found["y"], table[np.minimum(distance, 31)])
    np.testing.assert_array_equal(found["z"], distance)


def test_clamping_where_it_would_not_be_exact_is_refused():
    """The largest int32 is not less than 2^31, but clamped it would be equal."""
    text = """g (int32[2] narrow, int64[2] lengths) => (bool[2] y) { i = Cast<to = 7>(narrow) y = Less(i, lengths) }"""
    with pytest.raises(DovetailError, match="clamp-comparisons at 'less_1'"):
        dovetail.compile(parse(text), "cpu-bf16", edits=["clamp-comparisons=less_1"])


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
