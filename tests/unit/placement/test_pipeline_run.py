"""A pipeline that is run by hand, with a request instead of a context."""

import pytest
from dovetail.passes import Pipeline, Request
from dovetail.planning import get_placement
from dovetail.plugin import load_plugins
from dovetail_onnx.opening import open_text

TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[4] x) => (float[4] y) { [first] a = Relu (x)  [second] y = Exp (a) }"""


@pytest.mark.parametrize(("request_", "backend"), [(Request.of("gpu-fp16"), "gpu-fp16"), (None, "host")])
def test_a_request_is_enough_to_run_passes_that_ask_the_plugins(request_, backend):
    model = open_text(TEXT, "by hand")
    pipeline = Pipeline.parse("normalize,edge-kinds,place,assign-types", load_plugins().registry)
    assert pipeline.run(model, request_).remarks or backend == "host"
    assert {get_placement(node).backend for node in model.graph} == {backend}
