"""Building with casts by policy: PyTorch's regions, on a graph."""

import threading
from concurrent.futures import ThreadPoolExecutor

import dovetail
import numpy as np
import onnxruntime
import pytest
from dovetail.ir import dtype_name


@pytest.fixture
def build():
    return Graph()


class Graph:
    """A builder with values to hand, and short questions about what was built."""

    def __init__(self):
        self.builder = dovetail.Builder()
        rng = np.random.default_rng(0)
        self.x = self.builder.input("x", "float32", ["N", 8])
        self.h = self.builder.input("h", "float16", ["N", 8])
        self.b = self.builder.input("b", "bfloat16", ["N", 8])
        self.d = self.builder.input("d", "float64", ["N", 8])
        self.w = self.builder.constant(rng.standard_normal((8, 8)).astype(np.float32), "w")

    def casts(self):
        return [node.inputs[0].name for node in self.builder.model().graph if node.op_type == "Cast"]


def kind(value):
    return dtype_name(value.dtype)


@pytest.mark.parametrize(
    ("operator", "given", "precision", "result"),
    [
        ("MatMul", "xw", "float16", "float16"),  # lower
        ("MatMul", "xw", "bfloat16", "bfloat16"),
        ("Exp", "h", "float16", "float32"),  # fp32
        ("Exp", "b", "bfloat16", "bfloat16"),  # bfloat16 has the range for it
        ("ReduceSum", "h", "float16", "float32"),  # fp32-accumulate
        ("Relu", "h", "float16", "float16"),  # pass
        ("Relu", "x", "float16", "float32"),
        ("Add", "hx", "float16", "float32"),  # promote
        ("Add", "hh", "float16", "float16"),
        ("Add", "hb", "bfloat16", "float32"),  # over a lattice: neither holds the other
        ("Relu", "d", "float16", "float64"),  # never touched
    ],
)
def test_policies(build, operator, given, precision, result):
    with dovetail.autocast(precision):
        value = getattr(build.builder, operator)(*(getattr(build, name) for name in given))
    assert kind(value) == result


@pytest.mark.parametrize(("shape", "result"), [((), "bfloat16"), ((1,), "float32"), ((8,), "float32")])
def test_a_float32_parameter_promotes_unless_it_is_a_scalar(build, shape, result):
    """As in PyTorch, a tensor with one element is a tensor, and only rank 0 follows what is beside it."""
    scale = build.builder.constant(np.ones(shape, np.float32), "scale")
    with dovetail.autocast("bfloat16"):
        assert kind(build.builder.Mul(build.b, scale)) == result
        assert kind(build.builder.Mul(scale, build.b)) == result


def test_outside_of_regions_types_must_go_together(build):
    assert kind(build.builder.Add(build.x, build.x)) == "float32"
    with pytest.raises(
        dovetail.DovetailError, match=r"Add 'add_1': 'B' is tensor\(float16\) and 'A' is tensor\(float\)"
    ):
        build.builder.Add(build.x, build.h)
    with (
        dovetail.autocast("float16"),
        dovetail.autocast(enabled=False),
        pytest.raises(dovetail.DovetailError, match="wants one type"),
    ):
        build.builder.Add(build.x, build.h)


def test_a_value_is_cast_once_per_type(build):
    with dovetail.autocast("float16"):
        build.builder.MatMul(build.x, build.w)
        build.builder.MatMul(build.x, build.w)
        assert build.casts() == ["x", "w"]
        with dovetail.autocast("bfloat16"):  # another type: no stale cast
            assert kind(build.builder.MatMul(build.x, build.w)) == "bfloat16"
        build.builder.MatMul(build.x, build.w)
    assert build.casts() == ["x", "w", "x", "w"]
    with dovetail.autocast("float16"):  # another region remembers nothing
        build.builder.MatMul(build.x, build.w)
    assert build.casts() == ["x", "w", "x", "w", "x", "w"]


def test_regions_nest(build):
    with dovetail.autocast("float16"):
        low = build.builder.MatMul(build.x, build.w)
        with dovetail.autocast(enabled=False):
            assert kind(build.builder.MatMul(build.x, build.w)) == "float32"
            assert kind(build.builder.Relu(low)) == "float16"
        with dovetail.autocast():  # the precision of the region around it
            assert kind(build.builder.MatMul(build.x, build.w)) == "float16"
        assert kind(build.builder.MatMul(build.x, build.w)) == "float16"
    assert kind(build.builder.MatMul(build.x, build.w)) == "float32"


def test_a_round_trip_gives_the_type_of_its_first_input(build):
    features = build.builder.input("features", "float16", [1, 4, 8, 8])
    boxes = build.builder.input("boxes", "float32", [2, 4])
    which = build.builder.input("which", "int64", [2])
    with dovetail.autocast("float16"):
        pooled = build.builder.RoiAlign(features, boxes, which, output_height=2, output_width=2)
    assert kind(pooled) == "float16"
    assert build.casts()[0] == "features"


def test_ports_that_are_kept_are_not_cast(build):
    image = build.builder.input("image", "float16", [1, 1, 4, 4])
    scales = build.builder.constant(np.array([1, 1, 2, 2], np.float32), "scales")
    with dovetail.autocast("bfloat16"):
        build.builder.Resize(image, None, scales, mode="nearest")
    assert "scales" not in build.casts()


@pytest.mark.parametrize("precision", ["float32", "int8", "half"])
def test_other_precisions_are_refused(precision):
    with pytest.raises(dovetail.DovetailError, match=f"autocast to '{precision}'"):
        dovetail.autocast(precision)


def test_what_was_built_runs(tmp_path):
    builder = dovetail.Builder()
    x, weight = builder.input("x", "float32", ["N", 8]), np.eye(8, dtype=np.float32) * 0.3
    w = builder.constant(weight, "w")
    with dovetail.autocast("float16"):
        out = builder.Softmax(builder.Add(builder.MatMul(x, w), x), axis=-1)
    builder.output(out, "y")
    model = builder.model()
    dovetail.ir.verify_model(model)
    model.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    result = session.run(["y"], {"x": x})[0]
    scores = x @ weight + x
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result, expected, atol=5e-3)


def test_a_region_forgets_the_precision_around_it_when_it_is_left(build):
    inherited = dovetail.autocast()
    with dovetail.autocast("float16"), inherited as inner:
        assert inner.precision == "float16"
        assert kind(build.builder.MatMul(build.x, build.w)) == "float16"
    with inherited as outermost:
        assert outermost.precision == "bfloat16"
        assert kind(build.builder.MatMul(build.x, build.w)) == "bfloat16"


def test_a_region_may_be_entered_within_itself(build):
    region = dovetail.autocast("float16")
    with region:
        with region:
            assert kind(build.builder.MatMul(build.x, build.w)) == "float16"
        assert kind(build.builder.MatMul(build.x, build.w)) == "float16"
        with dovetail.autocast("bfloat16"), region:
            assert kind(build.builder.MatMul(build.x, build.w)) == "float16"
    assert kind(build.builder.MatMul(build.x, build.w)) == "float32"  # all of them are left


def test_an_error_inside_leaves_all_regions(build):
    region = dovetail.autocast("float16")
    with pytest.raises(KeyError), region, region:
        raise KeyError
    assert kind(build.builder.MatMul(build.x, build.w)) == "float32"


def test_threads_share_a_region_and_not_what_they_do_in_it():
    region, entered = dovetail.autocast("float16"), threading.Barrier(2, timeout=60)

    def work():
        build = Graph()
        with region:
            entered.wait()
            inside = kind(build.builder.MatMul(build.x, build.w))
        entered.wait()
        return inside, kind(build.builder.MatMul(build.x, build.w)), len(build.casts())

    with ThreadPoolExecutor(2) as pool:
        assert [future.result() for future in [pool.submit(work), pool.submit(work)]] == [("float16", "float32", 2)] * 2
