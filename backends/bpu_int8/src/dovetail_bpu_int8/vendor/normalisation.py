"""What hb_mapper's preprocess node does to inputs: the mean is taken away, and the rest is scaled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from dovetail.suggestions import did_you_mean

from dovetail_bpu_int8.vendor.asked import names_in
from dovetail_bpu_int8.vendor.inputs import words_of
from dovetail_bpu_int8.vendor.marches import HB_MAPPER
from dovetail_bpu_int8.vendor.tree import Entries, FileError

if TYPE_CHECKING:
    from dovetail_bpu_int8.vendor.asked import Asked


Change: TypeAlias = tuple[np.ndarray, np.ndarray]
"""What is taken away from an input, and what the rest is multiplied by."""

_T = TypeVar("_T")
_KINDS = ("no_preprocess", "data_mean", "data_scale", "data_mean_and_scale")
_KEYS = ("norm_type", "mean_value", "scale_value", "std_value")
_NOTHING, _ONE = np.zeros(1, np.float32), np.ones(1, np.float32)


def normalisation(inputs: Entries, count: int, asked: Asked) -> tuple[Change | None, ...]:
    """What hb_mapper's preprocess node does to each input, whose samples are not normalised yet.

    hb_compile calibrates before it adds that node, on samples that are.
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
        asked.note(f"{node.where}: {why}", "normalise the samples as the model expects them")
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
        why = "samples are normalised accordingly, and the model takes normalised inputs"
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
    """What is said of one input; a single word is said of all of them."""
    return values[index] if index < len(values) else values[0] if len(values) == 1 else None
