"""A variable of the typing problem: the format of some ports of one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.formats import Format

__all__ = ["Variable"]


@dataclass(slots=True)
class Variable:
    """The format of some ports of one node.

    Attributes:
        node: The node.
        backend: Name of its backend.
        policy: The policy of the backend: `lower`, `fp32`, `promote`, `pass`, ..., or "" (leave it). Also `pinned`,
            `keep` (the present type), and `angle` (see `trig_inputs.py`).
        present: The format in the source model.
        low, high: The backend's low and high precision; `present` if the backend has none.
        allowed: The formats that schema, backend and user all allow; never empty.
        inputs: Port name and value of each float input.
        outputs: Port name and value of each float output.
        chosen: The solver's choice; None before the problem is solved.
        because: The nodes that forced the choice.
        why: The reason in one clause, if the solver knows more than the policy says.
        override: The option that set the policy, as the user wrote it: `--high type:Exp`.
    """

    node: ir.Node
    backend: str
    policy: str
    present: Format
    low: Format
    high: Format
    allowed: frozenset[Format]
    source: str = ""
    inputs: list[tuple[str, ir.Value]] = field(default_factory=list)
    outputs: list[tuple[str, ir.Value]] = field(default_factory=list)
    chosen: Format | None = None
    because: tuple[ir.Node, ...] = ()
    why: str = ""
    override: str = ""
