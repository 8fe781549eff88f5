"""The inputs of a model, as a YAML file of the vendor's tools names them and gives their shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.ir.required import name_of
from dovetail.suggestions import did_you_mean

from dovetail_bpu_int8.extents import extents_of
from dovetail_bpu_int8.vendor.asked import names_in
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Node, Scalar

if TYPE_CHECKING:
    from dovetail.ir.model import Model


_EXTENT = re.compile("0*[1-9][0-9]{0,17}")  # fits into an int64


@dataclass(frozen=True)
class Inputs:
    """What a file says of the inputs.

    Attributes:
        place: Where it says so.
        names: Their names, in the order of everything else that is said of them; empty for the model's own order.
        shapes: Their shapes, in this order; empty for those of the model.
    """

    place: Node
    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    def of(self, model: Model) -> dict[str, tuple[int, ...] | None]:
        """The inputs of a model by name, in the order of the file, with their shapes where these are known.

        Raises:
            FileError: Names or shapes are not those of the model.
        """
        inputs = {name_of(value): value for value in model.graph.inputs if value.name not in model.graph.initializers}
        names = self.names or tuple(inputs)
        for name in names:
            if name not in inputs:
                problem = f"input_name: the model has no input '{name}'{did_you_mean(name, inputs)}"
                raise FileError(self.place, problem, f"its inputs are {', '.join(inputs)}")
        if self.shapes and len(self.shapes) != len(names):
            problem = f"input_shape gives {len(self.shapes)} shapes, and there are {len(names)} inputs"
            raise FileError(self.place, problem, f"write one for each of {'; '.join(names)}, with ; between them")
        found: dict[str, tuple[int, ...] | None] = {}
        for index, name in enumerate(names):
            declared = _extents(inputs[name])
            given = self.shapes[index] if self.shapes else None
            if given is not None and declared is not None and not _agree(given, declared):
                has = "x".join(str(extent) if isinstance(extent, int) else "?" for extent in declared)
                problem = f"input_shape: '{name}' is {has} in the model, and {'x'.join(map(str, given))} here"
                raise FileError(self.place, problem, "only extents that the model leaves open can be chosen")
            known = extents_of(inputs[name])
            found[name] = given if known is None else tuple(known)
        return found

    def fixed(self, model: Model) -> dict[str, list[int]]:
        """The shapes of the inputs that the model leaves open and the file does not.

        Raises:
            FileError: Names or shapes are not those of the model.
        """
        declared = {name_of(value): _extents(value) for value in model.graph.inputs}
        return {
            name: list(shape)
            for name, shape in self.of(model).items()
            if shape is not None and ((known := declared[name]) is None or tuple(known) != shape)
        }


def read_inputs(inputs: Entries) -> Inputs:
    """Read `input_name` and `input_shape`.

    Raises:
        FileError: A shape is none.
    """
    shapes = words_of(inputs, "input_shape")
    place = next((node for key in ("input_shape", "input_name") if (node := inputs.get(key)) is not None), inputs)
    return Inputs(place, tuple(word.raw for word in words_of(inputs, "input_name")), tuple(map(_shape, shapes)))


def words_of(entries: Entries, key: str) -> list[Scalar]:
    """The words under a key, one for each input; none if it is not there."""
    node = entries.get(key)
    return [] if node is None else list(names_in(node))


def _shape(word: Scalar) -> tuple[int, ...]:
    parts = [part.strip() for part in re.split(r"[xX,]", word.raw)]
    if not all(_EXTENT.fullmatch(part) for part in parts):
        shown = word.raw if len(word.raw) <= 60 else f"{word.raw[:60]}..."
        raise FileError(word, f"input_shape: '{shown}' is no shape", "write extents with x between: 1x3x224x224")
    return tuple(map(int, parts))


def _extents(value: Any) -> list[object] | None:
    return None if value.shape is None else list(value.shape)


def _agree(given: tuple[int, ...], declared: list[object]) -> bool:
    return len(given) == len(declared) and all(
        not isinstance(extent, int) or extent == number for extent, number in zip(declared, given, strict=True)
    )
