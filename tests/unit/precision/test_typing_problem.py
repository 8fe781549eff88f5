"""Typing problems are plain data: they are made by hand here, without a model."""

import pytest
from dovetail.ir import Format
from dovetail_precision.choices import Choices, FormatChoice, SharedFormat, float_choices, uniform
from dovetail_precision.costs import UnitJoins, cost_of
from dovetail_precision.problem import FormatReasons, FormatVariable, TypingProblem, Value
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward
from dovetail_precision.solvers.min_cut import solve_min_cut

INT8, INT16 = Format.of("int8[symmetric]"), Format.of("int16[symmetric]")
CHANNELS, SUMS = Format.of("int8[symmetric,axis=0]"), Format.of("int32[symmetric,axis=0]")
FLOAT16, FLOAT32 = Format.of("float16"), Format.of("float32")
FLOATS = float_choices(frozenset({FLOAT16, FLOAT32}))
PRODUCT = FormatChoice.of({"X": INT8, "W": CHANNELS, "B": SUMS, "Y": INT8}, "Y")
SOLVERS = {"forward": solve_forward, "fixpoint": solve_fixpoint, "min-cut": solve_min_cut}


def variable(name, choices, inputs, outputs, policy="pass"):
    return FormatVariable(name, choices, inputs, outputs, policy, low=FLOAT16)


@pytest.fixture
def chain():
    """A product in int8 only, data movement in any of three formats, and a product in floats."""
    x, a, b, y = (Value(name) for name in "xaby")
    w, v = Value("w", constant=True), Value("v", constant=True)
    y.kept = True
    moving = Choices([uniform(INT8), uniform(FLOAT16), uniform(FLOAT32)])
    return TypingProblem(
        [
            variable("conv", Choices([PRODUCT]), [("X", x), ("W", w)], [("Y", a)], "active"),
            variable("pool", moving, [("X", a)], [("Y", b)], "passive"),
            variable("dense", FLOATS, [("A", b), ("B", v)], [("Y", y)], "lower"),
        ]
    )


def formats(problem):
    return {variable.node: str(variable.format) for variable in problem.variables}


def test_forward_hands_on_what_arrives(chain):
    solve_forward(chain)
    assert formats(chain) == {"conv": "int8[symmetric]", "pool": "int8[symmetric]", "dense": "float16"}


def test_every_port_has_its_format(chain):
    solve_forward(chain)
    conv = chain.variables[0].chosen
    assert [conv.format_of(port) for port in "XWBY"] == [INT8, CHANNELS, SUMS, INT8]


@pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)
def test_all_solvers_find_the_fewest_conversions(chain, solve):
    """x to int8, one conversion between conv and dense wherever it stands, and y back to float32."""
    solve(chain)
    assert cost_of(chain, UnitJoins()) == 3
    assert str(chain.variables[0].format) == "int8[symmetric]"


class Priced(UnitJoins):
    """Data movement is free in int8, and dear in floats."""

    def compute(self, variable, choice):
        return {INT8: 0, FLOAT16: 5, FLOAT32: 9}.get(choice.nominal, 0)


def test_min_cut_weighs_three_formats(chain):
    chain.cost_model = Priced
    solve_min_cut(chain)
    assert formats(chain)["pool"] == "int8[symmetric]"
    chain.variables[1].policy = "high"
    solve_min_cut(chain)
    assert formats(chain)["pool"] == "float32"


def test_a_value_is_converted_once_per_format(chain):
    """Two more readers in float16 cost nothing, one in int16 costs one conversion."""
    a = chain.variables[0].outputs[0][1]
    solve_forward(chain)
    alone = cost_of(chain, UnitJoins())
    for name, choices, more in (("one", FLOATS, 1), ("two", FLOATS, 1), ("three", Choices([uniform(INT16)]), 2)):
        policy = "active" if name == "three" else "lower"
        chain.variables.append(variable(name, choices, [("X", a)], [("Y", Value(name))], policy))
        chain = TypingProblem(chain.variables)
        solve_forward(chain)
        assert cost_of(chain, UnitJoins()) == alone + more


def test_a_weight_has_one_version_per_format():
    class Versions(UnitJoins):
        def version(self, value, format_):
            return 100

    w = Value("w", constant=True)
    problem = TypingProblem(
        [
            variable("low", Choices([PRODUCT]), [("X", Value("x")), ("W", w)], [("Y", Value("a"))], "active"),
            variable("too", Choices([PRODUCT]), [("X", Value("u")), ("W", w)], [("Y", Value("b"))], "active"),
            variable("high", FLOATS, [("A", Value("z")), ("B", w)], [("Y", Value("c"))], "fp32"),
        ]
    )
    solve_forward(problem)
    assert cost_of(problem, Versions()) == 2 * 100 + 2  # x and u to int8


def test_reasons_are_asked_on_demand():
    class Leaves(FormatReasons):
        def of_values(self, variable, format_):
            return "its output leaves float16" if format_ is FLOAT16 else ""

    problem = TypingProblem(
        [variable("dense", FLOATS, [("A", Value("x"))], [("Y", Value("y"))], "lower")], reasons=Leaves()
    )
    for solve in SOLVERS.values():
        solve(problem)
        assert formats(problem) == {"dense": "float32"}


def test_choices_that_give_all_ports_one_format_are_one_object():
    assert FormatChoice.of({"X": INT8, "Y": INT8}, "Y") is uniform(INT8)
    assert FLOATS is float_choices(frozenset({FLOAT32, FLOAT16}))
    assert PRODUCT in Choices([PRODUCT]) and uniform(INT8) not in Choices([PRODUCT])
    assert PRODUCT.quantized and not uniform(FLOAT16).quantized


class SlowRequantization(UnitJoins):
    """A conversion between two scales costs as much as five others."""

    def join(self, value, held, wanted):
        return 5 if held is wanted else 1


@pytest.mark.parametrize(("scales", "expected", "cost"), [("one", INT8, 2), ("two", FLOAT16, 4)])
def test_another_scale_in_the_same_format_has_a_price(scales, expected, cost):
    x, a, b, y = (Value(name) for name in "xaby")
    y.kept = True
    first, second = SharedFormat(INT8), SharedFormat(INT8)
    middle = second if scales == "two" else first
    only, any_ = Choices([uniform(INT8)]), Choices([uniform(INT8), uniform(FLOAT16)])
    problem = TypingProblem(
        [
            variable("one", only, [("X", x)], [("Y", a)], "active"),
            variable("sum", any_, [("X", a)], [("Y", b)], ""),
            variable("two", only, [("X", b)], [("Y", y)], "active"),
        ],
        cost_model=SlowRequantization,
    )
    for one, held in zip(problem.variables, (first, middle, first), strict=True):
        one.groups = {("X", INT8): held, ("Y", INT8): held}
    solve_min_cut(problem)
    assert (problem.variables[1].format, cost_of(problem)) == (expected, cost)


def test_a_conversion_of_the_source_model_costs_nothing():
    x, y = Value("x", adopted=frozenset({INT8})), Value("y")
    problem = TypingProblem([variable("one", Choices([uniform(INT8)]), [("X", x)], [("Y", y)], "active")])
    solve_min_cut(problem)
    assert cost_of(problem) == 0
