"""What is typed for engines is taken by the file as it is typed, and by the real parser where it is installed."""

import os
import sys
from pathlib import Path

import dovetail
import onnx
import pytest
from dovetail_tensorrt.libraries import NoLibrary, library
from dovetail_tensorrt.parser import parse
from dovetail_tensorrt.table import refusals_as_typed

from tests.e2e.engine_nets import ENGINE_NETS
from tests.e2e.nets import NETS, images, net

from .engine_regions import engine_regions, file_of, typed

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "backends" / "cpu_bf16" / "tools"))
from random_graphs import random_model  # noqa: E402

SEEDS = range(1000) if os.environ.get("DOVETAIL_SLOW") else range(3, 1000, 45)
OPTIONS = ("precision=fp16", "precision=bf16", "precision=fp32", "io=high")


@pytest.fixture(scope="module")
def plugins():
    return dovetail.load_plugins()


def refused(model, plugins, option="precision=fp16"):
    """What file and parser refuse of the regions of a model, by node; regions with values of unknown rank apart."""
    backend = file_of(plugins, **dict([option.split("=")]))
    try:
        parser = library()
    except NoLibrary:
        parser = None
    found = {}
    for region in engine_regions(model):
        found |= refusals_as_typed(region, backend, plugins.registry)
        values = [*region.graph.inputs, *(value for node in region.nodes() for value in node.outputs)]
        if parser is not None and all(value.shape is not None for value in values):
            found |= {error.node: error.text for error in parse(region, parser).verdict.errors}
    return found


@pytest.mark.generated
@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed, plugins):
    option = OPTIONS[seed % len(OPTIONS)]
    model, _ = typed(random_model(seed)[0], plugins, f"tensorrt:{option}")
    assert refused(model, plugins, option) == {}


@pytest.mark.generated
@pytest.mark.parametrize("name", ENGINE_NETS)
@pytest.mark.parametrize("option", OPTIONS)
def test_nets_with_open_extents(name, option, plugins):
    model, _ = typed(ENGINE_NETS[name](), plugins, f"tensorrt:{option}")
    assert refused(model, plugins, option) == {}


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("name", NETS)
def test_nets_of_images_are_one_region_in_integers(name, plugins):
    data = images(4)
    model, _ = typed(net(name), plugins, "tensorrt:precision=int8", data=data)
    (region,) = engine_regions(model)
    assert "QuantizeLinear" in {node.op_type for node in region.graph}
    assert refused(model, plugins, "precision=int8") == {}


NORM = """<ir_version: 10, opset_import: ["": 22]>
g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float[4] s = {1,2,3,4}, float[4] b = {0,0,0,0}, float[4] v = {1,1,1,1}>
{ a = Softmax<axis=1>(x)
  y = BatchNormalization(a, s, b, b, v) }"""


def test_a_batch_norm_that_cannot_be_folded_is_computed_in_float32(plugins):
    """The parser would cast its statistics to float16, and take the root in it."""
    model, _ = typed(onnx.parser.parse_model(NORM), plugins)
    (norm,) = (node for node in model.graph if node.op_type == "BatchNormalization")
    assert {value.dtype.name for value in norm.inputs} == {"FLOAT"}
    assert refused(model, plugins) == {}


COMBINED = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x, float[8,8] w, int64[4,8] i) => (float[4,8] y)
{ a = MatMul(x, w)
  b = ScatterElements<reduction="add">(a, i, a)
  c = MatMul(b, w)
  y = Relu(c) }"""


@pytest.mark.parametrize("other", ["gpu-fp16", "cpu-bf16"])
def test_two_backends_of_one_type_need_no_casts_between_them(other, plugins):
    """`ScatterElements` adds on the other backend; it takes float16 there, as it comes out of the engine."""
    model, _ = typed(onnx.parser.parse_model(COMBINED), plugins, ["tensorrt", other])
    operators = [node.op_type for node in model.graph]
    between = operators[operators.index("MatMul") + 1 : len(operators) - operators[::-1].index("MatMul") - 1]
    assert between == ["ScatterElements"]
    assert refused(model, plugins) == {}


@pytest.mark.parametrize(("builder", "backend"), [("rtx", "host"), ("tensorrt", "tensorrt")])
def test_plugins_of_full_tensorrt_are_claimed_for_it_alone(builder, backend):
    plan = dovetail.plan(ENGINE_NETS["detector"](), f"tensorrt:builder={builder},precision=fp16")
    assert {node.backend for node in plan.nodes if node.name == "nms"} == {backend}
