"""`dovetail.input_data`: data in any form as one object, for programs that run models themselves."""

from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.plugin import DovetailError

DIGITS = Path(__file__).parents[3] / "examples/digits/digits.onnx"


@pytest.fixture(scope="module")
def model():
    return dovetail.open(DIGITS)


def images(count):
    return np.zeros((count, 1, 8, 8), np.float32)


def test_batches_feed_a_result(model):
    data = dovetail.input_data({"image": images(100), "labels": np.arange(100)})
    data.check(model)
    compiled = dovetail.compile(model, "host")
    sizes = [
        (len(compiled.run(feeds)["probabilities"]), len(truth[""])) for feeds, truth in data.batches(compiled.model)
    ]
    assert sizes == [(64, 64), (36, 36)]


def test_data_that_does_not_fit_is_refused(model):
    with pytest.raises(DovetailError, match="the model has no input 'picture'"):
        dovetail.input_data({"picture": images(1)}).check(model)


def test_an_iterator_is_kept_so_that_it_is_hashed_and_read_alike(model):
    data = dovetail.input_data({"image": images(n)} for n in (1, 2))
    assert data.digest() == dovetail.input_data([{"image": images(1)}, {"image": images(2)}]).digest() != ""
    assert [len(feeds["image"]) for feeds, _ in data.batches(model)] == [1, 2]
    assert data.given is dovetail.input_data(data.given).given
