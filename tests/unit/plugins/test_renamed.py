"""Names of the release before go on working, and say what they are called now."""

import dovetail
import pytest
from dovetail.passes import Pass, Pipeline
from dovetail_onnx.opening import open_text

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2] x) => (float[2] y) { y = Relu (x) }"""


@pytest.mark.parametrize(
    ("old", "new"), [("normalise", "normalize"), ("quantise", "quantize"), ("equalise", "equalize")]
)
def test_pipelines_with_old_names_of_passes_run(old, new):
    registry = dovetail.load_plugins().registry
    with pytest.warns(FutureWarning, match=f"pass '{old}' is called '{new}' now"):
        pipeline = Pipeline.parse(f"{old},dead-code", registry)
    assert pipeline.names() == [new, "dead-code"]
    assert old not in list(registry.pass_)


def test_a_pass_of_an_old_stage_runs_in_the_one_of_today():
    with pytest.warns(FutureWarning, match="stage 'analyse' is called 'analyze' now"):

        class Count(Pass):
            name = "count"
            stage = "analyse"
            after = ("normalise",)

            def run(self, model, ctx):
                ctx.remark("analysis", "", "count", f"{model.node_count()} nodes")
                return False

    with pytest.warns(FutureWarning, match="'normalise' is called 'normalize' now"):
        plan = dovetail.plan(open_text(MODEL, "m"), "host", passes=[Count()])
    assert "1 nodes" in [remark.why for remark in plan.remarks]


def test_refinements_of_old_names():
    from dovetail_quantize.refining.steps import parse_steps

    assert parse_steps("bias,equalise") == parse_steps("equalize,bias") == ("equalize", "bias")
