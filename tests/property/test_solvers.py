"""What holds for the solvers of any typing problem."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from dovetail import api
from dovetail.ir import verify_model
from dovetail.passes import Context, Pipeline, Request
from dovetail_onnx.opening import open_model
from dovetail_precision.choices import uniform
from dovetail_precision.constraints import candidates
from dovetail_precision.costs import CostTable, MovedBytes, UnitJoins, cost_of
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.problem_builder import build_problem
from dovetail_precision.solvers.energy import INF, Energy, low_side
from dovetail_precision.solvers.fixpoint import solve_fixpoint
from dovetail_precision.solvers.forward import solve_forward
from dovetail_precision.solvers.min_cut import solve_min_cut
from hypothesis import assume, given, note
from hypothesis import strategies as st

from .models import PLAIN, models

SOLVERS = {"fixpoint": solve_fixpoint, "forward": solve_forward, "min-cut": solve_min_cut}
NAMES = tuple(SOLVERS)
COSTS = {"moved bytes": MovedBytes(), "unit joins": UnitJoins()}
BACKENDS = [("test-fp16",), ("cpu-bf16",), ("test-some", "cpu-bf16")]  # the last with two low types
# Many that hand on or promote, so that there is much to choose; bodies, weights with several readers, casts.
KINDS = (*PLAIN, "unary", "binary", "binary", "bias", "matmul", "high", "if", "loop")


# Joins that start for nearly nothing: whatever is large enough goes low by itself.
CHEAP = MovedBytes(CostTable(start=1e-9))


@pytest.fixture(scope="module")
def placed(fp16, tmp_path_factory):
    """The context of a model that is placed, and its typing problem."""
    path = tmp_path_factory.mktemp("placed") / "model.onnx"

    def make(proto, backends=("test-fp16",), **request):
        path.write_bytes(proto.SerializeToString())
        model = open_model(path)
        ctx = Context(Request.of(*backends, **request), plugins=fp16)
        Pipeline.parse("normalize,edge-kinds,place", fp16.registry).run(model, ctx)
        return build_problem(model, ctx)

    return make


def low_and_high(problem, variable):
    """The low and the high format of a variable; equal if it has no choice."""
    found = candidates(problem, variable)
    return found[0].nominal, found[-1].nominal


def cheapest(problem, costs):
    """The least that any choice costs: all of them at once, each part of the cost looked up by the bits it reads."""
    types = {id(variable): low_and_high(problem, variable) for variable in problem.variables}
    # The input of a Cast has the type of what it reads.
    leader = {}
    for chain in def_use_chains(problem):
        for follower in chain.cast_readers:
            if chain.producer is None or types[id(chain.producer)][0] == types[id(chain.producer)][1]:
                types[id(follower)] = (types[id(chain.producer)][1] if chain.producer else chain.present,) * 2
            else:
                leader[id(follower)] = id(chain.producer)
    free = [key for key, (low, high) in types.items() if low != high and key not in leader]
    assume(len(free) <= 14)
    bit = {key: index for index, key in enumerate(free)}
    plans = np.arange(1 << len(free))
    total = np.zeros(len(plans), np.int64)

    def add(variables, price):
        """Add `price`, a function of the types of `variables`."""
        keys = sorted({id(variable) for variable in variables})
        moving = sorted({leader.get(key, key) for key in keys} & bit.keys())
        table = np.zeros(1 << len(moving), np.int64)
        for index, sides in enumerate(itertools.product((0, 1), repeat=len(moving))):
            side = dict(zip(moving, sides))
            table[index] = price({key: types[key][side.get(leader.get(key, key), 0)] for key in keys})
        where = np.zeros(len(plans), np.int64)
        for key in moving:
            where = where * 2 + (plans >> bit[key] & 1)
        np.add(total, table[where], out=total)

    chains = def_use_chains(problem)
    carried = {id(chain.producer) for chain in chains if chain.follows and chain.producer}
    for variable in problem.variables:
        if id(variable) not in carried:
            add([variable], lambda chosen, variable=variable: costs.compute(variable, uniform(chosen[id(variable)])))
    for chain in chains:
        ends = [*chain.readers, chain.producer] if chain.producer else chain.readers

        def price(chosen, chain=chain):
            wanted = {chosen[id(reader)] for reader in chain.readers} | ({chain.present} if chain.kept else set())
            if chain.constant:
                return sum(costs.version(chain.value, kind) for kind in wanted)
            held = chosen[id(chain.producer)] if chain.producer else chain.present
            own = 0
            if chain.follows:  # low if all want it so
                held = chain.follows if wanted == {chain.follows} else chain.present
                own = costs.compute(chain.producer, uniform(held)) if chain.producer else 0
            return own + sum(costs.join(chain.value, held, kind) for kind in wanted - {held})

        add(ends, price)
    return int(total.min())


@pytest.mark.parametrize("costs", [*COSTS.values(), CHEAP], ids=lambda costs: type(costs).__name__)
@given(proto=models(KINDS), keep=st.booleans(), backends=st.sampled_from(BACKENDS))
def test_min_cut_finds_the_cheapest(placed, costs, proto, keep, backends):
    note(onnx.printer.to_text(proto))
    problem = placed(proto, backends, keep_io_types=keep)
    solve_min_cut(problem, costs)
    assert cost_of(problem, costs) == cheapest(problem, costs)


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
@given(proto=models(KINDS), keep=st.booleans())
def test_min_cut_is_never_worse(placed, costs, proto, keep):
    note(onnx.printer.to_text(proto))
    problem = placed(proto, keep_io_types=keep)
    solve_min_cut(problem, costs)
    best = cost_of(problem, costs)
    for name in ("fixpoint", "forward"):
        SOLVERS[name](problem)
        assert best <= cost_of(problem, costs), name


@given(proto=models(KINDS), keep=st.booleans())
def test_no_island_of_fixpoint_saves_joins_by_going_back(placed, proto, keep):
    note(onnx.printer.to_text(proto))
    problem = placed(proto, keep_io_types=keep)
    solve_fixpoint(problem)
    chains, least = def_use_chains(problem), cost_of(problem, UnitJoins())
    for component in components(problem, chains):
        for kind in ("present", "low"):
            for variable in component:
                variable.chosen = uniform(getattr(variable, kind))
            for chain in chains:
                chain.type_cast_readers()
                chain.adopt_type_of_readers()
            assert cost_of(problem, UnitJoins()) >= least
    assert cost_of(problem, UnitJoins()) == least


def components(problem, chains):
    """Low variables that may choose, in sets that share values."""
    cast_readers = {id(variable) for chain in chains for variable in chain.cast_readers}
    free = {}
    for variable in problem.variables:
        low, high = low_and_high(problem, variable)
        if low is not high and variable.format is low and id(variable) not in cast_readers:
            free[id(variable)] = variable
    groups = [{key} for key in free]
    for chain in chains:
        ends = {id(end) for end in (chain.producer, *chain.readers) if id(end) in free}
        if chain.constant or not ends:
            continue
        merged = set().union(*(group for group in groups if group & ends))
        groups = [group for group in groups if not group & ends] + [merged]
    return [[free[key] for key in group] for group in groups]


@pytest.mark.parametrize("name", NAMES)
@given(proto=models(KINDS))
def test_a_join_of_the_plan_is_a_join_of_the_cost(fp16, tmp_path_factory, name, proto):
    path = tmp_path_factory.getbasetemp() / "joins.onnx"
    path.write_bytes(proto.SerializeToString())
    model, ctx = open_model(path), Context(Request.of("test-fp16", solver=name), plugins=fp16)
    Pipeline.parse("normalize,edge-kinds,place,assign-types", fp16.registry).run(model, ctx)
    problem = build_problem(model, ctx)
    SOLVERS[name](problem)
    assert cost_of(problem, UnitJoins()) == len(ctx.round.joins)


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("name", NAMES)
@given(proto=models(KINDS), flag=st.booleans())
def test_the_result_computes_what_the_original_does(fp16, tmp_path_factory, name, proto, flag):
    note(onnx.printer.to_text(proto))
    path = tmp_path_factory.getbasetemp() / "computed.onnx"
    path.write_bytes(proto.SerializeToString())
    result = api.compile(path, ["test-fp16"], solver=name, plugins=fp16)
    verify_model(result.model)
    generator = np.random.default_rng(0)
    feeds = {key: generator.uniform(-1, 1, (2, 4, 4)).astype(np.float32) for key in ("x0", "x1")}
    feeds["flag"] = np.asarray(flag)
    ours = result.run(feeds)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for key, expected in zip(names, session.run(names, feeds), strict=True):
        error = np.abs(ours[key].astype(np.float64) - expected).max()
        assert error <= 0.1 * max(1.0, np.abs(expected).max()), key


@st.composite
def energies(draw, size=8):
    """Biases, and costs of differing between pairs, some of them infinite one way."""
    count = draw(st.integers(1, size))
    bias = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    vertex = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(vertex, vertex, st.sampled_from([1, 2, 3, 5, 8, INF])), max_size=3 * count))
    return bias, [(one, other, cost) for one, other, cost in pairs if one != other]


def energy_of(bias, pairs, low):
    own = sum(value for value, is_low in zip(bias, low) if not is_low)
    return own + sum(cost for one, other, cost in pairs if low[one] and not low[other])


@given(energies())
def test_energies_are_minimized(problem):
    bias, pairs = problem
    best = min(energy_of(bias, pairs, low) for low in itertools.product((False, True), repeat=len(bias)))
    energy = Energy()
    for value in bias:
        energy.add(value)
    for pair in pairs:
        energy.add_pairwise(*pair)
    bias_before, caps = list(energy.bias), [dict(caps) for caps in energy.caps]
    low = energy.minimize()
    assert energy_of(bias, pairs, low) == best
    # Without elimination the same, so that ties are broken alike: whatever may be high is.
    whole = set(low_side(range(len(bias)), bias_before, caps))
    assert [vertex in whole for vertex in range(len(bias))] == low
