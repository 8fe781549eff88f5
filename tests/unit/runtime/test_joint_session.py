"""One session for all regions of a result whose engine is the same."""

import dovetail
import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from onnx import numpy_helper

BODY = "[one] a = Conv (x, w) [two] s = Sigmoid (a) [three] y = Conv (s, w)"
BACKEND = "cpu-int8:runtime=onnxruntime"
PINS = ("two=host",)


def model():
    text = f'<ir_version: 10, opset_import: ["": 20]> g (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {BODY} }}'
    made = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((4, 4, 1, 1)).astype(np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return made


def samples():
    return [{"x": np.random.default_rng(seed).standard_normal((1, 4, 6, 6)).astype(np.float32)} for seed in range(4)]


def compiled(backend=BACKEND, **request):
    return dovetail.compile(model(), backend, data=samples(), refine="none", verify=False, pins=PINS, **request)


def test_regions_on_the_same_engine_have_one_session_which_computes_the_same():
    result = compiled()
    executor = result.executor()
    assert {runner.backend for runner in executor.runners} == {"cpu-int8", "host"}
    assert executor.joint is not None
    for feeds in samples():
        apart = dict(feeds)
        for region in result.regions:
            apart |= region.run({name: apart[name] for name in region.inputs})
        np.testing.assert_array_equal(result.run(feeds)["y"], apart["y"])


def test_an_inference_session_is_that_session(tmp_path):
    compiled().save(tmp_path)
    session = dovetail.InferenceSession(tmp_path)
    assert session.get_providers()[-1] == "CPUExecutionProvider"
    assert [value.name for value in session.get_outputs()] == ["y"]
    assert session.get_profiling_start_time_ns() >= 0  # a method of onnxruntime's own session


@pytest.mark.parametrize(
    ("backend", "options"),
    [("cpu-int8", {}), (BACKEND, {"profile": True}), (BACKEND, {"parallel": "on"})],
    ids=["several engines", "a profile of each region", "regions side by side"],
)
def test_other_results_run_region_by_region(backend, options):
    result = compiled(backend)
    result.options.update(options)
    assert result.executor().joint is None
    assert result.run(samples()[0])["y"].shape == (1, 4, 6, 6)


def test_a_single_region_needs_no_other_session():
    assert dovetail.compile(model(), "host", verify=False).executor().joint is None


def test_inputs_are_checked_as_in_any_result():
    result = compiled()
    result.run(samples()[0])
    with pytest.raises(DovetailError, match="'x'"):
        result.run({"x": np.zeros((1, 5, 6, 6), np.float32)})
    with pytest.raises(DovetailError, match="'x'"):
        result.run({})
    assert result.run({"x": samples()[0]["x"].tolist()})["y"].shape == (1, 4, 6, 6)
