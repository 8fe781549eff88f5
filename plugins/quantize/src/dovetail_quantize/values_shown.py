"""Which values the observers of a sharing group see: the values themselves, or the maxima that alone are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dovetail.ir import is_onnx

from dovetail_quantize.parameters import ObserversTogether

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_quantize.observing import NamedObserver


_OPERATORS = ("GlobalMaxPool", "MaxPool", "ReduceMax")
_MOST = 8  # nodes; bounds the search, so that its time does not grow with the graph


def values_shown(
    values: Sequence[ir.Value], observers: Sequence[NamedObserver]
) -> Iterator[tuple[list[ir.Value], ObserversTogether]]:
    """Yield the values that observers of a sharing group see: maxima with `follows_maxima`, else the values."""
    maxima = list(dict.fromkeys(map(_read_maxima, values)))
    follow = [one for one in observers if one.follows_maxima and maxima != list(values)]
    for seen, those in ((maxima, follow), (list(values), [one for one in observers if one not in follow])):
        if those:
            yield seen, ObserversTogether(those)


def _read_maxima(value: ir.Value) -> ir.Value:
    """Return the maxima of a value if only these are used, as by a MaxPool; else the value itself.

    Given:  %m = MaxPool(%x); %y = ReduceMax(%m), and nothing else reads %x or %m
    Result: %y

    Rounding the other elements costs nothing, and saturating a maximum costs more than its share of the elements
    suggests.
    """
    for _ in range(_MOST):
        uses = value.uses()
        if len(uses) != 1 or value.is_graph_output():
            break
        ((node, index),) = uses
        if node.op_type not in _OPERATORS or not is_onnx(node) or index or len(node.outputs) != 1:
            break
        value = node.outputs[0]
    return value
