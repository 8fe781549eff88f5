"""A pass refuses a placement, and everything from placement on is decided again, as often as that happens."""

import gc
from dataclasses import dataclass

import dovetail
import pytest
from dovetail import Pass
from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.passes import Context, Pipeline, Request
from dovetail.planning import get_placement
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_text

MODEL = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x, bool c) => (float[4] y) {
  [before] a = Relu (x)
  [choice] z = If (c) <
    then_branch = t () => (float[4] t0) { [inner] t0 = Tanh (a) },
    else_branch = e () => (float[4] e0) { [other] e0 = Add (a, a) }
  >
  [after] y = Neg (z)
}"""


@dataclass(frozen=True)
class Refusing(Pass):
    """Refuses nodes on gpu-fp16, one more in each round.

    Attributes:
        nodes: Their names, separated by spaces.
    """

    name = "refusing"
    stage = "type"
    after = ("assign-types",)
    nodes: str = ""

    def run(self, model, ctx):
        for wanted in self.nodes.split():
            node = next(node for node in model.nodes() if node.name == wanted)
            if get_placement(node).backend == "gpu-fp16":
                ctx.refuse(node, "gpu-fp16", "it is not to be had", rule="test")
                break
        return False


class LateRefusal(Refusing):
    """The same when the graph has been changed already."""

    name = "late-refusal"
    stage = "outline"
    after = ()

    def run(self, model, ctx):
        model.touch()
        return super().run(model, ctx)


class Insatiable(Refusing):
    """Refuses a format of every node, in every round another one."""

    name = "insatiable"

    def run(self, model, ctx):
        ctx.refuse(next(iter(model.graph)), "gpu-fp16", "never enough", format=f"round-{ctx.refusals.rounds}")
        return False


def model():
    return open_text(MODEL, "model")


def where(plan):
    return {node.name: node.backend for node in plan.nodes}


@pytest.mark.parametrize("pass_", [Refusing, LateRefusal])
def test_a_refused_node_is_placed_elsewhere_with_the_reason(pass_):
    result = dovetail.compile(model(), "gpu-fp16", passes=[pass_("after before")], try_engines=False)
    assert where(result.plan) == {
        "before": "host", "choice": "gpu-fp16", "inner": "gpu-fp16", "other": "gpu-fp16", "after": "host",
    }  # fmt: skip
    said = [(remark.node, remark.pass_, remark.why) for remark in result.plan.remarks if remark.rule == "test"]
    assert said == [(name, pass_.name, "not on gpu-fp16: it is not to be had") for name in ("after", "before")]


@pytest.mark.parametrize("pass_", [Refusing, LateRefusal])
def test_a_node_of_a_body_takes_the_node_that_holds_it_along(pass_):
    result = dovetail.compile(model(), "gpu-fp16", passes=[pass_("inner")], try_engines=False)
    assert {name for name, backend in where(result.plan).items() if backend == "host"} == {"choice", "inner", "other"}
    assert any(
        remark.node == "choice" and "'inner' in its body cannot go there: it is not to be had" in remark.why
        for remark in result.plan.remarks
    )


def test_remarks_of_earlier_rounds_are_gone():
    """What was decided and dropped again is not said twice."""
    once = dovetail.plan(model(), "gpu-fp16")
    again = dovetail.plan(model(), "gpu-fp16", passes=[Refusing("after")])
    kept = [remark for remark in again.remarks if remark.node != "after"]
    assert kept == [remark for remark in once.remarks if remark.node != "after"]


def test_a_pinned_node_that_is_refused_is_an_error():
    with pytest.raises(DovetailError, match="pin 'after=gpu-fp16': gpu-fp16 refuses 'after': it is not to be had"):
        dovetail.plan(model(), "gpu-fp16", pins="after=gpu-fp16", passes=[Refusing("after")])


def test_a_backend_that_refuses_without_an_end_is_left_out():
    plan = dovetail.plan(model(), "gpu-fp16", passes=[Insatiable()])
    assert set(where(plan).values()) == {"host"}
    assert any(remark.rule == "given-up" and "gpu-fp16: it was left out" in remark.why for remark in plan.remarks)


def test_a_pipeline_decides_again_by_itself():
    ctx = Context(Request.of("gpu-fp16"), plugins=load_plugins())
    opened = model()
    pipeline = Pipeline.parse("normalize,edge-kinds,place,assign-types", ctx.registry)
    pipeline.steps.append(Refusing("after before"))
    result = pipeline.run(opened, ctx)
    assert [step.name for step in result.passes].count("place") == 3
    assert get_placement(opened.graph[-1]).backend == "host"


def test_a_pipeline_that_has_changed_the_graph_decides_again_on_the_graph_as_it_was():
    ctx = Context(Request.of("gpu-fp16"), plugins=load_plugins())
    opened = model()
    pipeline = Pipeline.parse("normalize,edge-kinds,place,assign-types,join", ctx.registry)
    pipeline.steps.append(LateRefusal("after"))
    result = pipeline.run(opened, ctx)
    assert [step.name for step in result.passes].count("place") == 2
    compiled = dovetail.compile(model(), "gpu-fp16", pins="after=host", try_engines=False)
    assert [node.op_type for node in opened.graph] == [node.op_type for node in compiled.model.graph]


def test_a_pipeline_that_places_nothing_cannot_decide_again():
    ctx = Context(Request.of("gpu-fp16"), plugins=load_plugins())
    opened = model()
    Pipeline.parse("normalize,edge-kinds,place,assign-types", ctx.registry).run(opened, ctx)
    with pytest.raises(DovetailError, match="pass 'late-refusal' refuses a placement") as raised:
        Pipeline([LateRefusal("after")]).run(opened, ctx)
    assert "compile the model" in raised.value.hint


def test_deciding_again_on_a_small_model_does_not_visit_every_object_of_the_process():
    """A full collection takes seconds in a program with many objects, and explanations decide dozens of times."""
    full = []

    def watch(phase, info):
        if phase == "start" and info["generation"] == 2:
            full.append(phase)

    driver = Driver(model(), Context(Request.of("gpu-fp16"), plugins=load_plugins()))
    gc.callbacks.append(watch)
    try:
        for _ in range(20):
            driver.decide()
    finally:
        gc.callbacks.remove(watch)
    assert len(full) < 5  # the collector itself may start some
