"""The typing problem: which float type every part of every node computes in.

A variable stands for one type parameter of one node: all ports that the operator's schema binds to it have one type.
Hard rules narrow what a variable may be (`allowed`); a solver chooses within them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dovetail.ir.signatures import Port, input_name, output_name, signature
from dovetail.ir.types import FLOATS, float_name
from dovetail.plan.placement import HOST, get_placement
from dovetail_placement.place import claims_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plan.claim import Claim
    from dovetail.schema import Backend

__all__ = ["TypingProblem", "Variable"]

_ONNX_NAMES = {"tensor(float)": "float32", "tensor(double)": "float64"}
# Control flow has no types of its own: its ports are the borders of its bodies, which keep the source model's types.
_BORDERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})


@dataclass(slots=True)
class Variable:
    """The type of some ports of one node.

    Attributes:
        node: The node.
        backend: Name of its backend.
        policy: How the backend wants it typed: `lower`, `fp32`, `promote`, `pass`, ..., or "" (leave it).
        present: The type in the source model.
        low, high: The backend's low and high precision; `present` where the backend has none.
        allowed: What the schema, the backend and the user allow together; never empty.
        inputs: Port name and value of each float input.
        outputs: Port name and value of each float output.
        chosen: The solver's choice.
        because: Nodes that forced the choice.
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


class TypingProblem:
    """All variables of a placed model.

    Attributes:
        variables: In graph order; the variables of bodies follow those of the node that holds them.
        impossible: Nodes (with their reasons) for which the rules leave no type; they must be placed elsewhere.
    """

    def __init__(self, model: Model, ctx: Context):
        self.model = model
        self.variables: list[Variable] = []
        self.impossible: list[tuple[ir.Node, str]] = []
        self._defined_by: dict[int, Variable] = {}
        self._overridable = {id(value) for value in model.graph.inputs}
        self._opsets = model.ir.opset_imports
        self._backends = {backend.name: backend for backend in (*ctx.backends, ctx.host)}
        for node in model.nodes():
            self._add(node)

    def defined_by(self, value: ir.Value) -> Variable | None:
        """The variable that decides the type of `value`; None for inputs, constants and borders."""
        return self._defined_by.get(id(value))

    def is_constant(self, value: ir.Value) -> bool:
        """Whether `value` is a weight that can be stored in any type."""
        return value.const_value is not None and value.is_initializer() and id(value) not in self._overridable

    def _add(self, node: ir.Node) -> None:
        if node.op_type in _BORDERS and node.domain in ("", "ai.onnx"):
            return
        groups: dict[str, Variable] = {}
        names: dict[str, frozenset[str]] = {}
        claim, backend = claims_of(node), self._backends[get_placement(node).backend]
        sig = signature(node, self._opsets)
        for is_input, values in ((True, node.inputs), (False, node.outputs)):
            for index, value in enumerate(values):
                present = float_name(value)
                if present is None or not is_input and not value.name:
                    continue
                port = sig and (sig.input(index) if is_input else sig.output(index))
                name = input_name(index, sig) if is_input else output_name(index, sig)
                # A port with a type of its own (or none that we know) is a group by itself.
                shared = port is not None and port.homogeneous
                key = port.parameter if shared else f"{'in' if is_input else 'out'}{index}"
                if key not in groups:
                    groups[key] = self._variable(node, claim, backend, present)
                    names[key] = frozenset(FLOATS)
                names[key] &= _allowed(name, present, port, claim)
                (groups[key].inputs if is_input else groups[key].outputs).append((name, value))
        for key, variable in groups.items():
            self._restrict(variable, names[key], claim)

    def _variable(self, node: ir.Node, claim: Claim | None, backend: Backend, present: str) -> Variable:
        policy = (claim.role if claim else "") if backend.name != HOST else ""
        if claim is not None and claim.role == "pinned":
            policy = "pinned"
        low, high = backend.low or present, backend.high or present
        return Variable(node, backend.name, policy, present, low, high, frozenset(), claim.source if claim else "")

    def _restrict(self, variable: Variable, allowed: frozenset[str], claim: Claim | None) -> None:
        """Settle what the variable may be, and which policy holds for these ports of the node."""
        if not allowed:
            ports = ", ".join(name for name, _ in (*variable.inputs, *variable.outputs))
            self.impossible.append((variable.node, f"no type fits its ports {ports} there"))
            allowed = frozenset({variable.present})
        variable.allowed = allowed
        kept = claim.keep if claim else frozenset()
        if kept.issuperset(name for name, _ in (*variable.inputs, *variable.outputs)):
            variable.policy = "keep"
        self.variables.append(variable)
        for _, value in variable.outputs:
            self._defined_by[id(value)] = variable


def _allowed(name: str, present: str, port: Port | None, claim: Claim | None) -> frozenset[str]:
    if port is None:
        return frozenset({present})
    found = frozenset(_ONNX_NAMES.get(text, text[len("tensor(") : -1]) for text in port.allowed)
    if claim is not None and name in claim.ports:
        found &= frozenset(claim.ports[name])
    return found & frozenset(FLOATS)


