"""The engine `openvino-cpu-int8`: it says int8 where OpenVINO says so, and computes what the file says."""

import dovetail
import numpy as np
import onnx
import onnx_ir
import pytest
from dovetail.plugin import RegionModel
from dovetail_cpu_bf16.engine import OpenVinoCpu
from dovetail_cpu_int8.engine import OpenVinoCpuInt8
from dovetail_host.onnxruntime_cpu import OnnxRuntimeCpu

from .nets import compiled, net, samples

IMAGES = "a = Conv <pads = [1,1,1,1]> (x, w, b) r = Relu (a) c = Conv (r, v, b) s = Add (c, r) y = Conv (s, v, b)"
MATRICES = "p = MatMul (x, m) a = Add (p, n) g = Gelu (a) q = MatMul (g, m) y = Add (q, n)"
SCORES = "k = MatMul (x, m) t = Transpose <perm = [0,2,1]> (k) a = MatMul (k, t) s = Softmax (a) y = MatMul (s, k)"


def region(result):
    """The compiled model as one region."""
    return RegionModel(dovetail.open(onnx.load_from_string(onnx_ir.to_proto(result.model.ir).SerializeToString())))


def computed(engine, given, feeds, **options):
    return next(iter(engine.load(given, {"threads": 1, **options}).run(feeds).values()))


@pytest.mark.parametrize(("body", "x"), [(IMAGES, "1,4,6,6"), (MATRICES, "1,5,16"), (SCORES, "1,5,16")])
def test_both_engines_compute_what_the_file_says(body, x):
    """Within one step of the result: a tie may fall to the other side where a scale was moved."""
    model = net(body, x=x)
    given, feeds = region(compiled(model)), samples(model, 17)[16]
    exact = computed(OnnxRuntimeCpu(), given, feeds, optimize="none")
    step = 2 * np.abs(exact).max() / 255
    for engine in (OpenVinoCpuInt8(), OnnxRuntimeCpu()):
        assert np.abs(computed(engine, given, feeds) - exact).max() <= step, engine.name


@pytest.mark.parametrize(
    ("body", "x", "integers"),
    [
        (IMAGES, "1,4,6,6", {"Conv"}),
        (MATRICES, "1,5,16", {"MatMul"}),
        # what is fused into a kernel has the precision that OpenVINO reports of the kernel
        ("a = Conv (x, v, b) s = Sigmoid (a) y = Softmax (s)", "1,4,6,6", {"Conv", "Sigmoid"}),
        ("a = Sigmoid (x) y = Softmax (a)", "1,4,6,6", set()),
    ],
)
def test_executed_says_integers_where_openvino_does(body, x, integers):
    given = region(compiled(net(body, x=x), "cpu-int8:weight_range=reduced"))  # on CPUs without VNNI, too
    executed = OpenVinoCpuInt8().load(given, {"threads": 1}).executed()
    products = {"Conv", "MatMul", "Softmax", "Sigmoid"}
    found = {
        node.op_type
        for node in given.model.nodes()
        if node.op_type in products and executed[node.name].precision in ("int8", "uint8")
    }
    assert found == integers


def test_without_the_transformations_the_same_file_is_executed_in_floats():
    given = region(compiled(net(IMAGES)))
    executed = OpenVinoCpu().load(given, {"threads": 1}).executed()
    assert {executed[node.name].precision for node in given.model.nodes() if node.op_type == "Conv"} == {"float32"}


def test_errors_name_this_engine(monkeypatch):
    def refuse(self, source, low_precision):
        raise RuntimeError("no kernel")

    monkeypatch.setattr(OpenVinoCpuInt8, "read", refuse)
    with pytest.raises(dovetail.DovetailError, match="openvino-cpu-int8 refuses the region: no kernel"):
        OpenVinoCpuInt8().load(region(compiled(net("y = Conv (x, v, b)"))), {})
