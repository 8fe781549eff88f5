"""The steps that a random graph is grown by, one function per kind, and how often each is drawn."""

import numpy as np

from .grown_bodies import branch, loop
from .grown_computing import (
    attention,
    binary,
    clip,
    einsum,
    gemm,
    integer_operators,
    matmul,
    normalize,
    positive,
    quantized,
    recurrent,
    reduce,
    round_trip,
    softmax,
    swish,
    unary,
    where,
    whole_numbers,
)
from .grown_images import blocks, conv, conv_transpose, pool, resize, squeeze_excite
from .grown_moving import (
    choose,
    concat,
    embedding,
    expand,
    pad,
    reshape,
    shape_as_number,
    slices,
    split,
    squeeze,
    transpose,
)
from .grown_quantized import qoperators

STEPS = {
    step.__name__: step
    for step in (
        unary, clip, positive, binary, where, swish, squeeze_excite, conv, conv_transpose, pool, resize, blocks,
        normalize, matmul, attention, gemm, einsum, reduce, softmax, concat, split, slices, pad, transpose, reshape,
        squeeze, shape_as_number, expand, choose, embedding, whole_numbers, round_trip, quantized, integer_operators,
        recurrent, branch, loop, qoperators,
    )
}  # fmt: skip
WEIGHTS = {
    "conv": 8,
    "binary": 4,
    "unary": 4,
    "matmul": 3,
    "concat": 2,
    "pool": 2,
    "gemm": 2,
    "branch": 0.7,
    "loop": 0.7,
    "qoperators": 1.5,
}


def drawn(rng):
    """The name of one step."""
    shares = np.array([WEIGHTS.get(name, 1.0) for name in STEPS])
    return str(rng.choice(list(STEPS), p=shares / shares.sum()))
