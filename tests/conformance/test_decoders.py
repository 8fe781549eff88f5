"""Whole decoders, written out: a prompt and the words after it, with the caches of the call before."""

import numpy as np
import onnx_ir as ir
import pytest
from dovetail.passes import Context
from dovetail_transforms.decompositions import decompose

from .decoders import decoder, first_call, next_call
from .decomposing import normalized, on_runtime

CLOSE = {np.float32: 1e-5, np.float16: 3e-3}


@pytest.mark.generated
@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.parametrize("dtype", CLOSE, ids=["float32", "float16"])
def test_a_decoder_computes_the_same_call_after_call(dtype, bits, opset):
    source = decoder(dtype, bits, opset=opset)
    model = normalized(source)
    assert decompose(model, Context(model=model))
    assert not [node for node in model.graph if node.domain or node.op_type == "SimplifiedLayerNormalization"]
    written = ir.to_proto(model.ir)
    for batch in (1, 2):
        given = first_call(batch, 5, dtype)
        for _ in range(4):
            expected, found = on_runtime(source, given), on_runtime(written, given)
            for one, other in zip(found, expected, strict=True):
                assert one.shape == other.shape and one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=0, atol=CLOSE[dtype] * np.abs(other).max())
            given = next_call(given, expected)


def test_weights_of_four_bits_stay_small():
    source = decoder(bits=4)
    model = normalized(source)
    decompose(model, Context(model=model))
    before, after = (
        sum(tensor.ByteSize() for tensor in proto.graph.initializer) for proto in (source, ir.to_proto(model.ir))
    )
    assert after < 1.1 * before
