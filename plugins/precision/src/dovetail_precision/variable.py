"""What the typing problem decides: one type for some ports of one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Variable"]


@dataclass(slots=True)
class Variable:
    """The type of some ports of one node.

    Attributes:
        node: The node.
        backend: Name of its backend.
        policy: How the backend wants it typed: `lower`, `fp32`, `promote`, `pass`, ..., or "" (leave it). Beside these
            there are `pinned`, `keep` (what it is), and `angle` (see `trig_inputs.py`).
        present: The type in the source model.
        low, high: The backend's low and high precision; `present` where the backend has none.
        allowed: What the schema, the backend and the user allow together; never empty.
        inputs: Port name and value of each float input.
        outputs: Port name and value of each float output.
        chosen: The solver's choice.
        because: Nodes that forced the choice.
        why: The choice in one clause, where a solver has more to say than the policy.
        override: The option that set the policy, as a user writes it: `--high type:Exp`.
    """

    node: ir.Node
    backend: str
    policy: str
    present: str
    low: str
    high: str
    allowed: frozenset[str]
    source: str = ""
    inputs: list[tuple[str, ir.Value]] = field(default_factory=list)
    outputs: list[tuple[str, ir.Value]] = field(default_factory=list)
    chosen: str = ""
    because: tuple[ir.Node, ...] = ()
    why: str = ""
    override: str = ""
