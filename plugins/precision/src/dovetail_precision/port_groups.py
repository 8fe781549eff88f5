"""The float ports of an operator, grouped by what must have one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.ir.signatures import Port, Signature, input_name, output_name
from dovetail.ir.types import FLOATS

__all__ = ["PortGroup", "port_groups"]

# The schema binds Y to the type of scale, but onnx's inference gives it the type of X, and its checker insists on that.
_ONE_TYPE = {("", "RMSNormalization"): {"V": "T"}}


@dataclass(frozen=True, slots=True, eq=False)
class PortGroup:
    """Ports that the operator's schema binds to one type parameter.

    Attributes:
        present: The type that they have now.
        allowed: The float types that the schema takes.
        inputs, outputs: Index and name of each.
        names: All names.
    """

    present: str
    allowed: frozenset[str]
    inputs: tuple[tuple[int, str], ...]
    outputs: tuple[tuple[int, str], ...]
    names: frozenset[str]


def port_groups(
    sig: Signature | None, inputs: Sequence[str | None], outputs: Sequence[str | None]
) -> tuple[PortGroup, ...]:
    """The groups of a node, in the order of its ports.

    Args:
        sig: The operator's signature; without one, every port is a group that keeps its type.
        inputs, outputs: The float type at each port; None where there is none.
    """
    found: dict[str, tuple[list, list, list]] = {}
    one_type = _ONE_TYPE.get((sig.domain, sig.op_type), {}) if sig else {}
    for is_input, kinds in ((True, inputs), (False, outputs)):
        for index, present in enumerate(kinds):
            if present is None:
                continue
            port = sig and (sig.input(index) if is_input else sig.output(index))
            name = input_name(index, sig) if is_input else output_name(index, sig)
            # A port with a type of its own, or none that we know, is a group by itself.
            shared = port is not None and port.homogeneous
            key = one_type.get(port.parameter, port.parameter) if shared else f"{'in' if is_input else 'out'}{index}"
            allowed, ins, outs = found.setdefault(key, ([], [], []))
            allowed.append((present, _allowed(present, port)))
            (ins if is_input else outs).append((index, name))
    return tuple(
        PortGroup(
            types[0][0],
            frozenset.intersection(*(allowed for _, allowed in types)),
            tuple(ins),
            tuple(outs),
            frozenset(name for _, name in (*ins, *outs)),
        )
        for types, ins, outs in found.values()
    )


def _allowed(present: str, port: Port | None) -> frozenset[str]:
    return frozenset({present}) if port is None else port.dtypes.intersection(FLOATS)
