"""Weights with a scale per block: what is stored, when it is computed, and the observer `least-squares`."""

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.ir import Format
from dovetail_quantize.blocks import BlockWeight
from dovetail_quantize.integers import quantize_array, shaped
from dovetail_quantize.observers import least_squares
from dovetail_quantize.observers.clipping import MeanSquaredError
from dovetail_quantize.observers.extremes import MinMax
from dovetail_quantize.observers.least_squares import LeastSquares
from dovetail_quantize.quantized_tensor import quantized_in_slabs

FORMATS = [
    "int4[symmetric,axis=0,group=32]",
    "int4[symmetric,axis=1,group=32]",
    "uint4[symmetric,axis=0,group=16]",
    "uint4[asymmetric,axis=0,group=32]",
    "uint4[asymmetric,axis=1,group=64]",
    "int8[symmetric,axis=1]",
]
PARTS = {"integers": "i", "scale": "s", "zero_point": "z"}


def weight(shape=(64, 128), seed=0):
    return np.random.default_rng(seed).standard_t(5, shape).astype(np.float32)


def observed(kind, format_, array):
    observer = kind(format_)
    observer.update(array)
    return observer.parameters()


def error(array, format_, parameters):
    """The squared error of an array in a format."""
    scale, zero = (shaped(part, format_, array.shape) for part in parameters)
    integers = quantize_array(array, format_, parameters).astype(np.float64)
    return float((((integers - zero) * scale - array) ** 2).sum())


@pytest.mark.parametrize("text", FORMATS)
def test_least_squares_is_not_worse_than_the_whole_range_nor_than_mse(text):
    format_, array = Format.of(text), weight()
    found = observed(LeastSquares, format_, array)
    assert min(found.scale) > 0 or format_.group is not None  # only blocks have a use for negative ones
    best = error(array, format_, found)
    assert best < error(array, format_, observed(MinMax, format_, array))
    assert best < 1.02 * error(array, format_, observed(MeanSquaredError, format_, array))


@pytest.mark.parametrize("text", FORMATS)
def test_ranges_that_are_not_tried_would_gain_next_to_nothing(text, monkeypatch):
    format_, array = Format.of(text), weight()
    found = error(array, format_, observed(LeastSquares, format_, array))

    def search_all(self, fit):
        for shrunk in least_squares._SHRUNK:
            fit(shrunk)

    monkeypatch.setattr(least_squares._Best, "search", search_all)
    assert found <= 1.001 * error(array, format_, observed(LeastSquares, format_, array))


@pytest.mark.parametrize("text", FORMATS)
def test_zeros_are_exact(text):
    format_, array = Format.of(text), np.zeros((64, 128), np.float32)
    assert error(array, format_, observed(LeastSquares, format_, array)) == 0


def test_integers_times_a_scale_are_exact():
    format_ = Format.of("int4[symmetric,axis=0,group=32]")
    array = np.random.default_rng(0).integers(-7, 8, (64, 8)).astype(np.float32)
    array[::32] = 7
    assert error(array * np.float32(0.25), format_, observed(LeastSquares, format_, array * np.float32(0.25))) < 1e-9


def test_a_number_that_is_not_finite_is_an_error():
    array = weight()
    array[3, 5] = np.nan
    with pytest.raises(ValueError, match="infinite or NaN"):
        observed(LeastSquares, Format.of(FORMATS[0]), array)


def test_values_cannot_be_observed():
    observer = LeastSquares(Format.of(FORMATS[0]))
    observer.update(weight())
    with pytest.raises(ValueError, match="for weights"):
        observer.update(weight())
    with pytest.raises(ValueError, match="no number"):
        LeastSquares(Format.of(FORMATS[0])).parameters()


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("text", FORMATS[:-1])
@pytest.mark.parametrize("shape", [(64, 128), (4096, 576)], ids=["one slab", "several slabs"])
def test_stored_parts_are_those_of_the_whole_weight(text, shape):
    format_, array = Format.of(text), weight(shape)
    parameters = observed(MinMax, format_, array)
    source = ir.Tensor(array, name="w")
    blocks = BlockWeight(source, format_, lambda part: observed(MinMax, format_, part), ir.DataType.FLOAT)
    integers, scale, zero = blocks.constants(PARTS)
    assert (integers.numpy() == quantize_array(array, format_, parameters)).all()
    assert scale.numpy().reshape(-1).tolist() == list(parameters.scale)
    assert zero.numpy().astype(int).reshape(-1).tolist() == list(parameters.zero_point)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["as written", "zero points first"])
def test_a_weight_is_observed_once_for_its_three_parts(order):
    format_, array, seen = Format.of(FORMATS[3]), weight(), []
    source = ir.Tensor(array, name="w")
    blocks = BlockWeight(
        source, format_, lambda part: seen.append(1) or observed(MinMax, format_, part), ir.DataType.FLOAT
    )
    tensors = blocks.constants(PARTS)
    for rounds in (1, 2):  # a second writing begins anew, since nothing is kept
        for index in order:
            tensors[index].numpy()
        assert len(seen) == rounds


@pytest.mark.parametrize("text", ["int8[symmetric,axis=0]", "int8[symmetric,axis=-1]", "uint8[asymmetric]"])
def test_slabs_of_a_large_weight_give_what_the_whole_gives(text):
    format_, array = Format.of(text), weight((4099, 300))
    parameters = observed(MinMax, format_, array)
    assert (quantized_in_slabs(array, format_, parameters) == quantize_array(array, format_, parameters)).all()
