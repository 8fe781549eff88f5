"""What the table says of one net."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from trained_nets.wheels import Wheels

Feeds = dict[str, np.ndarray]
Stream = list[Feeds]
"""Inputs that belong together, in order; one set of them where a net carries no state."""


@dataclass(frozen=True)
class Net:
    """A trained net.

    Attributes:
        name: What the table calls it.
        wheel: `name==version` on the package index.
        path: The ONNX file in the wheel.
        about: Family, and what its inputs are.
        streams: Makes the inputs: at least 16 streams for a net that is fast. Every other one is for calibration only.
        carried: Outputs that are fed back as inputs within a stream, as the application does. The first feeds of a
            stream hold their initial values.
        classes: Outputs whose last axis holds scores of classes, so that the best one is an answer.
    """

    name: str
    wheel: str
    path: str
    about: str
    streams: Callable[[Wheels], list[Stream]]
    carried: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()


def single(name: str, arrays) -> list[Stream]:
    """Streams of one input each."""
    return [[{name: np.ascontiguousarray(array)}] for array in arrays]
