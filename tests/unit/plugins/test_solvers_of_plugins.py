"""A solver of another distribution is used by its name, and named where it fails."""

import dovetail
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text
from dovetail_precision.choices import uniform

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[4,8] x) => (float[4,8] y) <float[8,8] w> { [first] a = MatMul (x, w)  [second] y = Tanh (a) }"""


def present(problem):
    for variable in problem.variables:
        variable.chosen = uniform(variable.present)
        variable.why = f"{variable.format}, because it always was"


def forgetful(problem):
    for variable in problem.variables[1:]:
        variable.chosen = uniform(variable.present)


def inventive(problem):
    from dovetail.ir import Format

    for variable in problem.variables:
        variable.chosen = uniform(Format.of("int8[symmetric]"))


def textual(problem):
    for variable in problem.variables:
        variable.chosen = "float32"


def broken(problem):
    raise KeyError("a format")


def leaving(problem):
    raise SystemExit(3)


@pytest.fixture
def plan():
    def make(solver):
        plugins = dovetail.load_plugins()
        with plugins.registry.on_behalf_of("dovetail-other"):
            plugins.registry.solver(solver, f"{__name__}:{solver}")
        return dovetail.plan(open_text(TEXT, "model"), "cpu-bf16", solver=solver, plugins=plugins)

    return make


def test_it_decides(plan):
    found = plan("present")
    assert {str(node.precision) for node in found.nodes} == {"float32"} and not found.joins
    assert "float32, because it always was" in {remark.why for remark in found.remarks}


@pytest.mark.parametrize(
    ("solver", "says"),
    [
        ("forgetful", "chose nothing for 'first' (MatMul), which may have float16, bfloat16, float32"),
        ("inventive", "chose int8[symmetric] for 'first' (MatMul), which may have float16, bfloat16, float32"),
        ("textual", "chose 'float32' for 'first' (MatMul), which may have float16, bfloat16, float32"),
        ("broken", "failed: KeyError: 'a format'"),
        ("leaving", "failed: SystemExit: 3"),
    ],
)
def test_its_mistakes_name_it_and_its_distribution(plan, solver, says):
    with pytest.raises(DovetailError) as caught:
        plan(solver)
    assert caught.value.message.startswith(f"solver '{solver}' of dovetail-other {says}")
    assert caught.value.hint
