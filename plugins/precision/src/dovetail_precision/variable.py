"""A variable of the typing problem: the type of some ports of one node."""

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
        policy: The policy of the backend: `lower`, `fp32`, `promote`, `pass`, ..., or "" (leave it). Also `pinned`,
            `keep` (the present type), and `angle` (see `trig_inputs.py`).
        present: The type in the source model.
        low, high: The backend's low and high precision; `present` if the backend has none.
        allowed: The types that schema, backend and user all allow; never empty.
        inputs: Port name and value of each float input.
        outputs: Port name and value of each float output.
        chosen: The solver's choice.
        because: The nodes that forced the choice.
        why: The reason in one clause, if the solver knows more than the policy says.
        override: The option that set the policy, as the user wrote it: `--high type:Exp`.
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
