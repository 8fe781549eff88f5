"""Delta debugging, and models made of parts of a model."""

import io
import random

import dovetail
import numpy as np
import pytest
from dovetail_verify.reducing.ddmin import minimized
from dovetail_verify.reducing.parts import ModelParts
from dovetail_verify.reducing.recording import give_types, record, typed_copy

TEXT = """
<ir_version: 9, opset_import: ["" : 20]>
g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
<float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>
{
  m = MatMul (x, w)
  r = Relu (m)
  s = Shape (x)
  f = Reshape (r, s)
  y = Tanh (f)
  z = Neg (m)
}
"""


@pytest.mark.parametrize("seed", range(20))
def test_no_item_can_be_removed(seed):
    """Whatever must stay stays, in its order, and nothing else."""
    generator = random.Random(seed)
    needed = sorted(generator.sample(range(200), generator.randint(1, 6)))
    tests = []

    def fails(items):
        assert list(items) == sorted(items)
        tests.append(len(items))
        return set(needed) <= set(items)

    assert minimized(range(200), fails) == needed


def test_one_item_is_found_in_a_logarithmic_number_of_tests():
    tests = []

    def fails(items):
        tests.append(len(items))
        return 70_000 in items

    assert minimized(range(100_000), fails) == [70_000]
    assert len(tests) <= 36


@pytest.fixture
def parts():
    import onnx

    plugins = dovetail.load_plugins()
    model = typed_copy(dovetail.open(onnx.parser.parse_model(TEXT), plugins), plugins)
    feeds = {"x": np.float32([[1, -2, 3, -4]])}
    recorded = record(model, feeds, io.BytesIO(), plugins)
    give_types(model.graph, recorded)
    return ModelParts(model, feeds, recorded)


@pytest.mark.parametrize(
    ("kept", "inputs", "constants", "outputs"),
    [
        ([0, 1, 2, 3, 4, 5], ["x"], ["w"], ["y", "z"]),
        ([0, 1], ["x"], ["w"], ["r"]),  # what nothing reads any more is an output
        ([1], ["m"], [], ["r"]),
        ([3], ["r"], ["s"], ["f"]),  # a shape is a constant, not an input
        ([1, 4], ["m", "f"], [], ["r", "y"]),  # the way from one to the other is cut
        ([5], ["m"], [], ["z"]),
    ],
)
def test_values_from_elsewhere_are_inputs_with_their_arrays(parts, kept, inputs, constants, outputs):
    part = parts.part(kept)
    assert [value.name for value in part.model.graph.inputs] == inputs == list(part.feeds)
    assert list(part.model.graph.initializers) == constants
    assert [value.name for value in part.model.graph.outputs] == outputs
    if "m" in part.feeds:
        assert part.feeds["m"].tolist() == [[1, -2, 3, -4]]
