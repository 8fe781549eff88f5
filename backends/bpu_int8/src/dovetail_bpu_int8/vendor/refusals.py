"""Combinations of file and model that hb_mapper and hb_compile reject, though each is valid alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail_bpu_int8.vendor.inputs import words_of
from dovetail_bpu_int8.vendor.tree import Entries, FileError, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.ir import Model


_CHANNELS = {"nv12": 3, "yuv444": 3, "yuv444_128": 3, "rgb": 3, "bgr": 3, "gray": 1}
_TYPES = ("input_type_rt", "input_type_train")
_NUMBERS = {"mean_value": "mean", "scale_value": "scale", "std_value": "scale"}  # with their names in norm_type
_OUTPUTS = 32


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing settings of a file for input channels.

    Attributes:
        types: Image types by key, in the order of the inputs.
        numbers: One number, or one per channel, by key, in the order of the inputs.
        layouts: The layouts of the inputs.
        kinds: The numbers in use, from `norm_type`.
    """

    types: Mapping[str, Sequence[Scalar]]
    numbers: Mapping[str, Sequence[Scalar]]
    layouts: Sequence[Scalar]
    kinds: Sequence[Scalar]

    @classmethod
    def of(cls, inputs: Entries) -> Preprocessing:
        """Read the settings from `input_parameters`."""
        types, numbers = ({key: words_of(inputs, key) for key in keys} for keys in (_TYPES, _NUMBERS))
        return cls(types, numbers, words_of(inputs, "input_layout_train"), words_of(inputs, "norm_type"))

    def check(self, shapes: Mapping[str, Sequence[int] | None]) -> None:
        """Check the settings against the inputs of a model, except inputs of rank other than 4 or with open channels.

        Args:
            shapes: The shapes of the inputs, in the order of the file.

        Raises:
            FileError: The settings do not match the inputs.
        """
        for index, (name, shape) in enumerate(shapes.items()):
            layout = _at(self.layouts, index)
            if shape is None or len(shape) != 4:
                continue
            channels = shape[3 if layout is not None and layout.raw.upper() == "NHWC" else 1]
            for key, words in self.types.items():
                word = _at(words, index)
                wanted = _CHANNELS.get(word.raw.lower()) if word is not None else None
                if word is not None and wanted is not None and wanted != channels:
                    fitting = "featuremap" if channels != 1 else "gray, or featuremap"
                    problem = f"{key}: {word.raw} is an image of {_channels(wanted)}, and '{name}' has {channels}"
                    raise FileError(word, problem, f"write {fitting}, or check input_layout_train")
            kind = _at(self.kinds, index)
            for key, words in self.numbers.items():
                word = _at(words, index) if kind is None or _NUMBERS[key] in kind.raw else None
                count = len(re.split(r"[\s,]+", word.raw.strip())) if word is not None else 1
                if word is not None and count not in (1, channels):
                    problem = f"{key}: {count} numbers stand there, and '{name}' has {_channels(channels)}"
                    raise FileError(word, problem, "write one number, or one for each channel")


def check_outputs(model: Model, place: Node) -> None:
    """Check that the vendor's tool supports the model's number of outputs.

    Raises:
        FileError: There are too many outputs.
    """
    count = len(model.graph.outputs)
    if count > _OUTPUTS:
        problem = f"onnx_model: the model has {count} outputs, and the vendor's tool takes {_OUTPUTS} at most"
        raise FileError(place, problem, "join outputs by a Concat, or leave some out")


def _channels(count: int) -> str:
    return f"{count} channel" if count == 1 else f"{count} channels"


def _at(words: Sequence[Scalar], index: int) -> Scalar | None:
    """Return the setting of one input; a single word applies to all of them."""
    return words[index] if index < len(words) else words[0] if len(words) == 1 else None
