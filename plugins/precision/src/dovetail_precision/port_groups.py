"""Float ports of an operator, grouped by the type parameter of its schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.ir import FLOAT_FORMATS, Format
from dovetail_onnx.signatures import Port, Signature, input_name, output_name

# The schema binds Y to the type of scale, but onnx's inference and checker require the type of X.
_ONE_TYPE = {("", "RMSNormalization"): {"V": "T"}}


@dataclass(frozen=True, slots=True, eq=False)
class PortGroup:
    """Ports that the schema binds to one type parameter.

    Attributes:
        present: Their current format.
        allowed: The float formats that the schema allows.
        inputs, outputs: Index and name of each port.
        names: The names of all ports.
    """

    present: Format
    allowed: frozenset[Format]
    inputs: tuple[tuple[int, str], ...]
    outputs: tuple[tuple[int, str], ...]
    names: frozenset[str]


def port_groups(
    sig: Signature | None, inputs: Sequence[Format | None], outputs: Sequence[Format | None]
) -> tuple[PortGroup, ...]:
    """Group the ports of a node, in the order of its ports.

    Args:
        sig: The operator's signature; if None, every port is a group that keeps its type.
        inputs, outputs: The float format of each port; None for ports that are no float tensors.
    """
    found: dict[str, tuple[list, list, list]] = {}
    one_type = _ONE_TYPE.get((sig.domain, sig.op_type), {}) if sig else {}
    for is_input, kinds in ((True, inputs), (False, outputs)):
        for index, present in enumerate(kinds):
            if present is None:
                continue
            port = (sig.input(index) if is_input else sig.output(index)) if sig is not None else None
            name = input_name(index, sig) if is_input else output_name(index, sig)
            # A heterogeneous or unknown port is a group by itself.
            key = f"{'in' if is_input else 'out'}{index}"
            if port is not None and port.homogeneous:
                key = one_type.get(port.parameter, port.parameter)
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


def _allowed(present: Format, port: Port | None) -> frozenset[Format]:
    return frozenset({present}) if port is None else frozenset(f for f in FLOAT_FORMATS if f.element in port.dtypes)


def merged(groups: Sequence[PortGroup]) -> PortGroup:
    """Return the ports of several groups as one; its type is that of the first group."""
    if len(groups) == 1:
        return groups[0]
    return PortGroup(
        groups[0].present,
        groups[0].allowed,
        tuple(port for group in groups for port in group.inputs),
        tuple(port for group in groups for port in group.outputs),
        frozenset().union(*(group.names for group in groups)),
    )
