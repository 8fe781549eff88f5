"""Cost tables as YAML, and the price of an assignment of formats, in integers of about one nanosecond."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import FLOAT32, FLOAT_FORMATS, Format, input_of, is_onnx
from dovetail.text import did_you_mean
from dovetail_runtime.machine import difference, fingerprint

from dovetail_precision.choices import plain
from dovetail_precision.def_use import def_use_chains

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import Context
    from dovetail.plugin import PluginSet, Source
    from dovetail_schemas.yaml_source import Node, Scalar

    from dovetail_precision.choices import FormatChoice, SharedFormat
    from dovetail_precision.def_use import DefUseChain
    from dovetail_precision.problem import FormatVariable, TypingProblem, Value


_KEYS = ("machine", "engine", "start", "bytes", "operations", "casts", "borders", "operators")
_BORDERS = ("quantize", "dequantize", "transpose", "call")
_OTHER = "other"
_FLOAT64 = Format.of("float64")

Rates = Mapping[Format | str, float]
"""Rate per nanosecond by format; `other` covers the formats that are not named."""


@dataclass(frozen=True)
class CostTable:
    """Rates of an engine.

    Attributes:
        start: Fixed overhead of an operator, in nanoseconds.
        bytes: Bytes read and written per nanosecond.
        operations: Multiplications and additions per nanosecond, for Conv, Gemm and MatMul.
        casts: Bytes read and written per nanosecond by a Cast.
        operators: Bytes per nanosecond of operators with rates of their own.
        borders: Bytes read and written per nanosecond by QuantizeLinear (`quantize`), DequantizeLinear (`dequantize`)
            and a Transpose between layouts (`transpose`), and the nanoseconds of one more call of the engine (`call`).
        machine: Fingerprint of the machine that it was measured on; empty if it holds for every machine.
    """

    start: float = 500
    bytes: Rates = field(default_factory=lambda: {_OTHER: 10})
    operations: Rates = field(default_factory=lambda: {_FLOAT64: 25, FLOAT32: 50, _OTHER: 400})
    casts: float = 10
    operators: Mapping[str, Rates] = field(default_factory=dict)
    borders: Mapping[str, float] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)

    def converting(self, held: Format, wanted: Format) -> float:
        """Return the bytes per nanosecond of a conversion."""
        if held.quantized == wanted.quantized:
            return self.casts
        return self.borders.get("quantize" if wanted.quantized else "dequantize", self.casts)

    def moving(self, op_type: str, format_: Format) -> float:
        """Return the bytes per nanosecond that an operator moves in a format."""
        return _rate(self.operators.get(op_type, self.bytes), format_)

    def multiplying(self, format_: Format) -> float:
        """Return the operations per nanosecond of a matrix product in a format."""
        return _rate(self.operations, format_)


def _rate(rates: Rates, format_: Format) -> float:
    """Return the rate of a format; an unlisted quantized format has that of its element type."""
    found = rates.get(format_)
    if found is None and format_.quantized:
        found = rates.get(Format.of(format_.element))
    return rates[_OTHER] if found is None else found


def table_for(ctx: Context) -> CostTable:
    """Return the cost table of the request: by registered name or file, else that of a backend, else the default.

    Raises:
        DovetailError: No table has that name, or its file is invalid.
    """
    known, wanted = ctx.registry.cost_table, ctx.request.costs
    if wanted and wanted not in known and Path(wanted).suffix in (".yaml", ".yml"):
        table = load_cost_table(Path(wanted))
        other = _other_machine(table, ctx)
        if not other:
            return table
        why = f"{wanted} is a table of {other}, so it is not used; `dovetail profile` measures one of this machine"
        ctx.remark("analysis", "", "costs", why)
        wanted = None
    name = wanted or next((backend.name for backend in ctx.backends if backend.name in known), "default")
    return load_cost_table(known[name])


def _other_machine(table: CostTable, ctx: Context) -> str:
    """Return what differs between the machine of a table and this one; empty if nothing does, or it is of none."""
    if not table.machine:
        return ""
    return difference(dict(table.machine), this_machine(ctx.plugins))


def this_machine(plugins: PluginSet | None) -> dict[str, str]:
    """Return the fingerprint of this machine with the versions of all plugins in use."""
    found = plugins.plugins if plugins is not None else ()
    return fingerprint(record.distribution for record in found if record.status == "ok" and record.distribution)


def load_cost_table(source: Source) -> CostTable:
    """Read a cost table.

    Raises:
        SchemaError: An unknown key or type, or a rate that is not positive; names the line.
    """
    from dovetail_schemas.yaml_source import load_tree

    tree = load_tree(source).only("cost table", _KEYS)
    start, casts = (_positive(tree.require(key), key) for key in ("start", "casts"))
    moved, operations = (_rates(tree.require(key), key) for key in ("bytes", "operations"))
    operators = tree.get("operators")
    rates = {key.raw: _rates(value, key.raw) for key, value in operators.entries("operators")} if operators else {}
    given = tree.get("borders")
    entries = given.entries("borders").only("borders", _BORDERS) if given else ()
    borders = {key.raw: _positive(value, key.raw) for key, value in entries}
    found = tree.get("machine")
    machine = {key.raw: str(value.plain()) for key, value in found.entries("machine")} if found else {}
    return CostTable(start, moved, operations, casts, rates, borders, machine)


def _rates(node: Node, what: str) -> Rates:
    entries = node.entries(what)
    entries.require(_OTHER)
    return {_key(key, what): _positive(value, key.raw) for key, value in entries}


def _key(key: Scalar, what: str) -> Format | str:
    """Parse a key of rates: a float type, an integer type, a quantized format, or `other`."""
    if key.raw == _OTHER:
        return _OTHER
    try:
        return Format.of(key.raw)
    except UsageError:
        near = did_you_mean(key.raw, (*map(str, FLOAT_FORMATS), _OTHER))
        raise key.error(f"unknown key '{key.raw}' in {what}{near}") from None


def _positive(node: Node, what: str) -> float:
    value = node.plain()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise node.error(f"{what}: a positive number is expected")
    return value


class CostModel(Protocol):
    """Prices that depend on formats, as non-negative integers.

    A join from a narrower float must not cost more than one from a wider float to the same format: `min-cut` needs it
    where there are two formats to choose from.
    """

    def compute(self, variable: FormatVariable, choice: FormatChoice) -> int:
        """Return the cost of computing `variable` with `choice`."""

    def join(self, value: Value, held: Format, wanted: Format) -> int:
        """Return the cost of converting `value` once, for all readers of format `wanted`.

        Equal formats mean that integers of one scale become those of another.
        """

    def version(self, value: Value, format_: Format) -> int:
        """Return the cost of one stored version of the weight `value`."""


class UnitJoins:
    """Counts joins: each costs one, everything else is free."""

    def compute(self, variable: FormatVariable, choice: FormatChoice) -> int:
        """Return 0."""
        return 0

    def join(self, value: Value, held: Format, wanted: Format) -> int:
        """Return 1."""
        return 1

    def version(self, value: Value, format_: Format) -> int:
        """Return 0."""
        return 0


class MovedBytes:
    """Estimated time: bytes moved, and arithmetic of matrix products, over the rates of a cost table.

    An unknown extent counts as 64, a value of unknown rank as 4096 elements. Variables and values must stand for nodes
    and values of a model.

    Args:
        table: The rates; the shipped defaults if None.
        trip_counts: How often each body runs, by the `id` of its graph; missing bodies run once.
    """

    def __init__(self, table: CostTable | None = None, trip_counts: dict[int, int] | None = None):
        self.table = table or CostTable()
        self._trip_counts = trip_counts or {}
        self._sizes: dict[ir.Value, int] = {}
        # Keep the variable alive with its work: otherwise another object could reuse its id.
        self._work: dict[int, tuple[int, int, FormatVariable]] = {}

    def compute(self, variable: FormatVariable, choice: FormatChoice) -> int:
        """Return the time to read all inputs, write all outputs, and multiply."""
        known = self._work.get(id(variable))
        if known is None:
            times = self._trip_counts.get(id(variable.node.graph), 1) if self._trip_counts else 1
            elements = times * sum([self._size(value) for _, value in (*variable.inputs, *variable.outputs)])
            known = self._work[id(variable)] = (elements, times * products_of(variable.node), variable)
        elements, operations, _ = known
        if choice.ports:
            return self._mixed(variable, choice, operations)
        moved = elements * _width(choice.nominal) / self.table.moving(variable.node.op_type, choice.nominal)
        return int(moved) + (int(operations / self.table.multiplying(choice.nominal)) if operations else 0)

    def _mixed(self, variable: FormatVariable, choice: FormatChoice, operations: int) -> int:
        """Price a choice with several formats: ports move their own, and the first input multiplies."""
        times = self._trip_counts.get(id(variable.node.graph), 1) if self._trip_counts else 1
        ports = [(choice.format_of(port), value) for port, value in (*variable.inputs, *variable.outputs)]
        operator = variable.node.op_type
        moved = sum(self._size(value) * _width(held) / self.table.moving(operator, held) for held, value in ports)
        return int(times * moved) + (int(operations / self.table.multiplying(ports[0][0])) if operations else 0)

    def join(self, value: Value, held: Format, wanted: Format) -> int:
        """Return the time of one conversion: overhead, reading one format and writing the other."""
        once = int(
            self.table.start + self._size(value) * (_width(held) + _width(wanted)) / self.table.converting(held, wanted)
        )
        return once * self._trip_counts.get(id(value.source.graph), 1) if self._trip_counts else once

    def version(self, value: Value, format_: Format) -> int:
        """Return the time to fetch the weight once more: two versions compete for the same cache."""
        return int(self._size(value) * _width(format_) / self.table.moving("", format_))

    def _size(self, value: Value) -> int:
        source = value.source
        known = self._sizes.get(source)
        if known is None:
            known = self._sizes[source] = _elements(source)
        return known


def conversion_cost(costs: CostModel, value: Value, held: Format | SharedFormat, wanted: Format | SharedFormat) -> int:
    """Return the cost of converting `value` between the forms at the two ends of an edge.

    Zero if both are the same, or if the source model already has the conversion.
    """
    if held is wanted:
        return 0
    if value.adopted and value.present in (held, wanted) and not value.adopted.isdisjoint((held, wanted)):
        return 0
    return costs.join(value, plain(held), plain(wanted))


def cost_of(problem: TypingProblem, costs: CostModel | None = None) -> int:
    """Return the total cost of the choices made for `problem`: variables, joins and versions of weights.

    Args:
        problem: A solved problem.
        costs: The prices; those of the problem if None.
    """
    costs = costs or problem.costs
    total = sum(costs.compute(variable, variable.chosen) for variable in problem.variables)
    for chain in def_use_chains(problem):
        if chain.constant:
            total += sum(costs.version(chain.value, plain(kind)) for kind in chain.wanted)
        else:
            held = chain.held
            total += sum(conversion_cost(costs, chain.value, held, kind) for kind in chain.wanted)
    return total


@cache
def _width(format_: Format) -> float:
    """Return the bytes per element."""
    return format_.dtype.bitwidth / 8


def extents_of(value: ir.Value, unknown: int = 64) -> list[int]:
    """Return the extents that prices assume: `unknown` for an unknown one, 4096 for a value of unknown rank."""
    if value.shape is None:
        return [4096]
    return [extent if isinstance(extent, int) else unknown for extent in value.shape.dims]


def _elements(value: ir.Value) -> int:
    return math.prod(extents_of(value))


def products_of(node: ir.Node, unknown: int = 64) -> int:
    """Return the multiplications and additions of a matrix product; 0 for other operators, which are memory-bound."""
    if not is_onnx(node) or node.op_type not in ("Conv", "Gemm", "MatMul") or not node.outputs:
        return 0
    first, second = (extents_of(input_of(node, index), unknown) for index in range(2))
    if node.op_type == "Conv":
        summed = math.prod(second[1:])
    else:
        turned = node.op_type == "Gemm" and bool(node.attributes.get_int("transA", 0))
        summed = first[0 if turned else -1] if first else 1
    return 2 * math.prod(extents_of(node.outputs[0], unknown)) * summed


class Prices:
    """The prices that optimizing solvers add up.

    Every method raises a DovetailError if the cost model returns anything but a non-negative integer.
    """

    def __init__(self, costs: CostModel):
        self._costs = costs

    def compute(self, variable: FormatVariable, choice: FormatChoice) -> int:
        """Return the price of a choice."""
        return _checked(self._costs.compute(variable, choice))

    def gain(self, variable: FormatVariable, low: FormatChoice, high: FormatChoice) -> int:
        """Return the time that computing with the low choice saves."""
        return self.compute(variable, high) - self.compute(variable, low)

    def join(self, chain: DefUseChain, held: Format | SharedFormat, wanted: Format | SharedFormat) -> int:
        """Return the price of a conversion; 0 if there is none."""
        return _checked(conversion_cost(self._costs, chain.value, held, wanted)) if held is not wanted else 0

    def version(self, chain: DefUseChain, format_: Format | SharedFormat) -> int:
        """Return the price of one version of a weight."""
        return _checked(self._costs.version(chain.value, plain(format_)))


def _checked(cost: int) -> int:
    if not isinstance(cost, int) or cost < 0:
        raise DovetailError(f"the cost model returned {cost!r}", "costs must be non-negative integers")
    return cost
