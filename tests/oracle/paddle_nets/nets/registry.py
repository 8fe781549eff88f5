"""Registers a net with its inputs, which are written `f32[?2,3,8,8]`: `?2` is an open extent that is 2 here."""

import re
from dataclasses import dataclass

import numpy as np

__all__ = ["NETS", "Input", "Net", "net"]

_TYPES = {"f16": "float16", "f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "b": "bool"}
_TEXT = re.compile(r"(\w+)\[([^\]]*)\](?:<(\d+))?")


@dataclass(frozen=True)
class Input:
    """One input of a net: its type, its extents (None where open), and those of the sample."""

    name: str
    dtype: str
    shape: tuple
    sample: tuple
    below: int

    @classmethod
    def parse(cls, name: str, text: str) -> "Input":
        kind, extents, below = _TEXT.fullmatch(text).groups()
        parts = [part for part in extents.split(",") if part]
        return cls(
            name,
            _TYPES[kind],
            tuple(None if part.startswith("?") else int(part) for part in parts),
            tuple(int(part.lstrip("?")) for part in parts),
            int(below or 5),
        )

    def values(self, generator: np.random.Generator) -> np.ndarray:
        """Normal numbers, or integers from 0 (from 1 for lengths)."""
        if self.dtype == "bool":
            return generator.random(self.sample) < 0.5
        if self.dtype.startswith("int"):
            return generator.integers(int(self.name == "lengths"), self.below, self.sample).astype(self.dtype)
        return generator.standard_normal(self.sample).astype(self.dtype)


@dataclass(frozen=True)
class Net:
    """A class or function, and its inputs."""

    name: str
    make: object
    inputs: list


NETS: dict[str, Net] = {}


def net(**inputs: str):
    """Register a layer's class or a function under its name."""

    def register(made):
        NETS[made.__name__] = Net(made.__name__, made, [Input.parse(name, text) for name, text in inputs.items()])
        return made

    return register
