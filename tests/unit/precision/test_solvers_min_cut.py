"""`min-cut`: the cheapest plan, what it says, and what it refuses."""

import random
import subprocess
import sys

import pytest
from dovetail.errors import DovetailError
from dovetail.ir import Model
from dovetail_precision.costs import MovedBytes, UnitJoins, cost_of
from dovetail_precision.solvers.energy import INF, Energy, low_side
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward
from dovetail_precision.solvers.min_cut import solve_min_cut
from onnx import TensorProto, helper

LOW, HIGH = "float16", "float32"
HEAD = "g (float[4,8] x) => (float[4,8] y) <float[8,8] w, float[8,8] u> "

CASES = {
    "what two products read is handed on low": (
        HEAD + "{ a = Neg (x)  b = MatMul (a, w)  c = MatMul (a, u)  y = Add (b, c) }",
        {"a": LOW, "b": LOW, "c": LOW, "y": LOW},
    ),
    "policies are rules, whatever they cost": (
        HEAD + "{ a = MatMul (x, w)  b = Exp (a)  y = MatMul (b, u) }",
        {"a": LOW, "b": HIGH, "y": LOW},
    ),
    "between high neighbors nothing goes low": (
        HEAD + "{ a = Exp (x)  b = Neg (a)  y = Log (b) }",
        {"b": HIGH},
    ),
    "where nothing is gained it stays high": (
        HEAD + "{ a = Neg (x)  y = Tanh (a) }",
        {"a": HIGH, "y": HIGH},
    ),
    "a branch": (
        """g (float[4,8] x, bool c) => (float[4,8] y) <float[8,8] w> { a = MatMul (x, w)  y = If (c) <
             then_branch = t () => (float[4,8] p) { p = MatMul (a, w) },
             else_branch = e () => (float[4,8] q) { r = Neg (a)  q = Exp (r) }> }""",
        {"a": LOW, "p": LOW, "q": HIGH},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_types(solved, text, expected):
    _, types = solved("min-cut", text)
    assert {name: types[name] for name in expected} == expected


def test_large_values_go_low_between_high_ones(placed):
    """Five operators over half the bytes are worth two joins, if there are bytes enough."""
    text = (
        "g (float[SIZE,8] x) => (float[SIZE,8] y) { a = Neg (x)  b = Abs (a)  c = Neg (b)  d = Abs (c)  y = Neg (d) }"
    )
    for size, expected in ((8, HIGH), (1024, LOW)):
        problem = placed(text.replace("SIZE", str(size)))
        solve_min_cut(problem)
        assert {str(variable.format) for variable in problem.variables} == {expected}


def test_a_pin_holds(solved):
    _, types = solved(
        "min-cut", HEAD + "{ a = MatMul (x, w)  [b] b = Neg (a)  y = MatMul (b, u) }", pins=("b=test-fp16/float32",)
    )
    assert types == {"a": LOW, "b": HIGH, "y": LOW}


def test_remarks_name_what_it_goes_along_with(typed):
    remarks, _ = typed("min-cut", HEAD + "{ [m] a = MatMul (x, w)  [n] b = Neg (a)  [o] y = MatMul (b, u) }")
    assert remarks["n"].because == ("m", "o")
    assert remarks["n"].why == "float16, the cheapest type given its neighbors"


class Wrong(UnitJoins):
    def __init__(self, compute=0, join=lambda held, wanted: 1):
        self._compute, self._join = compute, join

    def compute(self, variable, kind):
        return self._compute

    def join(self, value, held, wanted):
        return self._join(held, wanted)


@pytest.mark.parametrize("cost", [-1, 0.5, float("inf"), None])
def test_costs_are_integers_that_are_not_negative(placed, cost):
    with pytest.raises(DovetailError, match="the cost model returned"):
        solve_min_cut(placed(HEAD + "{ y = Neg (x) }"), Wrong(cost))


def test_capacities_are_scaled_into_what_scipy_takes():
    """It wraps silently: 2^40 would be 0."""
    bias, caps = [2**40, -(2**41), 2**39], [{1: 2**42}, {0: 0, 2: 1}, {1: 3}]
    assert low_side([0, 1, 2], bias, caps) == [2]
    assert low_side([0, 1, 2], [2**40, -(2**39), 2**39], caps) == [0, 1, 2]


@pytest.mark.parametrize("largest", [64, 1000, 2**30 - 1])
def test_scaling_loses_no_more_than_its_rounding(largest):
    generator = random.Random(0)
    for _ in range(20):
        bias = [generator.randint(-999, 999) for _ in range(6)]
        caps = [{o: generator.choice([0, 5, 300, INF]) for o in range(6) if o != v} for v in range(6)]
        low = set(low_side(range(6), bias, caps, largest))

        def cost(low, bias=bias, caps=caps):
            cut = sum(cost for v in low for o, cost in caps[v].items() if o not in low and cost)
            return cut + sum(value for v, value in enumerate(bias) if v not in low)

        best = min(cost({v for v in range(6) if plan >> v & 1}) for plan in range(64))
        assert cost(low) <= best + (1 + 2 * 6 * 999 // largest) * 36


def test_a_chain_needs_no_flow(monkeypatch):
    monkeypatch.setattr("dovetail_precision.solvers.energy.low_side", None)
    energy = Energy()
    vertices = [energy.add(bias) for bias in (5, -1, -1, 3, -9, 1)]
    for one, other in zip(vertices, vertices[1:]):
        energy.add_pairwise(one, other, 3)
        energy.add_pairwise(other, one, 3)
    assert energy.minimize() == [True, True, True, True, False, False]


def test_scipy_is_imported_for_min_cut_only():
    code = "import sys, dovetail_precision.solvers.min_cut; print({'scipy', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_without_scipy_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(DovetailError, match="needs SciPy"):
        low_side([0], [1], [{}])


def test_inputs_that_need_not_keep_their_types_are_free(placed):
    problem = placed("g (float[4,8] x) => (float[4,8] y) { a = Neg (x)  y = Tanh (a) }", keep_io_types=False)
    solve_min_cut(problem)
    assert cost_of(problem, UnitJoins()) == 0
    assert {str(variable.format) for variable in problem.variables} == {LOW}


def test_a_state_that_is_read_low_is_computed_low(placed):
    """Its other reader wants it high, one join either way; but given out high it would have to be converted again."""
    problem = placed(
        """g (float[4,8] past) => (float[4,8] y, float[4,8] present) <float[8,8] w> {
             a = MatMul (past, w)  present = Neg (a)  y = Exp (present) }""",
        keep_io_types=False,
    )
    solve_min_cut(problem, UnitJoins())
    types = {variable.node.outputs[0].name: str(variable.format) for variable in problem.variables}
    assert types == {"a": LOW, "present": LOW, "y": HIGH}
    assert cost_of(problem, UnitJoins()) == 1


@pytest.mark.slow
def test_twenty_thousand_nodes(placed):
    generator = random.Random(0)
    nodes, values = [], ["x"]
    for index in range(20_000):
        operator = generator.choice(["MatMul", "Softmax", "Relu", "Tanh", "Neg", "Add", "Add", "Mul"])
        inputs = [generator.choice(values[-10:]) for _ in range(2)]
        count = 2 if operator in ("Add", "Mul", "MatMul") else 1
        nodes.append(helper.make_node(operator, inputs[:count], [f"v{index}"], f"n{index}"))
        values.append(f"v{index}")
    read = {name for node in nodes for name in node.input}
    borders = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in values if name not in read]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8])], borders)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    problem = placed(Model(ir_of(proto)))
    costs = MovedBytes()
    paid = {}
    for name, solve in (("min-cut", solve_min_cut), ("fixpoint", solve_fixpoint), ("forward", solve_forward)):
        solve(problem)
        paid[name] = cost_of(problem, costs)
    assert paid["min-cut"] < min(paid["fixpoint"], paid["forward"])


def ir_of(proto):
    import onnx_ir as ir

    return ir.from_proto(proto)
