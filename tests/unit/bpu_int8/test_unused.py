"""A model of which nothing can be on the BPU."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,8,16,16] x) => (float[1,8,16,16] y) { [act] a = Relu (x) [erf] y = Erf (a) }"""


def test_compiling_for_the_bpu_alone_is_an_error_with_what_is_missing_and_a_way_out():
    with pytest.raises(
        DovetailError, match="no node of the model can be on bpu-int8: a region there needs a Conv"
    ) as said:
        dovetail.compile(open_text(TEXT, "m"), "bpu-int8")
    assert "'erf' is not on bpu-int8: bpu-int8 does not list Erf" in said.value.message
    assert "--backend cpu-bf16" in said.value.hint


@pytest.mark.parametrize("backends", [["bpu-int8"], ["bpu-int8", "cpu-bf16"]])
def test_a_plan_says_so_in_a_remark(backends):
    plan = dovetail.plan(open_text(TEXT, "m"), backends)
    (said,) = (remark for remark in plan.remarks if remark.rule == "no-bpu-operator")
    assert said.why == (
        "no node of the model is on bpu-int8: it takes none of the model's Conv, ConvTranspose, Gemm, MatMul"
    )


def test_beside_another_backend_it_compiles():
    compiled = dovetail.compile(open_text(TEXT, "m"), ["bpu-int8", "cpu-bf16"])
    assert "bpu-int8" not in compiled.plan.summary["coverage"]
