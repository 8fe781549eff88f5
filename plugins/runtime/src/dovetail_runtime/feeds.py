"""What goes in and out of a model: feeds checked against what it declares, and outputs as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail.errors import DovetailError
from dovetail.ir import dtype_of, name_of
from dovetail.text import near_misses

from dovetail_runtime.serialize import matches, value_type

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir


@dataclass(frozen=True, slots=True)
class Declared:
    """Name, type and shape of a value.

    Attributes:
        name: The value's name.
        type: Name of its element type; empty where it has none or is no tensor.
        dtype: The same as NumPy has it; None for strings, whose arrays are of several kinds.
        shape: As the model declares it, for messages; None where it does not.
        extents: The extent of every axis, None where it varies; None where the rank is not known.
        node: Name of the node that computes it, or empty.
    """

    name: str
    type: str
    dtype: np.dtype | None
    shape: ir.Shape | None
    extents: tuple[int | None, ...] | None
    node: str

    def has_type_of(self, array: np.ndarray) -> bool:
        """Whether an array holds elements of the declared type; anything does where none is declared."""
        # Types of NumPy compare quickly; only another byte order or a string needs the names.
        if self.dtype is not None and array.dtype == self.dtype:
            return True
        return not self.type or matches(array, self.type)

    def has_shape(self, shape: Sequence[int]) -> bool:
        """Whether the declared shape allows this one."""
        extents = self.extents
        if extents is None or extents == shape:
            return True
        return len(extents) == len(shape) and all(want is None or want == got for want, got in zip(extents, shape))


class ShapeMismatch(NamedTuple):
    """A result whose shape the model rules out.

    Attributes:
        node: Name of the node that computes it, or empty.
        text: What is wrong, to follow the name of the engine.
    """

    node: str
    text: str


def declared(value: ir.Value) -> Declared:
    """What the model declares about `value`."""
    type_, shape, producer = value_type(value), value.shape, value.producer()
    extents = None
    if shape is not None:
        extents = tuple(extent if isinstance(extent, int) and extent >= 0 else None for extent in shape)
    return Declared(
        name=value.name or "",
        type=type_,
        dtype=dtype_of(value).numpy() if type_ and type_ != "string" else None,
        shape=shape,
        extents=extents,
        node=(producer.name or value.name or "") if producer is not None else "",
    )


def shape_mismatches(values: Sequence[Declared], results: Mapping[str, object]) -> list[ShapeMismatch]:
    """The results whose rank or known extents are not those that the model declares; sequences have no shape."""
    found = []
    for value in values:
        shape = getattr(results[value.name], "shape", None)
        if shape is None or value.has_shape(shape):
            continue
        text = f"gives '{value.name}' the shape {list(shape)}, the model declares {value.shape}"
        found.append(ShapeMismatch(value.node, text))
    return found


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


def arrays_of(name: str, value: object) -> dict[str, np.ndarray]:
    """The arrays in one output, by name: `scores` for a tensor, `scores[0]` in a sequence, `scores['cat']` in a map.

    A list of maps of numbers, which is what classifiers of scikit-learn give, becomes one array per key. Nothing is
    there of an optional output that is empty.
    """
    import numpy as np

    if value is None:
        return {}
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Mapping) for item in value):
        return {f"{name}[{key!r}]": np.asarray([item.get(key, np.nan) for item in value]) for key in value[0]}
    if isinstance(value, Mapping):
        items = ((f"{name}[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        items = ((f"{name}[{index}]", item) for index, item in enumerate(value))
    else:
        return {name: np.asarray(value)}
    return {inner: array for label, item in items for inner, array in arrays_of(label, item).items()}
