"""The reference engine against ONNX Runtime, where the evaluator underneath is wrong or incomplete."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Model
from dovetail.plugin import RegionModel
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu
from dovetail_host.reference import ReferenceEngine

from .models import parse

LOOP = """
    g (float[2,3] x, int64 n) => (float[2,3] last, float[S,2,3] all) <bool true = {{1}}, bool false = {{0}}> {{
        last, all = Loop({n}, {condition}, x) <body = one (int64 i, bool go, float[2,3] s)
            => (bool on, float[2,3] r, float[2,3] o) {{
                k = Cast<to=1>(i)
                r = Add(s, k)
                o = Neg(r)
                on = Less(i, limit)
            }}>
    }}"""
SCAN = """
    g (float[3] start, float[4,3] rows, float[3] k) => (float[3] last, float[A,B] all) {{
        last, all = Scan<num_scan_inputs = 1, {options},
            body = one (float[3] s, float[3] e) => (float[3] r, float[3] o) {{
            p = Mul(e, k)
            r = Add(s, p)
            o = Identity(r) }}>(start, rows) }}"""
POOL = """g (float[2,3,{extents}] x) => (float[A,B,{dims}] y, int64[C,D,{dims2}] where) {{
    y, where = MaxPool<{options}>(x) }}"""


def both(text, **inputs):
    """What the reference gives, and ONNX Runtime."""
    return [engine.load(RegionModel(parse(text)), {}).run(inputs) for engine in (ReferenceEngine(), OnnxRuntimeCpu())]


def assert_agrees(text, **inputs):
    ours, theirs = both(text, **inputs)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype
        np.testing.assert_allclose(ours[name], expected, rtol=1e-6)


@pytest.mark.parametrize("limit", ["n", '""'], ids=["counted", "no count"])
@pytest.mark.parametrize("condition", ["true", '""', "false"])
def test_scan_outputs_of_loops_are_stacked(limit, condition):
    """Whatever ends the loop; one that takes no turn gives an empty array."""
    text = LOOP.format(n=limit, condition=condition).replace(
        "bool false = {0}", "bool false = {0}, int64 limit = {2}"
    )  # fmt: skip
    assert_agrees(text, x=np.arange(6, dtype=np.float32).reshape(2, 3), n=np.array(5))


def test_scalars_that_a_loop_collects_are_a_list():
    text = """g (int64 n) => (int64[N] all) <bool true = {1}> {
        all = Loop(n, true) <
            body = one (int64 i, bool go) => (bool on, int64 o) { on = Identity(go) o = Add(i, i) }> }"""
    ours, theirs = both(text, n=np.array(4))
    assert ours["all"].tolist() == theirs["all"].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "options",
    [
        "scan_input_axes = [0]",
        "scan_input_directions = [1]",
        "scan_output_directions = [1]",
        "scan_output_axes = [1]",
        "scan_input_directions = [1], scan_output_axes = [-1]",
    ],
)
def test_scans_run_in_both_directions_along_any_axis(options):
    rng = np.random.default_rng(0)
    start, rows, k = (rng.random(shape).astype(np.float32) for shape in ((3,), (4, 3), (3,)))
    assert_agrees(SCAN.format(options=options), start=start, rows=rows, k=k)


@pytest.mark.parametrize(
    ("extents", "options"),
    [
        ("9", "kernel_shape = [3]"),
        ("9", "kernel_shape = [2], strides = [2], ceil_mode = 1"),
        ("7,6", "kernel_shape = [2,2]"),
        ("7,6", "kernel_shape = [3,2], strides = [2,1], pads = [1,0,1,1]"),
        ("7,6", "kernel_shape = [2,2], dilations = [2,1], storage_order = 1"),
        ("7,6", 'kernel_shape = [3,3], strides = [2,2], auto_pad = "SAME_LOWER"'),
        ("5,4,3", "kernel_shape = [2,2,2], strides = [1,2,1]"),
    ],
)
def test_indices_of_pooling(extents, options):
    """Equal elements too: the first of them is the largest."""
    count = extents.count(",") + 1
    names = [",".join(f"{stem}{i}" for i in range(count)) for stem in "PQ"]
    text = POOL.format(extents=extents, options=options, dims=names[0], dims2=names[1])
    shape = (2, 3, *map(int, extents.split(",")))
    assert_agrees(text, x=np.random.default_rng(0).integers(0, 5, shape).astype(np.float32))


def test_a_failing_node_is_an_error_with_the_name_of_the_engine():
    text = "g (float[N] x, int64[1] i) => (float[M] y) { y = Gather(x, i) }"
    session = ReferenceEngine().load(RegionModel(parse(text)), {})
    with pytest.raises(DovetailError, match="reference fails"):
        session.run({"x": np.ones(2, np.float32), "i": np.array([5])})


@pytest.mark.parametrize("power", [1, 2, 3])
def test_norms_of_channels(power):
    text = f"g (float[2,3,4,5] x) => (float[2,3,1,1] y) {{ y = GlobalLpPool<p = {power}>(x) }}"
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    ours = ReferenceEngine().load(RegionModel(parse(text)), {}).run({"x": x})["y"]
    np.testing.assert_allclose(ours[..., 0, 0], (np.abs(x) ** power).sum(axis=(2, 3)) ** (1 / power), rtol=1e-6)


@pytest.mark.parametrize(
    ("signature", "node"),
    [
        ("float[2,4] x", "y = LpNormalization<p = 1>(x)"),
        ("float[2,2,3,3] x", "y = LRN<size = 5, alpha = 0.1>(x)"),
        ("float[2,3,4] x, float[4] k", "y = Mean(k, x)"),
        (
            "float[2,4,3,3] x, float[4,2,3,1] k",
            "y = ConvTranspose<group = 4, strides = [2,1], output_padding = [1,0]>(x, k)",
        ),
        ("float[1,2,6,6] x", "y = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(x, rois, batch)"),
    ],
)
def test_arithmetic(signature, node):
    """RoiAlign before opset 16, at which half a pixel came in."""
    text = f"""<ir_version: 8, opset_import: ["": 15]> g ({signature}) => (float[N] y) <
        float[1,4] rois = {{0.5, 0.5, 3, 2.5}}, int64[1] batch = {{0}}> {{ {node} }}"""
    proto = onnx.parser.parse_model(text)
    rank = {"LpNormalization": 2, "Mean": 3, "GlobalMaxPool": 3}.get(proto.graph.node[0].op_type, 4)
    del proto.graph.output[:]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("y", 1, list("ABCD")[:rank]))
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in proto.graph.input
    }
    model = Model(ir.from_proto(proto))
    ours, theirs = (e.load(RegionModel(model), {}).run(feeds)["y"] for e in (ReferenceEngine(), OnnxRuntimeCpu()))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_softsign_of_a_scalar():
    session = ReferenceEngine().load(RegionModel(parse("g (float x) => (float y) { y = Softsign(x) }")), {})
    assert session.run({"x": np.array(-3, np.float32)})["y"] == -0.75


def test_an_operator_that_it_lacks_is_named_without_a_list_of_all_others():
    text = "g (float[2] x) => (float[2] y) { y = com.acme.Fuse(x) }"
    header = '<ir_version: 10, opset_import: ["" : 22, "com.acme" : 1]>'
    with pytest.raises(DovetailError, match="Fuse") as caught:
        ReferenceEngine().load(RegionModel(parse(header + text)), {})
    assert len(caught.value.message) < 300


RESIZE = """g (float[2,2,{extents}] x, {kind} wanted) => (float[A,B,C,D] y) {{
    y = Resize<coordinate_transformation_mode = "{how}", mode = "{mode}"{more}>(x, , {ports}) }}"""


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("how", ["pytorch_half_pixel", "half_pixel"])
@pytest.mark.parametrize(
    ("extents", "scales"), [("4,3", (1, 0.5)), ("3,5", (0.5, 0.3)), ("1,3", (1, 0.6)), ("4,6", (0.5, 2))]
)
def test_a_resize_to_one_element(mode, how, extents, scales):
    """Half of three is one element; by `pytorch_half_pixel` it is the first, elsewhere one between the first two."""
    x = np.random.default_rng(0).standard_normal((2, 2, *map(int, extents.split(",")))).astype(np.float32)
    text = RESIZE.format(extents=extents, kind="float[4]", how=how, mode=mode, more="", ports="wanted")
    ours, theirs = both(text, x=x, wanted=np.array([1, 1, *scales], np.float32))
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_resize_to_a_size_of_one(mode):
    x = np.random.default_rng(0).standard_normal((2, 2, 4, 3)).astype(np.float32)
    text = RESIZE.format(extents="4,3", kind="int64[2]", how="pytorch_half_pixel", mode=mode,
                         more=", axes = [2, 3]", ports=", wanted")  # fmt: skip
    ours, theirs = both(text, x=x, wanted=np.array([2, 1], np.int64))
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-5)
