"""The observer `signed-symmetric`: zero points of 0 for values without negative numbers, 128 for most others."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.plugin import Format
from dovetail_cpu_int8.observers import SignedSymmetric

from .nets import compiled, net


@pytest.mark.parametrize(
    ("numbers", "zero_point", "scale"),
    [
        pytest.param(np.linspace(0, 1, 256), 0, 1 / 255, id="no negative number: all integers for the range"),
        pytest.param(np.linspace(-1, 1, 256), 128, 1 / 127, id="both signs: symmetric"),
        pytest.param(np.linspace(-0.6, 1, 256), 128, 1 / 127, id="one side is a little longer: symmetric, too"),
        pytest.param(np.linspace(-0.1, 1, 256), 23, 1.1 / 255, id="a few negative numbers: the range is covered"),
        pytest.param(np.linspace(-1, 0, 256), 255, 1 / 255, id="no positive number: all integers for the range"),
    ],
)
def test_the_sign_of_the_numbers_decides_the_zero_point(numbers, zero_point, scale):
    observer = SignedSymmetric(Format.of("uint8[asymmetric]"))
    observer.update(numbers.astype(np.float32))
    found = observer.parameters()
    assert found.zero_point == (zero_point,)
    assert found.scale[0] == pytest.approx(scale, rel=0.05)


def test_outliers_are_cut_as_by_mse():
    observer = SignedSymmetric(Format.of("uint8[asymmetric]"))
    numbers = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    observer.update(np.append(numbers, np.float32(40)))
    assert observer.parameters().scale[0] < 30 / 127


def test_without_a_number_there_are_no_parameters():
    with pytest.raises(ValueError):
        SignedSymmetric(Format.of("uint8[asymmetric]")).parameters()


def test_a_weight_that_callers_may_replace_is_an_error_with_the_way_out():
    """Exporters of old wrote all weights among the inputs of the graph."""
    model = net("y = Conv (x, v, b)")
    for weight in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    with pytest.raises(dovetail.DovetailError, match="'v'.*--freeze-inputs"):
        compiled(model)
    result = compiled(model, freeze_inputs=True)
    assert {node.op_type: str(node.precision) for node in result.plan.nodes}["Conv"] == "int32[symmetric,axis=1]"
