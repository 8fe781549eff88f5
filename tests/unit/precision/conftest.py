"""Typing problems of small models."""

import pytest
from dovetail.passes import Context, Pipeline, Request
from dovetail_onnx.opening import open_text
from dovetail_precision.assign_types import solve
from dovetail_precision.problem_builder import build_problem

HEAD = '<ir_version: 10, opset_import: ["": 22, "com.microsoft": 1]>\n'


@pytest.fixture
def placed(fp16):
    """`placed(text, **request)`: the typing problem of a model on `test-fp16`."""

    def make(text, backend="test-fp16", **request):
        model = open_text(HEAD + text, "test") if isinstance(text, str) else text
        ctx = Context(Request.of(backend, **request), plugins=fp16)
        Pipeline.parse("normalize,edge-kinds,place", fp16.registry).run(model, ctx)
        return build_problem(model, ctx)

    return make


@pytest.fixture
def solved(placed, fp16):
    """`solved(name, text, **request)`: the solved problem and the type of every node, by its first output."""

    def make(name, text, **request):
        problem = placed(text, solver=name, **request)
        solve(problem, name, fp16.registry)
        return problem, {v.node.outputs[0].name: str(v.format) for v in reversed(problem.variables)}

    return make


@pytest.fixture
def typed(fp16):
    """`typed(name, text, **request)`: the remarks of typing, by node, and the joins."""

    def make(name, text, **request):
        model = open_text(HEAD + text, "test")
        ctx = Context(Request.of("test-fp16", solver=name, **request), plugins=fp16)
        Pipeline.parse("normalize,edge-kinds,place,assign-types", fp16.registry).run(model, ctx)
        remarks = {remark.node: remark for remark in ctx.remarks if remark.pass_ == "assign-types"}
        return remarks, [(join.value, str(join.wanted)) for join in ctx.round.joins]

    return make
