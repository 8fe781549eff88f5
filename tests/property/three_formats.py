"""Random typing problems with three formats, and their exact minimum by integer programming."""

import random

import numpy as np
from dovetail.ir.formats import Format
from dovetail_precision.choices import Choice, Choices, uniform
from dovetail_precision.constraints import candidates
from dovetail_precision.costs import UnitJoins
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.problem import TypingProblem
from dovetail_precision.variable import Value, Variable

INT8, CHANNELS = Format.of("int8[symmetric]"), Format.of("int8[symmetric,axis=0]")
FLOAT16, FLOAT32 = Format.of("float16"), Format.of("float32")
FLOATS = [uniform(FLOAT16), uniform(FLOAT32)]
PRODUCT = Choice.of({"X": INT8, "W": CHANNELS, "Y": INT8}, "Y")

KINDS = {
    # policy, choices, whether it has weights, and how often
    "product in any format": ("", [PRODUCT, *FLOATS], True, 4),
    "product in integers": ("active", [PRODUCT], True, 1),
    "product in floats": ("", FLOATS, True, 2),
    "element by element": ("pass", [uniform(INT8), *FLOATS], False, 6),
    "element by element, in floats": ("pass", FLOATS, False, 3),
    "sensitive": ("fp32", FLOATS, False, 1),
}
WIDTHS = {INT8: 1, CHANNELS: 1, FLOAT16: 2, FLOAT32: 4}


class RandomPrices(UnitJoins):
    """Time in proportion to bytes, times a factor per node and format; conversions start for a fixed price."""

    def __init__(self, generator, start):
        self._generator = generator
        self._start = start
        self._known = {}

    def size(self, value):
        return self._known.setdefault(id(value), (self._generator.choice([16, 64, 256, 1024, 4096]), value))[0]

    def compute(self, variable, choice):
        ports = (*variable.inputs, *variable.outputs)
        moved = sum(self.size(value) * WIDTHS[choice.format_of(port)] for port, value in ports)
        key = id(variable), choice
        return int(moved * self._known.setdefault(key, (self._generator.uniform(0.2, 1.2), variable))[0])

    def join(self, value, held, wanted):
        return self._start + self.size(value) * (WIDTHS[held] + WIDTHS[wanted]) // 4

    def version(self, value, format_):
        return self.size(value) * WIDTHS[format_] // 4


def random_problem(seed, nodes=200):
    """A graph of that many nodes: each reads one or two of the last values, so that some are read often."""
    generator = random.Random(seed)
    prices = RandomPrices(generator, generator.choice([0, 50, 500, 2000]))
    values, variables = [Value("x")], []
    kinds = generator.choices(list(KINDS), [often for *_, often in KINDS.values()], k=nodes)
    reach = generator.choice([2, 6, 20])
    weights = [Value(f"w{index}", constant=True) for index in range(nodes // 4 + 1)]
    for index, kind in enumerate(kinds):
        policy, choices, has_weights, _ = KINDS[kind]
        inputs = [("X", generator.choice(values[-reach:]))]
        if has_weights:
            inputs.append(("W", generator.choice(weights)))
        elif generator.random() < 0.5:
            inputs.append(("Z", generator.choice(values[-reach:])))
        value = Value(f"v{index}")
        variables.append(Variable(f"n{index}", Choices(choices), inputs, [("Y", value)], policy, low=FLOAT16))
        values.append(value)
    read = {id(value) for variable in variables for _, value in variable.inputs}
    for value in values:
        value.kept = id(value) not in read or generator.random() < 0.05
    return TypingProblem(variables, cost_model=lambda: prices)


def solve_all_high(problem):
    """Everything in the last candidate, which is float32 where there is one."""
    for variable in problem.variables:
        variable.chosen = candidates(problem, variable)[-1]


def least(problem):
    """The minimum of `cost_of(problem)` over all choices, as an integer program."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    costs, integral, lower, rows = [], [], [], []

    def column(cost, whole=False):
        costs.append(cost)
        integral.append(whole)
        return len(costs) - 1

    def at_least(terms, bound):
        rows.append(terms)
        lower.append(bound)

    taken = {}
    for variable in problem.variables:
        taken[id(variable)] = {
            choice: column(problem.costs.compute(variable, choice), True) for choice in candidates(problem, variable)
        }
        at_least([(one, 1) for one in taken[id(variable)].values()], 1)

    def held_as(variable, port, format_):
        return [at for choice, at in taken[id(variable)].items() if choice.format_of(port) is format_]

    for chain in def_use_chains(problem):
        formats = {choice.format_of(port) for reader, port in chain.uses for choice in taken[id(reader)]}
        formats |= {chain.present} if chain.kept else set()
        for format_ in sorted(formats, key=str):
            readers = [held_as(reader, port, format_) for reader, port in chain.uses]
            always = chain.kept and format_ is chain.present
            if chain.constant or chain.producer is None:
                price = (
                    problem.costs.version(chain.value, format_)
                    if chain.constant
                    else problem.costs.join(chain.value, chain.present, format_)
                    if format_ is not chain.present
                    else 0
                )
                need = column(price)
                for reader in readers:
                    at_least([(need, 1), *((at, -1) for at in reader)], 0)
                at_least([(need, 1)], 1 if always else 0)
                continue
            sources = {choice.format_of(chain.produced_at) for choice in taken[id(chain.producer)]} - {format_}
            for source in sorted(sources, key=str):
                need = column(problem.costs.join(chain.value, source, format_))
                produced = held_as(chain.producer, chain.produced_at, source)
                for reader in readers:
                    at_least([(need, 1), *((at, -1) for at in (*reader, *produced))], -1)
                if always:
                    at_least([(need, 1), *((at, -1) for at in produced)], 0)
    entries = [(row, at, factor) for row, terms in enumerate(rows) for at, factor in terms]
    at_row, at_column, factors = (np.array(part) for part in zip(*entries))
    matrix = coo_array((factors, (at_row, at_column)), shape=(len(rows), len(costs))).tocsr()
    found = milp(
        np.array(costs, float),
        constraints=LinearConstraint(matrix, np.array(lower, float)),
        integrality=np.array(integral, int),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    assert found.success, found.message
    return round(found.fun)
