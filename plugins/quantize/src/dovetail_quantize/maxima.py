"""Maxima of a value, where its readers see nothing else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_quantize.known_parameters import ObserversTogether

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import onnx_ir as ir

    from dovetail_quantize.named_observer import NamedObserver


_OPERATORS = ("GlobalMaxPool", "MaxPool", "ReduceMax")
_MOST = 8  # nodes, so that the time does not grow with the graph


def values_shown(
    values: Sequence[ir.Value], observers: Sequence[NamedObserver]
) -> Iterator[tuple[list[ir.Value], ObserversTogether]]:
    """Yield the values that observers of a sharing group see: itself, or for those that follow maxima, its maxima."""
    maxima = list(dict.fromkeys(map(_read_maxima, values)))
    follow = [one for one in observers if one.follows_maxima and maxima != list(values)]
    for seen, those in ((maxima, follow), (list(values), [one for one in observers if one not in follow])):
        if those:
            yield seen, ObserversTogether(those)


def _read_maxima(value: ir.Value) -> ir.Value:
    """Return the maxima of a value if they alone are read, as behind a MaxPool; else the value.

    Given:  %m = MaxPool(%x); %y = ReduceMax(%m), and nothing else reads %x or %m
    Result: %y

    Rounding what is no maximum costs nothing, and saturating a maximum costs more than its share of the numbers says.
    """
    for _ in range(_MOST):
        uses = value.uses()
        if len(uses) != 1 or value.is_graph_output():
            break
        ((node, index),) = uses
        if node.op_type not in _OPERATORS or node.domain not in ("", "ai.onnx") or index or len(node.outputs) != 1:
            break
        value = node.outputs[0]
    return value
