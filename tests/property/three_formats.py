"""Random typing problems with three formats and two scales, and their exact minimum by integer programming."""

import random

import numpy as np
from dovetail.ir import Format
from dovetail_precision.choices import Choices, FormatChoice, SharedFormat, float_choices, plain, uniform
from dovetail_precision.constraints import candidates
from dovetail_precision.costs import UnitJoins, conversion_cost
from dovetail_precision.def_use import def_use_chains
from dovetail_precision.problem import FormatVariable, TypingProblem, Value

INT8, CHANNELS = Format.of("int8[symmetric]"), Format.of("int8[symmetric,axis=0]")
FLOAT16, FLOAT32 = Format.of("float16"), Format.of("float32")
FLOATS = float_choices(frozenset({FLOAT16, FLOAT32}))
PRODUCT = FormatChoice.of({"X": INT8, "W": CHANNELS, "Y": INT8}, "Y")

KINDS = {
    # policy, choices, whether it has weights, and how often
    "product in any format": ("", Choices([PRODUCT, *FLOATS]), True, 4),
    "product in integers": ("active", Choices([PRODUCT]), True, 1),
    "product in floats": ("", FLOATS, True, 2),
    "element by element": ("pass", Choices([uniform(INT8), *FLOATS]), False, 6),
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
    """A graph of that many nodes: each reads one or two of the last values, so that some are read often.

    Nodes in integers read and give one of two scales. Some nodes in floats read inputs of the model or constant fills,
    which take the type of their readers; some values are read by a Cast, which takes the type that it reads.
    """
    generator = random.Random(seed)
    prices = RandomPrices(generator, generator.choice([0, 50, 500, 2000]))
    values, variables = [Value("x")], []
    scales = [SharedFormat(INT8), SharedFormat(INT8)]
    kinds = generator.choices(list(KINDS), [often for *_, often in KINDS.values()], k=nodes)
    reach = generator.choice([2, 6, 20])
    weights = [Value(f"w{index}", constant=True) for index in range(nodes // 4 + 1)]
    following = [Value(f"f{index}") for index in range(nodes // 20 + 1)]
    for value in following:
        value.free = generator.random() < 0.5
        if not value.free:
            fill = FormatVariable(f"{value.name}_fill", FLOATS, [], [("output", value)], "follow-consumer", low=FLOAT16)
            fill.type_attribute = True
            variables.append(fill)
    for index, kind in enumerate(kinds):
        policy, choices, has_weights, _ = KINDS[kind]
        inputs = [("X", generator.choice(values[-reach:]))]
        if has_weights:
            inputs.append(("W", generator.choice(weights)))
        elif choices is FLOATS and generator.random() < 0.4:
            inputs.append(("Z", generator.choice(following)))
        elif generator.random() < 0.5:
            inputs.append(("Z", generator.choice(values[-reach:])))
        value = Value(f"v{index}")
        variables.append(FormatVariable(f"n{index}", choices, inputs, [("Y", value)], policy, low=FLOAT16))
        values.append(value)
        if choices is not FLOATS:
            reads, gives = generator.choices(scales, [5, 1], k=2)
            variables[-1].groups = {("X", INT8): reads, ("Y", INT8): gives}
        if generator.random() < 0.05:
            cast = [("input", generator.choice(values[-reach:]))]
            variables.append(FormatVariable(f"c{index}", FLOATS, cast, [], "pass", low=FLOAT16, takes_any=True))
    read = {id(value) for variable in variables for _, value in variable.inputs}
    for value in values:
        value.kept = id(value) not in read or generator.random() < 0.05
    return TypingProblem(variables, cost_model=lambda: prices)


def solve_all_high(problem):
    """Everything in the last candidate, which is float32 where there is one."""
    for variable in problem.variables:
        variable.chosen = candidates(problem, variable)[-1]


def least(problem):
    """The minimum of `cost_of(problem)` over all choices, by integer programming."""
    return _Program(problem).minimum()


class _Program:
    """Columns are decisions and needs between 0 and 1; rows are lower bounds of sums of columns."""

    def __init__(self, problem):
        self.problem, self.costs, self.whole, self.rows, self.lower = problem, [], [], [], []
        chains = def_use_chains(problem)
        filled = {id(chain.producer) for chain in chains if chain.follows and chain.producer}
        self.taken = {}
        for variable in problem.variables:
            free = id(variable) in filled
            self.taken[id(variable)] = {
                choice: self.column(0 if free else problem.costs.compute(variable, choice), True)
                for choice in candidates(problem, variable)
            }
            self.row([(one, 1) for one in self.taken[id(variable)].values()], 1)
        for chain in chains:
            (self.follow if chain.follows else self.convert)(chain)

    def column(self, cost, whole=False):
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def row(self, terms, bound):
        self.rows.append(terms)
        self.lower.append(bound)

    def held_as(self, variable, port, held):
        return [at for choice, at in self.taken[id(variable)].items() if variable.held_at(port, choice) is held]

    def join(self, chain, held, wanted):
        return conversion_cost(self.problem.costs, chain.value, held, wanted)

    def follow(self, chain):
        """Low if all readers are; else high, and converted for those that are low."""
        low, high = chain.follows, chain.present
        gain = 0
        if chain.producer is not None:
            prices = self.problem.costs
            gain = prices.compute(chain.producer, uniform(low)) - prices.compute(chain.producer, uniform(high))
            self.row([(self.column(prices.compute(chain.producer, uniform(high))), 1)], 1)
        held_low, need = self.column(gain, True), self.column(self.join(chain, high, low))
        for reader, port in chain.uses:
            lows = self.held_as(reader, port, low)
            self.row([(held_low, -1), *((at, 1) for at in lows)], 0)
            self.row([(need, 1), (held_low, 1), *((at, -1) for at in lows)], 0)

    def convert(self, chain):
        formats = {reader.held_at(port, choice): 0 for reader, port in chain.uses for choice in self.taken[id(reader)]}
        formats |= {chain.present: 0} if chain.kept else {}
        for format_ in formats:
            readers = [self.held_as(reader, port, format_) for reader, port in chain.uses]
            always = chain.kept and format_ is chain.present
            if chain.constant or chain.producer is None:
                once = self.problem.costs.version(chain.value, plain(format_)) if chain.constant else 0
                self.need(once or self.join(chain, chain.present, format_), readers, [], always)
                continue
            for source in {
                chain.producer.held_at(chain.produced_at, choice) for choice in self.taken[id(chain.producer)]
            }:
                produced = self.held_as(chain.producer, chain.produced_at, source)
                self.need(self.join(chain, source, format_), readers, produced, always)
        for cast in chain.cast_readers:  # it has the format of what it reads
            for choice, at in self.taken[id(cast)].items():
                same = self.held_as(chain.producer, chain.produced_at, choice.nominal) if chain.producer else []
                fixed = 1 if chain.producer is None and choice.nominal is chain.present else 0
                self.row([(at, 1), *((one, -1) for one in same)], fixed)

    def need(self, price, readers, produced, always):
        """Pay `price` if any of the readers, and all of `produced` if there is any, are taken."""
        need, rest = self.column(price), [(at, -1) for at in produced]
        for reader in readers:
            self.row([(need, 1), *((at, -1) for at in reader), *rest], -1 if produced else 0)
        if always:
            self.row([(need, 1), *rest], 0 if produced else 1)

    def minimum(self):
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        entries = [(row, at, factor) for row, terms in enumerate(self.rows) for at, factor in terms]
        at_row, at_column, factors = (np.array(part) for part in zip(*entries))
        matrix = coo_array((factors, (at_row, at_column)), shape=(len(self.rows), len(self.costs))).tocsr()
        found = milp(
            np.array(self.costs, float),
            constraints=LinearConstraint(matrix, np.array(self.lower, float)),
            integrality=np.array(self.whole, int),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 0},
        )
        assert found.success, found.message
        return round(found.fun)
