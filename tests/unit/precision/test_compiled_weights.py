"""Losses of weights are told where a person reads them."""

import json
from pathlib import Path

import numpy as np
import onnx
from dovetail import api
from onnx import numpy_helper


def test_clamped_weights_are_remarked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 22]> g (float[2,40] x) => (float[2,40] y) { y = MatMul (x, w) }'
    )
    weight = np.eye(40, dtype=np.float32)
    weight[0, :3] = [3.4e38, -3.4e38, np.inf]
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    Path("m.onnx").write_bytes(proto.SerializeToString())
    api.compile("m.onnx", ["cpu-bf16"]).save("out")
    remarks = [remark for remark in json.loads(Path("out/remarks.json").read_text()) if remark["rule"] == "losses"]
    assert len(remarks) == 1
    assert "weight 'w' in bfloat16" in remarks[0]["why"]
    assert "2" in remarks[0]["why"]
    (stored,) = onnx.load("out/model.onnx").graph.initializer
    array = numpy_helper.to_array(stored).astype(np.float32)
    assert np.isfinite(array[0, :2]).all()
    assert np.isinf(array[0, 2])
