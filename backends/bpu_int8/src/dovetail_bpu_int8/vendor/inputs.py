"""Model inputs in a YAML file of the vendor's tools: names and shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from dovetail.ir import name_of
from dovetail.text import did_you_mean

from dovetail_bpu_int8.facts import extents_of
from dovetail_bpu_int8.vendor.asked import names_in
from dovetail_bpu_int8.vendor.marches import HB_MAPPER
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Node, Scalar

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_bpu_int8.vendor.asked import VendorSettings


_EXTENT = re.compile("0*[1-9][0-9]{0,17}")  # fits in an int64


@dataclass(frozen=True)
class InputSettings:
    """Input settings of a file.

    Attributes:
        place: Their position in the file.
        names: Input names, in the order of the other settings; empty for the model's order.
        shapes: Their shapes, in this order; empty for those of the model.
    """

    place: Node
    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    def of(self, model: Model) -> dict[str, tuple[int, ...] | None]:
        """Return the inputs of a model by name, in the order of the file, with their shapes if known.

        Raises:
            FileError: Names or shapes do not match the model.
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
        """Return the input shapes that the file fixes and the model leaves open.

        Raises:
            FileError: Names or shapes do not match the model.
        """
        declared = {name_of(value): _extents(value) for value in model.graph.inputs}
        return {
            name: list(shape)
            for name, shape in self.of(model).items()
            if shape is not None and ((known := declared[name]) is None or tuple(known) != shape)
        }


def read_inputs(inputs: Entries) -> InputSettings:
    """Read `input_name` and `input_shape`.

    Raises:
        FileError: A shape is malformed.
    """
    shapes = words_of(inputs, "input_shape")
    place = next((node for key in ("input_shape", "input_name") if (node := inputs.get(key)) is not None), inputs)
    return InputSettings(place, tuple(word.raw for word in words_of(inputs, "input_name")), tuple(map(_shape, shapes)))


def words_of(entries: Entries, key: str) -> list[Scalar]:
    """Return the words under a key, one for each input; empty if the key is missing."""
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


Change: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Mean to subtract from an input, and scale to multiply the difference by."""

_T = TypeVar("_T")
_KINDS = ("no_preprocess", "data_mean", "data_scale", "data_mean_and_scale")
_KEYS = ("norm_type", "mean_value", "scale_value", "std_value")
_NOTHING, _ONE = np.zeros(1, np.float32), np.ones(1, np.float32)


def normalization(inputs: Entries, count: int, asked: VendorSettings) -> tuple[Change | None, ...]:
    """Return the normalization of hb_mapper's preprocess node for each input; its samples are not normalized yet.

    hb_compile calibrates on normalized samples, before it adds that node.
    """
    kinds = [word.raw for word in words_of(inputs, "norm_type")]
    for word in words_of(inputs, "norm_type"):
        if word.raw not in _KINDS:
            near = did_you_mean(word.raw, _KINDS)
            raise FileError(word, f"norm_type '{word.raw}' is not known{near}", f"it is one of {', '.join(_KINDS)}")
    node = next((node for key in _KEYS if (node := inputs.get(key)) is not None and list(names_in(node))), None)
    if node is None or kinds and set(kinds) == {"no_preprocess"}:
        return ()
    if asked.march.tool != HB_MAPPER:
        why = "samples are taken as they are: hb_compile adds mean and scale behind calibration"
        asked.note(f"{node.where}: {why}", "normalize the samples as the model expects them")
        return ()
    means, scales = _per_input(inputs, "mean_value"), _per_input(inputs, "scale_value")
    found: list[Change | None] = []
    for index in range(count):
        kind = _at(kinds, index) or "data_mean_and_scale"
        mean = _at(means, index) if "mean" in kind else None
        scale = _at(scales, index) if "scale" in kind else None
        layout = _at([word.raw for word in words_of(inputs, "input_layout_train")], index) or "NCHW"
        shape = (1, 1, 1, -1) if layout == "NHWC" else (1, -1, 1, 1)
        both = (_NOTHING if mean is None else mean, _ONE if scale is None else scale)
        first, second = (one.reshape(shape) if one.size > 1 else one.reshape(1) for one in both)
        found.append(None if mean is None and scale is None else (first, second))
    if any(change is not None for change in found):
        why = "samples are normalized accordingly, and the model takes normalized inputs"
        written = "hb_mapper adds a preprocess node that does so, as the config.yaml that is written says"
        asked.note(f"{node.where}: {why}", written)
    return tuple(found)


def _per_input(inputs: Entries, key: str) -> list[np.ndarray | None]:
    found: list[np.ndarray | None] = []
    for word in words_of(inputs, key):
        if word.raw.strip("'\"").lower() == "none":
            found.append(None)
            continue
        try:
            numbers = np.array([float(part) for part in re.split(r"[\s,]+", word.raw)], np.float32)
        except ValueError:
            numbers = np.array([np.nan], np.float32)
        if not np.isfinite(numbers).all():
            raise FileError(word, f"{key}: '{word.raw}' is no number, and no numbers with spaces between")
        found.append(numbers)
    return found


def _at(values: Sequence[_T], index: int) -> _T | None:
    """Return the setting of one input; a single word applies to all of them."""
    return values[index] if index < len(values) else values[0] if len(values) == 1 else None
