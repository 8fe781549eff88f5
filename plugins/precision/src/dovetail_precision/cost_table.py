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

from dovetail.ir.types import FLOATS

if TYPE_CHECKING:
    from dovetail.passes import Context
    from dovetail.plugin.protocols import Source
    from dovetail_schemas.yaml_source import Node

__all__ = ["CostTable", "load_cost_table", "table_for"]

_KEYS = ("engine", "start", "bytes", "operations", "casts", "operators")
_OTHER = "other"

Rates = Mapping[str, float]
"""Rate per nanosecond by float type; `other` covers the types that are not named."""


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
    operations: Rates = field(default_factory=lambda: {"float64": 25, "float32": 50, _OTHER: 400})
    casts: float = 10
    operators: Mapping[str, Rates] = field(default_factory=dict)

    def moving(self, op_type: str, kind: str) -> float:
        """Return the bytes per nanosecond that an operator moves in a type."""
        rates = self.operators.get(op_type, self.bytes)
        return rates.get(kind) or rates[_OTHER]

    def multiplying(self, kind: str) -> float:
        """Return the operations per nanosecond of a matrix product in a type."""
        return self.operations.get(kind) or self.operations[_OTHER]


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
    found = {key: _positive(tree.require(key), key) for key in ("start", "casts")}
    found |= {key: _rates(tree.require(key), key) for key in ("bytes", "operations")}
    operators = tree.get("operators")
    rates = {key.raw: _rates(value, key.raw) for key, value in operators.entries("operators")} if operators else {}
    return CostTable(**found, operators=rates)


def _rates(node: Node, what: str) -> Rates:
    entries = node.entries(what).only(what, (*FLOATS, _OTHER))
    entries.require(_OTHER)
    return {key.raw: _positive(value, key.raw) for key, value in entries}


def _positive(node: Node, what: str) -> float:
    value = node.plain()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise node.error(f"{what}: a positive number is expected")
    return value
