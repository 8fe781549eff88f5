"""A slow engine does not take hours to verify: the rows that fit the time are compared, and a note says how many."""

import dovetail
import numpy as np
import onnx.parser
import pytest
from dovetail_verify import batch_differences, compare

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"""


@pytest.mark.parametrize(("seconds", "slow", "batches"), [(60, True, 3), (60, False, 10), (1, True, 10)])
def test_rows_are_limited_by_time_where_the_engine_is_slow(monkeypatch, seconds, slow, batches):
    clock = [0.0]
    monkeypatch.setattr(batch_differences.time, "perf_counter", lambda: clock[0])

    def run(takes):
        def compute(feeds):
            clock[0] += takes
            return {"y": np.maximum(feeds["x"], 0)}

        return compute

    data = [{"x": np.full((1, 4), row, np.float32)} for row in range(10)]
    model = dovetail.open(onnx.parser.parse_model(MODEL))
    found = compare.verify(model, run(0.1 if slow else seconds), run(seconds), data)
    assert found.batches == batches
    said = [note for note in found.notes if "only" in note]
    assert len(said) == (batches < 10)
    assert all("the first 3 batches only: the engine took 180 s" in note for note in said)
