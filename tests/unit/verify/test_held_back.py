"""What a search for a goal does not see, and what a part of the data says of other data."""

import math

import numpy as np
import pytest
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.data_split import split_data
from dovetail_verify.accuracy.raising import described
from dovetail_verify.compare import verify

HEAD = '<ir_version: 10, opset_import: ["": 22]>'


def net(nodes="y = Tanh (x)", rows="N"):
    return open_text(f"{HEAD} g (float[{rows},2] x) => (float[M,2] y) {{ {nodes} }}", "test")


def tanh(feeds):
    return {"y": np.tanh(feeds["x"])}


def mean(feeds):
    return {"y": feeds["x"].mean(keepdims=True)}


@pytest.mark.parametrize(
    ("rows", "run", "text"),
    [
        (7, tanh, "accuracy is that of 2 of 7 rows, which the search for the goal did not see"),
        (5, tanh, "nothing could be held back: it is one batch; give more files or samples"),
        (64, mean, "are run apart; give more files"),
    ],
)
def test_what_is_held_out_is_said_and_why_nothing_is(rows, run, text):
    data = {"x": np.arange(rows, dtype=np.float32)[:, None].repeat(2, axis=1)}
    assert described(split_data(net(), data, run, 3, 6)).endswith(text)


def compared(errors):
    """A verification on batches of ones with these errors."""
    data = [{"x": np.ones((2, 2), np.float32) * (index + 1)} for index in range(len(errors))]
    return verify(net(rows="2"), lambda feeds: {"y": np.ones((2, 2))},
                  lambda feeds: {"y": np.ones((2, 2)) + errors[int(feeds["x"][0, 0]) - 1]}, data)  # fmt: skip


def test_a_bad_batch_counts_as_much_as_it_would_alone():
    found = compared([1e-3] * 11 + [1e-1])
    assert found.worst_snr_db > 30
    assert found.cautious[0].snr_db == pytest.approx(20)
    assert 1 - found.cautious[0].cosine > 1 - found.outputs[0].cosine or found.outputs[0].cosine == 1


def test_few_batches_that_differ_promise_less_than_their_worst():
    assert compared([1e-3, 3e-2]).cautious[0].snr_db < 20 * math.log10(1 / 3e-2)


def test_batches_alike_and_exact_ones_are_rated_as_they_are():
    assert compared([1e-2, 1e-2, 1e-2]).cautious[0].snr_db == pytest.approx(40)
    assert compared([0, 0]).cautious[0].snr_db == math.inf
    assert compared([1e-2]).cautious[0].snr_db == pytest.approx(40)
