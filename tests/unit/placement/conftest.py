"""A backend of two floats, partitioners for tests, good and broken ones, and the digits with an image."""

from pathlib import Path

import numpy as np
import pytest
from dovetail.plugin import Partitioner

DIGITS = Path(__file__).parents[3] / "examples" / "digits"


FLOATS = """
backend: {name}
device: npu
opset: 13..26
dynamic: accept
precision: {{low: float16, high: float32}}
policies: fp16
types: {{f: [float16, float32]}}
ops: {{"{ops}": {{types: f}}}}
place: {{strategy: {strategy}{options}}}
emit: {{engines: [onnxruntime-cpu]}}
"""


@pytest.fixture
def float_backend():
    """`float_backend(name, ops)`: the file of a backend that takes these operators in float16 and float32."""

    def text(name, ops, strategy="autocast", options=""):
        return FLOATS.format(name=name, ops=ops, strategy=strategy, options=options)

    return text


@pytest.fixture
def digits_and_image():
    """The path of a small convolutional net, and one input for it."""
    return DIGITS / "digits.onnx", {"image": np.load(DIGITS / "test.npz")["image"][:1]}


class OneByOne(Partitioner):
    """Every node is a region."""

    def form(self, view):
        return [[node] for node in view.nodes]


class AllInOne(Partitioner):
    """All nodes are one region, convex or not."""

    def form(self, view):
        return [view.nodes]


class ByBackend(Partitioner):
    """One region per backend."""

    def form(self, view):
        return [[node for node in view.nodes if view.backend_of(node) == name] for name in view.backends]


class Loses(OneByOne):
    def form(self, view):
        return [part for part in super().form(view) if part[0].name != "n1"]


class Doubles(OneByOne):
    def form(self, view):
        return [*super().form(view), [view.nodes[0]]]


class Empty(OneByOne):
    def form(self, view):
        return [*super().form(view), []]


class Foreign(OneByOne):
    def form(self, view):
        return [[node] for node in view.graph]


class Junk(Partitioner):
    def form(self, view):
        return ["n0", "n1"]


class Crash(Partitioner):
    def form(self, view):
        return 1 / 0


class Leaves(Partitioner):
    def form(self, view):
        raise SystemExit(3)


PARTITIONERS = {
    "one-by-one": OneByOne,
    "all-in-one": AllInOne,
    "by-backend": ByBackend,
    "loses": Loses,
    "doubles": Doubles,
    "empty": Empty,
    "foreign": Foreign,
    "junk": Junk,
    "crash": Crash,
    "leaves": Leaves,
}
