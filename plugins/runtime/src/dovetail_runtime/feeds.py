"""Inputs checked against a model's declarations, and outputs as arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from dovetail.errors import DovetailError
from dovetail.ir import dtype_of, name_of
from dovetail.text import near_misses
from dovetail_transforms.canonicalize.fix_inputs import without_fixed
from dovetail_transforms.canonicalize.input_ranges import InputRange, declared_range

from dovetail_runtime.serialize import has_type, value_type
from dovetail_runtime.texts import as_texts

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model


class DeclaredValue(NamedTuple):
    """Declaration of a value: name, type and shape.

    Attributes:
        name: The value's name.
        type: Name of its element type; empty if it has none or is not a tensor.
        dtype: The NumPy dtype; None for strings, which have several.
        shape: The declared shape, for messages; None if undeclared.
        extents: The extent of every axis, None for an open one; None if the rank is unknown.
        node: Name of its producer, or empty.
        range: For an input, the range of its integers; None if it is not limited.
    """

    name: str
    type: str
    dtype: np.dtype | None
    shape: ir.Shape | None
    extents: tuple[int | None, ...] | None
    node: str
    range: InputRange | None = None

    def has_type_of(self, array: np.ndarray) -> bool:
        """Check whether an array has the declared element type; true if none is declared."""
        # Comparing NumPy dtypes is fast; only a foreign byte order or a string needs the names.
        if self.dtype is not None and array.dtype == self.dtype:
            return True
        return not self.type or has_type(array, self.type)

    def has_shape(self, shape: Sequence[int]) -> bool:
        """Check whether the declared shape allows a shape."""
        extents = self.extents
        if extents is None or extents == shape:
            return True
        return len(extents) == len(shape) and all(want is None or want == got for want, got in zip(extents, shape))


class ShapeMismatch(NamedTuple):
    """A result whose shape contradicts the model.

    Attributes:
        node: Name of its producer, or empty.
        text: Description of the mismatch, to follow the engine's name.
    """

    node: str
    text: str


def declared(value: ir.Value) -> DeclaredValue:
    """Return the declaration of `value` in the model."""
    type_, shape, producer = value_type(value), value.shape, value.producer()
    extents = None
    if shape is not None:
        extents = tuple(extent if isinstance(extent, int) and extent >= 0 else None for extent in shape)
    return DeclaredValue(
        name=value.name or "",
        type=type_,
        dtype=dtype_of(value).numpy() if type_ and type_ != "string" else None,
        shape=shape,
        extents=extents,
        node=(producer.name or value.name or "") if producer is not None else "",
        range=declared_range(value) if producer is None and value.metadata_props else None,
    )


def shape_mismatches(values: Sequence[DeclaredValue], results: Mapping[str, object]) -> list[ShapeMismatch]:
    """Return the results whose rank or static extents differ from the declared ones; sequences have no shape."""
    found = []
    for value in values:
        shape = getattr(results[value.name], "shape", None)
        if shape is None or value.has_shape(shape):
            continue
        text = f"gives '{value.name}' the shape {list(shape)}, the model declares {value.shape}"
        found.append(ShapeMismatch(value.node, text))
    return found


def required_inputs(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs that every run needs: those without a default."""
    return [value for value in graph.inputs if not value.is_initializer()]


def optional_inputs(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs with a default, an initializer of the same name, which a run may replace."""
    return [value for value in graph.inputs if value.is_initializer()]


def given_inputs(graph: ir.Graph, given: Collection[str]) -> list[ir.Value]:
    """Return the inputs that a run has: the required ones, and those with a default for which there is a value."""
    return [value for value in graph.inputs if not value.is_initializer() or value.name in given]


def without_defaults(model: Model, names: Collection[str]) -> Model:
    """Return a copy of a model in which some inputs with a default are required.

    Args:
        model: The model; weights are shared.
        names: The inputs.
    """
    copy = model.clone()
    for value in optional_inputs(copy.graph):
        if value.name in names:
            del copy.graph.initializers[name_of(value)]
            value.const_value = None
    copy.touch()
    return copy


class DeclaredInputs:
    """Declared inputs of a graph, against which every call is checked.

    Args:
        graph: The graph; an input that has a default need not be fed.
    """

    def __init__(self, graph: ir.Graph):
        self._wanted = {name_of(value): declared(value) for value in required_inputs(graph)}
        self._optional = frozenset(map(name_of, optional_inputs(graph)))
        self._constants = frozenset(graph.initializers)
        self._graph = graph

    def replaced(self, inputs: object) -> frozenset[str]:
        """Return the inputs with a default that are given nevertheless, and so replace it."""
        if not self._optional or not isinstance(inputs, Mapping):
            return frozenset()
        return self._optional.intersection(inputs)

    def checked(self, inputs: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Convert the inputs to arrays that match the declarations.

        Args:
            inputs: Arrays, lists or numbers by input name.

        Raises:
            DovetailError: An input is missing, unknown, or of another type or shape than the graph declares.
        """
        if not isinstance(inputs, Mapping):
            given, example = type(inputs).__name__, repr(next(iter(self._wanted), "x"))
            raise DovetailError(f"inputs are given by name, not as {given}", f"for example {{{example}: array}}")
        if inputs.keys() != self._wanted.keys():
            inputs = without_fixed(self._graph, inputs)
            self._check_names(inputs)
        return {name: _fitting(value, inputs[name]) for name, value in self._wanted.items()}

    def _check_names(self, inputs: Mapping[str, object]) -> None:
        for name in inputs:
            if name in self._constants:
                hint = "leave it out, or compile without --freeze-inputs if the source has it as an input"
                raise DovetailError(f"input '{name}' is a constant of this model and cannot be fed", hint)
            if name not in self._wanted:
                near = near_misses(name, self._wanted, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"its inputs are {', '.join(self._wanted) or 'none'}"
                raise DovetailError(f"the model has no input '{name}'", hint)
        missing = [name for name in self._wanted if name not in inputs]
        if missing:
            raise DovetailError(f"no value for input {', '.join(repr(name) for name in missing)}")


# Lossless conversions: accepted NumPy kinds by the kind of the declared type.
_TAKEN = {"float": "fiub", "int": "iub", "uint": "iub", "bool": "b"}


def as_array(given: object, value: DeclaredValue) -> np.ndarray | None:
    """Convert a list or number to an array of the declared type; None if its elements have another type.

    Integers convert to a declared float type; floats never convert to integers.
    """
    import numpy as np

    try:
        array = np.asarray(given)
        if value.dtype is None:
            return as_texts(array, value.name) if array.dtype.kind in "OUST" else None
        family = "float" if "float" in value.type else value.type.rstrip("0123456789")
        if array.size and array.dtype.kind not in _TAKEN.get(family, "fiub"):
            return None
        converted = array.astype(value.dtype)
    except (ValueError, TypeError, OverflowError):
        return None
    return converted if family == "float" or (converted == array).all() else None


def _shared(given: object) -> np.ndarray | None:
    """Import a DLPack object, such as a PyTorch or JAX tensor in main memory, without a copy; None for others."""
    import numpy as np

    if not hasattr(given, "__dlpack__"):
        return None
    try:
        return np.from_dlpack(given)
    except (BufferError, RuntimeError, TypeError, ValueError):  # on a device, or of a type that NumPy lacks
        return None


def _fitting(value: DeclaredValue, given: object) -> np.ndarray:
    import numpy as np

    if not value.type:
        return cast("np.ndarray", given)  # a sequence, which engines accept besides arrays
    array = given if isinstance(given, (np.ndarray, np.generic)) else _shared(given)
    array = as_array(given, value) if array is None else array
    if array is None:
        given_type = type(given).__name__
        raise DovetailError(f"input '{value.name}' is {value.type}; the {given_type} given holds something else")
    array = np.asarray(array)
    if value.type == "string":
        array = as_texts(array, value.name)
    if not value.has_type_of(array):
        raise DovetailError(f"input '{value.name}' is {value.type}, the value given is {array.dtype.name}")
    if not value.has_shape(array.shape):
        raise DovetailError(f"input '{value.name}' has shape {value.shape}, the value given has {list(array.shape)}")
    if value.range is not None and not value.range.holds(array):
        raise DovetailError(
            f"input '{value.name}' holds {int(array.min())} to {int(array.max())}, and the result was compiled for "
            f"{value.range}",
            f"compile with another --input-range {value.name}:LOW..HIGH",
        )
    # Convert to the native byte order, which engines expect.
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def arrays_of(name: str, value: object) -> dict[str, np.ndarray]:
    """Return the arrays in an output by name: `scores`, or `scores[0]` in a sequence, `scores['cat']` in a map.

    A list of maps of numbers, as scikit-learn classifiers return, becomes one array per key. An empty optional output
    yields no array.
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
