"""The operator tests of the onnx package, lowered to older opsets: each computes the same as before, or is refused.

Each is lowered as it is, and with all inputs but the first as constants, as axes and sizes are in most models. By
default a sample runs; `--all-rows` runs all of them.
"""

import random
import re
import warnings

import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail.passes import Context
from dovetail_onnx.opening import open_proto
from dovetail_transforms.canonicalize.normalize import Normalize
from dovetail_transforms.lowering import can_lower, lower
from onnx import numpy_helper

from .executing import array, assert_agrees, run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests

    CASES = [case for case in load_model_tests(kind="node") if case.model.opset_import[0].domain in ("", "ai.onnx")]

# Where the result is another one before lowering, too, and who makes it so.
OTHER = {
    "test_bernoulli": "random numbers",
    "test_training_dropout": "random numbers",
    "test_maxunpool_export_with_output_shape": "ONNX Runtime",
    "test_range_float_type_positive_delta_expanded": "the evaluator of the onnx package: what a Loop collects",
    "test_range_float16_type_positive_delta_expanded": "the evaluator of the onnx package: what a Loop collects",
    "test_range_int32_type_negative_delta_expanded": "the evaluator of the onnx package: what a Loop collects",
    "test_resize_downsample_scales_linear_align_corners": "ONNX Runtime",
    "test_resize_downsample_scales_cubic_align_corners": "ONNX Runtime",
}


def source_of(case, frozen):
    """A copy of the model of a case, and the values of its inputs."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    given = dict(zip([value.name for value in model.graph.input], case.data_sets[0][0], strict=True))
    for name, value in list(given.items())[1:] if frozen else ():
        if isinstance(array(value), np.ndarray):
            model.graph.initializer.append(numpy_helper.from_array(array(value), name))
            del given[name]
    kept = [value for value in model.graph.input if value.name in given]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 8)
    return model, {name: array(value) for name, value in given.items()}


def saved(model, path):
    model.save(path)
    return onnx.load(str(path))


def normalized(proto):
    model = open_proto(proto)
    Normalize().run(model, Context(model=model))
    return model


@pytest.mark.generated(one_of=80, others=16)
@pytest.mark.parametrize("frozen", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_to_opset_11(case, frozen, tmp_path):
    assert_lowers(case, frozen, 11, tmp_path)


@pytest.mark.generated(one_of=50, others=8)
@pytest.mark.parametrize("target", [12, 13, 15, 17, 18, 20, 21])
@pytest.mark.parametrize("case", random.Random(4).sample(CASES, 100), ids=lambda case: case.name)
def test_to_other_opsets(case, target, tmp_path):
    assert_lowers(case, True, target, tmp_path)


def assert_lowers(case, frozen, target, folder):
    source, given = source_of(case, frozen)
    before = max(source.opset_import[0].version, target)
    try:
        lowered = lower(open_proto(source), target).model
    except DovetailError as refused:
        assert re.search(rf"cannot be lowered to opset {target}: '.*': \w+ of opset \d+ .*has no form", str(refused))
        assert refused.hint
        assert any(can_lower(node, target) for node in normalized(source_of(case, frozen)[0]).graph)
        return
    assert not [why for node in normalized(source_of(case, frozen)[0]).graph if (why := can_lower(node, target))]
    result = saved(lowered, folder / "lowered.onnx")
    assert before == target or [entry.version for entry in result.opset_import if not entry.domain] == [target]
    onnx.checker.check_model(result, full_check=True)
    again = lower(open_proto(saved(lowered, folder / "again.onnx")), target)
    assert str(again.model) == str(open_proto(saved(lowered, folder / "again.onnx")))
    assert again.remarks == ()
    if any(case.name.startswith(name) for name in OTHER):
        return
    results = run(result, given)
    if results is None:
        assert run(source_of(case, frozen)[0], given) is None, "only the source runs"
        return
    for found, expected in zip(results, case.data_sets[0][1], strict=True):
        assert_agrees(found, array(expected))
