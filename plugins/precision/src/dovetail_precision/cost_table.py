"""Cost tables: measured rates of an engine on a machine, as YAML.

start: 500
bytes: {float16: 4, other: 10}
operations: {float32: 50, other: 400}
casts: 10
operators: {Exp: {float32: 2.5, other: 1.2}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UsageError
from dovetail.ir.formats import FLOAT32, FLOAT_FORMATS, Format
from dovetail.suggestions import did_you_mean

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin.backend import Source
    from dovetail_schemas.yaml_source import Node, Scalar


_KEYS = ("engine", "start", "bytes", "operations", "casts", "operators")
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
    """

    start: float = 500
    bytes: Rates = field(default_factory=lambda: {_OTHER: 10})
    operations: Rates = field(default_factory=lambda: {_FLOAT64: 25, FLOAT32: 50, _OTHER: 400})
    casts: float = 10
    operators: Mapping[str, Rates] = field(default_factory=dict)

    def moving(self, op_type: str, format_: Format) -> float:
        """Return the bytes per nanosecond that an operator moves in a format."""
        return _rate(self.operators.get(op_type, self.bytes), format_)

    def multiplying(self, format_: Format) -> float:
        """Return the operations per nanosecond of a matrix product in a format."""
        return _rate(self.operations, format_)


def _rate(rates: Rates, format_: Format) -> float:
    """The rate of a format; a quantised one that is not named has that of its element type."""
    found = rates.get(format_)
    if found is None and format_.quantised:
        found = rates.get(Format.of(format_.element))
    return rates[_OTHER] if found is None else found


def table_for(ctx: Context) -> CostTable:
    """Return the cost table of the request: by registered name or file, else that of a backend, else the default.

    Raises:
        DovetailError: No table has that name, or its file is invalid.
    """
    known, wanted = ctx.registry.cost_table, ctx.request.costs
    if wanted and wanted not in known and Path(wanted).suffix in (".yaml", ".yml"):
        return load_cost_table(Path(wanted))
    name = wanted or next((backend.name for backend in ctx.backends if backend.name in known), "default")
    return load_cost_table(known[name])


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
    return CostTable(start, moved, operations, casts, rates)


def _rates(node: Node, what: str) -> Rates:
    entries = node.entries(what)
    entries.require(_OTHER)
    return {_key(key, what): _positive(value, key.raw) for key, value in entries}


def _key(key: Scalar, what: str) -> Format | str:
    """Parse a key of rates: a float type, an integer type, a quantised format, or `other`."""
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
