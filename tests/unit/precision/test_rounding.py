"""Weights in narrower types: rounded to nearest even, finite values staying finite, and losses counted."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from dovetail_precision.constant_range import fits
from dovetail_precision.rounding import converter
from dovetail_precision.weights import _PIECE, CastTensor

BFLOAT16, FLOAT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
INF, NAN = np.inf, np.nan


def convert(values, target):
    return converter(target)(np.array(values, np.float32))


@pytest.mark.parametrize("target", [BFLOAT16, FLOAT16], ids=str)
def test_rounding_is_that_of_ml_dtypes_for_every_exponent(target):
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 1 << 32, 200_000, np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < float(ml_dtypes.finfo(target).max))]
    result, losses = convert(values, target)
    with np.errstate(over="ignore"):
        expected = values.astype(target)
    assert (result.view(np.uint16) == expected.view(np.uint16)).all()
    assert (losses.clamped, losses.non_finite) == (0, 0)


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        # halfway between two neighbors: the even one
        (1 + 2**-8, BFLOAT16, 1.0),
        (1 + 3 * 2**-8, BFLOAT16, 1 + 2**-6),
        (1 + 2**-8 + 2**-20, BFLOAT16, 1 + 2**-7),
        (2049.0, FLOAT16, 2048.0),
        (2051.0, FLOAT16, 2052.0),
        # finite stays finite
        (3.4e38, BFLOAT16, 3.3895313892515355e38),
        (-3.4028235e38, BFLOAT16, -3.3895313892515355e38),
        (65519.0, FLOAT16, 65504.0),
        (65520.0, FLOAT16, 65504.0),
        (-1e30, FLOAT16, -65504.0),
        # denormals are kept, what is below half of the smallest becomes zero
        (1e-40, BFLOAT16, float(np.array(1e-40, np.float32).astype(ml_dtypes.bfloat16))),
        (6e-8, FLOAT16, 5.9604645e-08),
        (2e-8, FLOAT16, 0.0),
        (INF, FLOAT16, INF),
        (-INF, BFLOAT16, -INF),
    ],
)
def test_values(value, target, expected):
    result, _ = convert([value], target)
    assert float(result[0]) == pytest.approx(expected, rel=1e-7, abs=0)


@pytest.mark.parametrize("target", [BFLOAT16, FLOAT16], ids=str)
def test_signs_and_nans_are_kept(target):
    result, losses = convert([-0.0, 0.0, NAN], target)
    assert np.signbit(result[:2].astype(np.float32)).tolist() == [True, False]
    assert np.isnan(result[2].astype(np.float32))
    assert losses.flushed == 0
    assert losses.non_finite == 1


@pytest.mark.parametrize(
    ("values", "target", "losses"),
    [
        ([1, 2, 3], FLOAT16, (0, 0, 0)),
        ([1e6, -1e6, 1], FLOAT16, (2, 0, 0)),
        ([1e-9, -1e-9, 0, 1], FLOAT16, (0, 2, 0)),
        ([INF, -INF, NAN, 1], BFLOAT16, (0, 0, 3)),
        ([1e6, 1e-9, NAN], FLOAT16, (1, 1, 1)),
        ([3.4e38, 1e-39], BFLOAT16, (1, 0, 0)),
        ([], BFLOAT16, (0, 0, 0)),
    ],
)
def test_losses_are_counted(values, target, losses):
    _, counted = convert(values, target)
    assert (counted.clamped, counted.flushed, counted.non_finite) == losses
    assert bool(counted) == any(losses)


def tensor_of(shape, dtype=np.float32):
    return ir.tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype), name="w")


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4), (_PIECE,), (_PIECE + 1,), (2, _PIECE), (20, _PIECE - 1)])
def test_the_pieces_of_a_tensor_are_the_whole(shape):
    source = tensor_of(shape)
    cast = CastTensor(source, ir.DataType.BFLOAT16, "w")
    expected = source.numpy().astype(ml_dtypes.bfloat16)
    assert b"".join(cast.chunks()) == expected.tobytes() == cast.tobytes()
    assert cast.numpy().shape == shape
    assert (cast.numpy() == expected).all()
    assert cast.nbytes == expected.nbytes


def test_a_tensor_counts_what_was_lost_once_it_is_converted():
    cast = CastTensor(ir.tensor(np.array([1e6, NAN, 1], np.float32)), ir.DataType.FLOAT16, "w")
    assert cast.losses is None
    for _ in range(2):  # a second conversion does not count twice
        list(cast.chunks())
        assert (cast.losses.clamped, cast.losses.non_finite) == (1, 1)


@pytest.mark.parametrize("source", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_other_sources(source):
    cast = CastTensor(tensor_of((7,), source), ir.DataType.FLOAT, "w")
    assert (cast.numpy() == cast.source.numpy().astype(np.float32)).all()


@pytest.mark.parametrize(
    ("values", "name", "answer"),
    [
        ([65504.0], "float16", True),
        ([65505.0], "float16", False),
        ([-70000.0], "float16", False),
        ([INF, NAN], "float16", True),  # they stay what they are
        ([], "float16", True),
        ([3.4e38], "bfloat16", True),
        ([1e30], "float32", True),
    ],
)
def test_fits(values, name, answer):
    assert fits(ir.tensor(np.array(values, np.float32)), name) is answer
