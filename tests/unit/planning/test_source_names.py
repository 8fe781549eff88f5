"""The names of source nodes stand in messages about nodes that normalizing renamed, folded or rewrote."""

from pathlib import Path

import dovetail
import onnx
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail.ir import verify_model
from dovetail.planning import from_source, set_origin
from dovetail.plugin import Availability, Backend, Engine, EngineError, Reads, RegionModel
from dovetail_onnx.opening import open_proto
from dovetail_runtime.engines import guarded

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x) => (float[2] y) { [fused] y = Relu (x) }"""
FROM = "(from 'conv_2' and 'norm_2')"


@pytest.fixture
def model():
    made = open_proto(onnx.parser.parse_model(TEXT))
    set_origin(made.graph[0], ("conv_2", "norm_2"))
    return made


def test_how_origins_read(model):
    (node,) = model.graph
    assert from_source(node) == f" {FROM}"
    set_origin(node, ("fused",))
    assert from_source(node) == ""
    set_origin(node, ("other",))
    assert from_source(node) == " (from 'other')"
    set_origin(node, tuple("abcdef"))
    assert from_source(node) == " (from 'a', 'b', 'c' and 3 more)"


def test_explain():
    plan = dovetail.plan(DIGITS, "host")
    assert dovetail.explain(plan, "conv_2")[0].startswith(f"conv_2 (Conv) {FROM}: host")
    assert dovetail.explain(plan, "relu_2")[0].startswith("relu_2 (Relu): host")


def test_the_verifier(model):
    model.graph[0].outputs[0].type = ir.TensorType(ir.DataType.INT64)
    with pytest.raises(DovetailError, match=r"Relu 'fused' \(from 'conv_2' and 'norm_2'\)"):
        verify_model(model)
    model.graph[0].outputs[0].name = None
    with pytest.raises(DovetailError, match=r"Relu 'fused' \(from 'conv_2' and 'norm_2'\): a value has no name"):
        verify_model(model)


def test_a_refused_pin():
    with pytest.raises(DovetailError, match=r"refuses 'conv_2' \(from 'conv_2' and 'norm_2'\): "):
        dovetail.plan(DIGITS, "small", pins="conv_2=small", plugins=_small())


def _small():
    plugins = dovetail.load_plugins()
    plugins.registry.backend("small", f"{__name__}:Small")
    return plugins


class Small(Backend):
    name, summary, device = "small", "", "npu"
    low, high, accumulate = "float32", "float32", None
    opset, strategy, engines, facts = (13, 22), "autocast", ("onnxruntime-cpu",), ()
    border_types, source, chosen = ("float32",), "Small", {}

    def __init__(self, options):
        pass

    def takes(self, domain, op_type):
        return op_type == "Relu"

    lists = takes

    def judge(self, opsets, facts):
        from dovetail.plugin import Refusal, Verdict

        no = Verdict(False, (Refusal("it has none", "Small"),))
        return lambda node, region=None: Verdict(True, policy="pass") if node.op_type == "Relu" else no


class Picky(Engine):
    name = "picky"
    reads = Reads(26, 13, frozenset({"float32"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        raise EngineError("picky cannot do 'fused'", node="fused")


def test_an_engine_that_refuses_a_node(model):
    with pytest.raises(EngineError) as caught:
        guarded(Picky(), "acme").load(RegionModel(model), {})
    assert caught.value.message == f"picky (acme) cannot do 'fused' {FROM}"
