"""The prepared model is compared with the source before anything is decided."""

from dataclasses import dataclass
from typing import ClassVar

import dovetail
import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_proto
from dovetail_verify import prepared_outputs
from dovetail_verify.runners import reference_runner
from dovetail_verify.unchanged import is_unchanged

NET = """<ir_version: 8, opset_import: ["": 18]>
g (float[N, 4] x) => (float[N, 4] y, int64[N] best) <float[4, 4] w = {1,2,3,4, 5,6,7,8, 2,1,0,1, 4,3,2,7}> {
  [product] p = MatMul (x, w)
  [bend] b = Relu (p)
  [out] y = Neg (b)
  [top] best = ArgMax <axis = 1, keepdims = 0> (y)
}"""
X = np.random.default_rng(0).uniform(-2, 2, (5, 4)).astype(np.float32)


def net(text=NET):
    return open_proto(onnx.parser.parse_model(text))


@dataclass(frozen=True)
class Rename(dovetail.Pass):
    """Make another operator of each node of a kind, as a wrong rewrite would."""

    name = "rename"
    stage: ClassVar[str] = "normalize"
    after = ("normalize",)
    old: str = "Relu"
    new: str = "Abs"

    def run(self, model, ctx):
        found = [node for node in model.graph if node.op_type == self.old]
        for node in found:
            node.op_type = self.new
        return bool(found)


def said(compiled):
    return [remark.why for remark in compiled.remarks if remark.rule == "prepared"]


def test_what_was_compared_is_said():
    assert said(dovetail.compile(net(), ["host"], data={"x": X})) == [
        "computes on the first batch what the source computes, up to rounding"
    ]
    assert said(dovetail.compile(net(), ["host"])) == [
        "computes on random inputs what the source computes, up to rounding"
    ]


@pytest.mark.parametrize("data", [None, {"x": X}], ids=["random inputs", "data"])
def test_a_difference_names_the_pass_and_the_node(data):
    with pytest.raises(DovetailError, match="preparing the model changes what it computes: 'y' has an SNR") as raised:
        dovetail.compile(net(), ["cpu-bf16"], data=data, passes=[Rename()])
    assert "it is pass 'rename' at node 'bend' (Abs; 'b' has" in str(raised.value)
    assert raised.value.node == "bend"
    assert "--no-check-prepare" in raised.value.hint


def test_a_model_that_preparing_leaves_as_it_is_is_not_loaded_again(monkeypatch):
    loaded = []
    monkeypatch.setattr(
        prepared_outputs, "reference_runner", lambda *given: loaded.append(given) or reference_runner(*given)
    )
    assert said(dovetail.compile(net(), ["host"], data={"x": X}))
    assert not loaded
    folded = NET.replace("[product]", "w2 = Neg (w) w3 = Neg (w2) [product]").replace("(x, w)", "(x, w3)")
    assert said(dovetail.compile(net(folded), ["host"], data={"x": X}))
    assert len(loaded) == 1


def altered(change):
    model = net()
    change(model.graph)
    return model


def add_weight(graph):
    value = ir.Value(name="more", const_value=ir.tensor([1.0], name="more"))
    graph.initializers["more"] = value


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: setattr(graph[1], "op_type", "Abs"),
        lambda graph: setattr(graph[1], "domain", "com.acme"),
        lambda graph: graph[3].attributes.add(ir.AttrInt64("axis", 0)),
        lambda graph: graph[3].attributes.pop("keepdims"),
        lambda graph: graph[2].attributes.add(ir.AttrFloat32("more", 1.0)),
        lambda graph: graph[2].replace_input_with(0, graph[0].outputs[0]),
        lambda graph: setattr(graph.inputs[0], "shape", ir.Shape([3, 4])),
        lambda graph: setattr(graph.inputs[0], "name", "other"),
        lambda graph: graph.outputs.reverse(),
        lambda graph: graph.opset_imports.update({"": 19}),
        lambda graph: setattr(graph.initializers["w"], "const_value", ir.tensor(np.ones((4, 4), np.float32))),
        lambda graph: graph.remove(graph[3]),
        add_weight,
    ],
    ids=["operator", "domain", "attribute", "no attribute", "more attributes", "input", "shape", "name", "outputs"]
    + ["opset", "weight", "node", "more weights"],
)
def test_a_changed_model_is_compared(change):
    assert not is_unchanged(net(), altered(change))
    assert is_unchanged(net(), altered(lambda graph: setattr(graph[1], "doc_string", "says nothing")))


def test_signs_of_zeros_are_changes():
    zero, minus = (net(NET.replace("[bend] b = Relu (p)", f"b = LeakyRelu <alpha = {a}> (p)")) for a in ("0.0", "-0.0"))
    assert not is_unchanged(zero, minus)


def test_integers_count():
    with pytest.raises(DovetailError, match="'best' has . elements of . that differ on the first batch; .* 'top'"):
        dovetail.compile(net(), ["host"], data={"x": X}, passes=[Rename(old="ArgMax", new="ArgMin")])


def test_it_can_be_left_out():
    assert not said(dovetail.compile(net(), ["host"], data={"x": X}, passes=[Rename()], check_prepare=False))
    assert not said(dovetail.compile(net(), ["host"], verify=False, passes=[Rename()]))


def test_random_operators_and_ties_are_no_difference():
    noise = NET.replace("[out] y = Neg (b)", "r = RandomNormalLike (b) [out] y = Add (b, r)")
    assert said(dovetail.compile(net(noise), ["host"], data={"x": X}))
