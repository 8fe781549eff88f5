"""Inputs that a caller hands to a model: checked against what it declares, and made arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.near import near_misses
from dovetail.runtime.tensors import matches, value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

__all__ = ["as_array", "checked_inputs"]


def checked_inputs(graph: ir.Graph, inputs: Mapping[str, object]) -> dict[str, object]:
    """The inputs of `graph` as arrays.

    Args:
        graph: The graph; an input that has a default need not be fed.
        inputs: Arrays, lists or numbers by input name.

    Raises:
        DovetailError: An input is missing, unknown, or of another type or shape than the graph declares.
    """
    if not isinstance(inputs, Mapping):
        given = type(inputs).__name__
        raise DovetailError(f"inputs are given by name, not as {given}", f"for example {{{_example(graph)}: array}}")
    wanted = {value.name: value for value in graph.inputs if not value.is_initializer()}
    for name in inputs:
        if name in graph.initializers:
            raise DovetailError(f"input '{name}' is a constant of this model and cannot be fed")
        if name not in wanted:
            near = near_misses(name, wanted, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(wanted) or 'none'}"
            raise DovetailError(f"the model has no input '{name}'", hint)
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise DovetailError(f"no value for input {', '.join(repr(name) for name in missing)}")
    return {name: _fitting(value, inputs[name]) for name, value in wanted.items()}


# What may become what without loss: by the kind of the wanted type, the kinds of NumPy that are taken.
_TAKEN = {"float": "fiub", "int": "iub", "uint": "iub", "bool": "b"}


def as_array(given: object, value: ir.Value) -> np.ndarray | None:
    """A list or number as an array of the type that `value` declares; None if it holds something else.

    Integers become floats where floats are wanted; floats never become integers.
    """
    import numpy as np

    type_ = value_type(value)
    try:
        array = np.asarray(given)
        if type_ == "string":
            return array.astype(object) if array.dtype.kind in "OUST" else None
        family = "float" if "float" in type_ else type_.rstrip("0123456789")
        if array.size and array.dtype.kind not in _TAKEN.get(family, "fiub"):
            return None
        converted = array.astype(value.dtype.numpy())
    except (ValueError, TypeError, OverflowError):
        return None
    return converted if family == "float" or (converted == array).all() else None


def _fitting(value: ir.Value, given: object) -> object:
    import numpy as np

    type_ = value_type(value)
    if not type_:
        return given
    array = given if isinstance(given, (np.ndarray, np.generic)) else as_array(given, value)
    if array is None:
        raise DovetailError(f"input '{value.name}' is {type_}; the {type(given).__name__} given holds something else")
    array = np.asarray(array)
    if not matches(array, type_):
        raise DovetailError(f"input '{value.name}' is {type_}, the value given is {array.dtype.name}")
    if value.shape is not None:
        fits = len(value.shape) == array.ndim and all(
            not isinstance(extent, int) or extent < 0 or extent == got for extent, got in zip(value.shape, array.shape)
        )
        if not fits:
            raise DovetailError(
                f"input '{value.name}' has shape {value.shape}, the value given has {list(array.shape)}"
            )
    # The other byte order is the same value; engines take the machine's.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _example(graph: ir.Graph) -> str:
    return repr(next((value.name for value in graph.inputs if not value.is_initializer()), "x"))
