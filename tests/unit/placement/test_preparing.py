"""Fusions that a backend file asks for are made on nodes offered to that backend, and undone where it declines."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

FILE = """
backend: {name}
device: npu
opset: {opset}
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: [float16, float32]}}
ops: {{{ops}}}
prepare: [{prepare}]
place: {{strategy: {strategy}}}
emit: {{engines: [onnxruntime-cpu]}}
"""
MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,8] x) => (float[2,8] y) <float[8,8] w, float root = {1.4142135}, float one = {1}, float half = {0.5}> {
  [first] h = MatMul(x, w)
  [divide] a = Div(h, root)  [erf] b = Erf(a)  [add] c = Add(b, one)  [product] d = Mul(h, c)  [gelu] g = Mul(d, half)
  [second] y = MatMul(g, w)
}"""
PARTS = ("divide", "erf", "add", "product", "gelu")


def file(name="npu", ops='"MatMul, Gelu": {types: f}', prepare="fuse-gelu", opset="13..24", strategy="autocast"):
    return FILE.format(name=name, ops=ops, prepare=prepare, opset=opset, strategy=strategy)


@pytest.fixture
def planned(with_backend):
    def make(*files, model=MODEL, backends="npu", **request):
        return dovetail.plan(open_text(model, "model"), backends, plugins=with_backend(*files), **request)

    return make


def placed(plan):
    return {node.name: (node.op_type, node.backend) for node in plan.nodes}


def said(plan, rule="fuse-gelu"):
    return [remark for remark in plan.remarks if remark.rule == rule]


FUSED = {"first": ("MatMul", "npu"), "gelu": ("Gelu", "npu"), "second": ("MatMul", "npu")}


def test_the_group_becomes_one_operator_of_the_backend(planned):
    """The opset is raised to the one that has it."""
    plan = planned(file())
    assert placed(plan) == FUSED
    (remark,) = said(plan)
    assert (remark.node, remark.why) == (
        "gelu",
        "Gelu replaces 'divide', 'erf', 'add', 'product' and 1 more node, for npu",
    )


def test_the_result_computes_the_same(with_backend):
    compiled = dovetail.compile(open_text(MODEL, "model"), "npu", plugins=with_backend(file()), verify=True)
    assert [node.op_type for node in compiled.model.graph if node.op_type != "Cast"] == ["MatMul", "Gelu", "MatMul"]
    assert not compiled.verification.broken


def test_a_replayed_plan_makes_the_same_fusions(planned, with_backend):
    plan = planned(file())
    assert [edit["kind"] for edit in plan.edits] == ["fuse-gelu"]
    renamed = MODEL.replace("[gelu] g =", "[last] z =").replace("MatMul(g, w)", "MatMul(z, w)")
    for text, name in ((MODEL, "gelu"), (renamed, "last")):
        again = dovetail.compile(open_text(text, "model"), "npu", plugins=with_backend(file()), plan=plan)
        assert placed(again.plan) == {"first": FUSED["first"], name: FUSED["gelu"], "second": FUSED["second"]}
        assert again.plan.edits[0]["kind"] == "fuse-gelu"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"ops": "MatMul: {types: f}, Gelu: {types: f, limits: {X.rank: 3}}"},
            "not on npu: fuse-gelu is undone: X.rank = 2; allowed: 3",
        ),
        (
            {"ops": '"MatMul, Gelu, Conv": {types: f}', "strategy": "conv-to-conv"},
            "not on npu: fuse-gelu is undone: its strategy 'conv-to-conv' leaves it",
        ),
        ({"ops": "MatMul: {types: f}"}, "not applied for npu: it makes Gelu, which npu does not take"),
        ({"opset": "13..17"}, "not applied for npu: it makes Gelu of opset 20, and the model has opset 17"),
    ],
)
def test_where_the_backend_does_not_take_it_the_nodes_stay(planned, changes, why):
    plan = planned(file(**changes))
    assert [node.name for node in plan.nodes] == ["first", *PARTS, "second"]
    assert plan.edits == []
    assert [remark.why for remark in said(plan)] == [why]
    assert said(plan)[0].source.startswith("inline.yaml:") or "strategy" in why


def test_a_group_of_a_known_form_that_stays_says_why(planned):
    """A layer norm over the first axis is none."""
    norm = """<ir_version: 10, opset_import: ["": 17]>
        g (float[2,8] x) => (float[2,8] y) <int64[1] first = {0}, float two = {2}, float e = {0.00001}, float[8] w> {
        [mean] m = ReduceMean<axes = [0]>(x) [centered] d = Sub(x, m) [square] p = Pow(d, two)
        [variance] v = ReduceMean<axes = [0]>(p) [shifted] s = Add(v, e) [root] r = Sqrt(s)
        [quotient] n = Div(d, r) [norm] y = Mul(n, w) }"""
    plan = planned(file(ops='"LayerNormalization": {types: f}', prepare="fuse-layernorm"), model=norm)
    assert [(one.kind, one.node, one.why) for one in said(plan, "fuse-layernorm")] == [
        ("missed", name, "not applied for npu: its axes are not the last ones") for name in ("norm", "quotient")
    ]
    assert said(plan, "fuse-layernorm")[0].source.startswith("inline.yaml:")


def test_undone_is_as_if_nothing_had_been(planned):
    """The nodes have the formats and the regions that they have without the fusion."""
    ops = '"MatMul, Mul, Add": {types: f}, Gelu: {types: f, limits: {X.rank: 3}}'
    undone, without = planned(file(ops=ops)), planned(file(ops=ops).replace("prepare: [fuse-gelu]\n", ""))
    assert [node.as_dict() for node in undone.nodes] == [node.as_dict() for node in without.nodes]


def test_what_an_earlier_backend_claims_is_not_fused(planned):
    first = file("first", ops='"Erf": {types: f}', prepare="fuse-mish")
    plan = planned(first, file(), backends=["first", "npu"])
    assert placed(plan)["erf"] == ("Erf", "first")
    assert placed(plan)["product"] == ("Mul", "host")


def test_a_following_backend_fuses_what_is_left(planned):
    first = file("first", ops="Conv: {types: f}", prepare="fuse-gelu")
    assert placed(planned(first, file(), backends=["first", "npu"])) == FUSED


@pytest.mark.parametrize("pin", ["add=host", "add=npu"])
def test_a_pinned_node_is_not_fused(planned, pin):
    plan = planned(file(ops='"MatMul, Gelu, Add": {types: f}'), pins=[pin])
    assert placed(plan)["add"] == ("Add", pin.partition("=")[2])
    assert "gelu" not in {name for name, (operator, _) in placed(plan).items() if operator == "Gelu"}


def test_a_refused_region_takes_its_fusion_back(planned):
    """What refuses the operator later in a round, such as a limit on regions, undoes it, too."""
    plan = planned(file(ops="Gelu: {types: f}") + "region: {limits: {nodes: 2..}}\n")
    assert [node.name for node in plan.nodes] == ["first", *PARTS, "second"]


def test_a_fusion_may_be_asked_for_as_an_edit(planned):
    plan = planned(file(prepare="fuse-mish"), edits=["fuse-gelu=gelu"], model=MODEL.replace('"": 17', '"": 22'))
    assert placed(plan) == FUSED
    with pytest.raises(DovetailError, match="fuse-gelu at 'second': no form of Gelu"):
        planned(file(), edits=["fuse-gelu=second"], model=MODEL.replace('"": 17', '"": 22'))


def test_an_unknown_fusion_is_named_with_its_line(planned):
    with pytest.raises(DovetailError) as caught:
        planned(file(prepare="fuse-gelo"))
    assert caught.value.message.startswith("inline.yaml:9: unknown fusion 'fuse-gelo' (did you mean 'fuse-gelu'")
    with pytest.raises(DovetailError, match=r"inline.yaml:9: prepare: 'fuse-gelu' is given twice"):
        planned(file(prepare="fuse-gelu, fuse-gelu"))
