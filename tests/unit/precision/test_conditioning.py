"""No solver gives a variable a type that something speaks against, or lets it read a value that does not fit."""

from pathlib import Path

import pytest
from dovetail.ir import Format
from dovetail.passes import Context, Pipeline, Request
from dovetail_onnx.opening import open_text
from dovetail_precision.assign_types import solve
from dovetail_precision.problem_builder import build_problem
from dovetail_precision.ranges.overflow import OverflowAnalysis

TEXTS = sorted((Path(__file__).parents[2] / "filecheck" / "assign-types").glob("*.onnxtxt"))
INTEGERS = """<ir_version: 10, opset_import: ["": 22]>
g (uint8[4,64] q, int8[64,8] w, int32[4,8] any, int8[4,8] small) => (float[4,8] y, float[4,8] z, float[4,8] t)
<float[8,8] v, float scale = {0.001}> {
  a = MatMulInteger (q, w)  b = Cast <to = 1> (a)  c = Neg (b)  d = Mul (c, scale)  y = MatMul (d, v)
  e = Cast <to = 1> (any)  f = Add (e, d)  z = MatMul (f, v)
  h = Cast <to = 1> (small)  i = Sub (h, d)  t = MatMul (i, v)
}"""


def problem_of(fp16, text, backend, name):
    model = open_text(text, "test")
    ctx = Context(Request.of(backend, solver=name), plugins=fp16)
    Pipeline.parse("normalize,edge-kinds,place", fp16.registry).run(model, ctx)
    problem = build_problem(model, ctx)
    solve(problem, name, fp16.registry)
    return problem, ctx.analysis(OverflowAnalysis, model)


@pytest.mark.generated
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", ["cpu-bf16", "gpu-fp16:policies=lean"])
@pytest.mark.parametrize("name", ["fixpoint", "forward", "min-cut"])
def test_nothing_has_a_type_that_something_speaks_against(fp16, path, backend, name):
    problem, _ = problem_of(fp16, path.read_text(), backend, name)
    free = [variable for variable in problem.variables if variable.policy not in ("", "keep", "pinned", "recurse")]
    assert [v.node.name for v in free if problem.obstacle(v, v.format)] == []


@pytest.mark.parametrize("name", ["fixpoint", "forward", "min-cut"])
def test_no_low_variable_reads_a_value_that_does_not_fit(fp16, name):
    problem, evidence = problem_of(fp16, INTEGERS, "gpu-fp16:policies=lean", name)
    low = [variable for variable in problem.variables if variable.format is Format.of("float16")]
    made = {value.name for variable in low for _, value in variable.outputs}
    assert ("y" in made, "t" in made, "z" in made) == (True, True, False)
    read = {value.name for variable in low for _, value in (*variable.inputs, *variable.outputs)}
    assert read.isdisjoint({"b", "c", "e", "f"})
    assert not any(evidence.overflow(variable) for variable in low)
