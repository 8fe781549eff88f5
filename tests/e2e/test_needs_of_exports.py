"""The instructions that an export asks for are those that its numbers depend on, whatever the CPU here has."""

import dovetail
import numpy as np
import pytest
from dovetail.plugin import Executed
from dovetail_cpu_bf16 import session
from dovetail_runtime import processor

from .exported_nets import digits, noise, text

pytestmark = pytest.mark.processor

OLD, VNNI = frozenset({"avx2"}), frozenset({"avx2", "avx_vnni"})
NEW = VNNI | {"avx512_bf16"}
SUMS, HALVES = sorted(processor.DOT_PRODUCTS), sorted(processor.BFLOAT16)
RELU = "g (float[4,16] x) => (float[4,16] y) { y = Relu (x) }"
PRODUCT = "g (float[4,64] x) => (float[4,64] y) { y = MatMul (x, w) }"


def relu():
    return text(RELU)


def product():
    return text(PRODUCT, w=noise(64, 64))


def image_net():
    return digits()[0]


def needs(make, backend, flags, folder, monkeypatch):
    """Compile and export as on a CPU with these flags; return what all steps need."""
    monkeypatch.setattr(processor, "cpu_flags", lambda: flags)
    model = make()
    rng = np.random.default_rng(0)
    data = [{model.graph.input[0].name: rng.random(_extents(model), np.float32)} for _ in range(8)]
    dovetail.compile(model, backend, data=data if backend.startswith("cpu-int8") else None, verify=False).save(
        folder / "out"
    )
    description = dovetail.export(folder / "out", folder / "shipped")
    return [group for step in description["steps"] for group in step["needs"]]


def _extents(model):
    return [one.dim_value or 1 for one in model.graph.input[0].type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    ("net", "backend", "flags", "expected"),
    [
        pytest.param(image_net, "cpu-int8", VNNI, [SUMS], id="8 bits"),
        pytest.param(image_net, "cpu-int8", OLD, [], id="8 bits, computed in float32"),
        pytest.param(image_net, "cpu-int8", None, [SUMS], id="8 bits, unknown CPU"),
        pytest.param(image_net, "cpu-int8:weight_range=reduced", VNNI, [], id="7 bits"),
        pytest.param(image_net, "cpu-int8:weight_range=reduced", OLD, [], id="7 bits on an old CPU"),
        pytest.param(image_net, "cpu-int8:runtime=onnxruntime", VNNI, [SUMS], id="8 bits, ONNX Runtime"),
        pytest.param(image_net, "cpu-int8:runtime=onnxruntime", OLD, [], id="uint8 weights, ONNX Runtime"),
        pytest.param(image_net, "cpu-int8:runtime=onnxruntime,weight_range=reduced", VNNI, [], id="7 bits, ORT"),
        pytest.param(product, "cpu-int8:weights=int8", VNNI, [], id="weights alone"),
        pytest.param(relu, "cpu-int8", VNNI, [], id="no product"),
        pytest.param(product, "cpu-bf16", VNNI, [], id="no bfloat16 here"),
        pytest.param(product, "host", NEW, [], id="floats"),
    ],
)
def test_what_an_export_needs(net, backend, flags, expected, tmp_path, monkeypatch):
    assert needs(net, backend, flags, tmp_path, monkeypatch) == expected


@pytest.mark.parametrize(("precision", "expected"), [("bfloat16", [HALVES]), ("float32", [])])
def test_bfloat16_is_needed_where_a_kernel_computes_in_it(precision, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "executed_precisions", lambda *_: {"matmul": Executed(precision, "reported")})
    assert needs(product, "cpu-bf16", NEW, tmp_path, monkeypatch) == expected
