"""The thresholds of nodes, in the sense of the vendor's tools: the largest magnitude that the integers hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.ir.required import name_of
from dovetail_onnx.signatures import Signatures, input_name

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.planning.holdings import Holding


_HIGHEST = {"int8": 127, "int16": 32767}
_DIGITS = 9  # significant ones, with which the scale is found again, bit for bit


class InputScale(NamedTuple):
    """The one scale of what a port reads.

    Attributes:
        group: The name of all that share it.
        threshold: The largest magnitude that the integers hold; None before calibration.
    """

    group: str
    threshold: float | None


def threshold(holding: Holding) -> float | list[float] | None:
    """The threshold of a holding, one number or one per channel; None for what has none, such as sums in 32 bits.

    A scale is the threshold divided by 127, or by 32767 where values are held in int16.
    """
    highest = _HIGHEST.get(holding.format.element)
    if highest is None or holding.parameters is None:
        return None
    found = [float(f"{scale * highest:.{_DIGITS}g}") for scale in holding.parameters.scale]
    return found[0] if len(found) == 1 else found


def input_thresholds(holdings: Iterable[Holding]) -> dict[tuple[str, str], float | list[float]]:
    """The threshold at every port that reads a quantised value, by the names of node and port."""
    found: dict[tuple[str, str], float | list[float]] = {}
    for holding in holdings:
        value = threshold(holding)
        if value is not None:
            for reader in holding.readers:
                node, _, port = reader.rpartition(":")
                found[node, port] = value
    return found


def input_scales(holdings: Iterable[Holding]) -> dict[str, dict[str, InputScale]]:
    """The scales of what nodes read, by the names of node and port, without those of weights and of sums."""
    found: dict[str, dict[str, InputScale]] = {}
    for holding in holdings:
        value = threshold(holding)
        if holding.source == "weights" or holding.format.element not in _HIGHEST or isinstance(value, list):
            continue
        for reader in holding.readers:
            node, _, port = reader.rpartition(":")
            found.setdefault(node, {})[port] = InputScale(holding.group, value)
    return found


def thresholds(model: Model, holdings: Sequence[Holding], march: str) -> dict[str, Any]:
    """The thresholds of the nodes of a model: those of what they read, by the numbers of inputs, and what they give.

    A node outside of the BPU gives floats, whatever a reader makes of them: it has no threshold of its own. Weights are
    left out, for the vendor's tools find theirs in the model.

    Args:
        model: The model.
        holdings: The quantised forms of its values.
        march: The BPU.
    """
    read = input_thresholds(holdings)
    given: dict[str, float | list[float]] = {}
    for holding in holdings:
        value = threshold(holding)
        if value is not None and holding.made_by:
            given[holding.value] = value
    signatures = Signatures(model.ir.opset_imports)
    nodes: dict[str, Mapping[str, Any]] = {}
    for node in model.graph:
        signature, name = signatures(node), name_of(node)
        inputs: dict[str, float | list[float]] = {}
        for index, operand in enumerate(node.inputs):
            weight = operand is None or operand.is_initializer() and not operand.is_graph_input()
            found = None if weight else read.get((name, input_name(index, signature)))
            if found is not None:
                inputs[str(index)] = found
        outputs = {str(i): given[result.name] for i, result in enumerate(node.outputs) if result.name in given}
        if inputs or outputs:
            nodes[name] = {"inputs": inputs, "outputs": outputs}
    return {"march": march, "nodes": nodes}
