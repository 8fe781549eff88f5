"""Inputs that a caller hands to a model: checked against what it declares, and made arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from dovetail.errors import DovetailError
from dovetail.ir.required import name_of
from dovetail.suggestions import near_misses

from dovetail_runtime.declared import Declared, declared

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


class DeclaredInputs:
    """The inputs that a graph declares, against which every call is checked.

    Args:
        graph: The graph; an input that has a default need not be fed.
    """

    def __init__(self, graph: ir.Graph):
        self._wanted = {name_of(value): declared(value) for value in graph.inputs if not value.is_initializer()}
        self._constants = frozenset(graph.initializers)

    def checked(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """The inputs as arrays.

        Args:
            inputs: Arrays, lists or numbers by input name.

        Raises:
            DovetailError: An input is missing, unknown, or of another type or shape than the graph declares.
        """
        if not isinstance(inputs, Mapping):
            given, example = type(inputs).__name__, repr(next(iter(self._wanted), "x"))
            raise DovetailError(f"inputs are given by name, not as {given}", f"for example {{{example}: array}}")
        if inputs.keys() != self._wanted.keys():
            self._check_names(inputs)
        return {name: _fitting(value, inputs[name]) for name, value in self._wanted.items()}

    def _check_names(self, inputs: Mapping[str, object]) -> None:
        for name in inputs:
            if name in self._constants:
                raise DovetailError(f"input '{name}' is a constant of this model and cannot be fed")
            if name not in self._wanted:
                near = near_misses(name, self._wanted, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(self._wanted) or 'none'}"
                raise DovetailError(f"the model has no input '{name}'", hint)
        missing = [name for name in self._wanted if name not in inputs]
        if missing:
            raise DovetailError(f"no value for input {', '.join(repr(name) for name in missing)}")


# What may become what without loss: by the kind of the wanted type, the kinds of NumPy that are taken.
_TAKEN = {"float": "fiub", "int": "iub", "uint": "iub", "bool": "b"}


def as_array(given: object, value: Declared) -> np.ndarray | None:
    """A list or number as an array of the declared type; None if it holds something else.

    Integers become floats where floats are wanted; floats never become integers.
    """
    import numpy as np

    try:
        array = np.asarray(given)
        if value.dtype is None:
            return array.astype(object) if array.dtype.kind in "OUST" else None
        family = "float" if "float" in value.type else value.type.rstrip("0123456789")
        if array.size and array.dtype.kind not in _TAKEN.get(family, "fiub"):
            return None
        converted = array.astype(value.dtype)
    except (ValueError, TypeError, OverflowError):
        return None
    return converted if family == "float" or (converted == array).all() else None


def _shared(given: object) -> np.ndarray | None:
    """What speaks DLPack, such as a tensor of PyTorch or JAX in main memory, without a copy; None for anything else."""
    import numpy as np

    if not hasattr(given, "__dlpack__"):
        return None
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError):  # on a device, or of a type that NumPy lacks
        return None


def _fitting(value: Declared, given: object) -> np.ndarray:
    import numpy as np

    if not value.type:
        return cast("np.ndarray", given)  # a sequence, which engines take beside arrays
    array = given if isinstance(given, (np.ndarray, np.generic)) else _shared(given)
    array = as_array(given, value) if array is None else array
    if array is None:
        given_type = type(given).__name__
        raise DovetailError(f"input '{value.name}' is {value.type}; the {given_type} given holds something else")
    array = np.asarray(array)
    if not value.has_type_of(array):
        raise DovetailError(f"input '{value.name}' is {value.type}, the value given is {array.dtype.name}")
    if not value.has_shape(array.shape):
        raise DovetailError(f"input '{value.name}' has shape {value.shape}, the value given has {list(array.shape)}")
    # The other byte order is the same value; engines take the machine's.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
