"""Options of sessions in the metadata of a model: no session takes them, and no result has them."""

from pathlib import Path

import dovetail
import numpy as np
import onnx
import onnx.parser
import pytest

MODEL = '<ir_version: 10, opset_import: ["": 21]> g (float[1, 4] x) => (float[1, 4] y) { y = Relu (x) }'


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model that asks for a profile, which ONNX Runtime would write into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    proto = onnx.parser.parse_model(MODEL)
    proto.metadata_props.add(key="ort_config", value='{"session_options": {"enable_profiling": 1}}')
    proto.metadata_props.add(key="author", value="somebody")
    onnx.save(proto, "model.onnx")
    return Path("model.onnx")


def test_a_session_of_a_foreign_model_writes_no_profile(model):
    session = dovetail.InferenceSession(model, cache=False)
    session.run(None, {"x": np.zeros((1, 4), np.float32)})
    assert [path.name for path in Path().iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("backend", ["host", "cpu-bf16", "gpu-fp16"])
def test_the_entry_is_left_out_with_a_note_and_others_stay(model, backend):
    result = dovetail.compile(model, backend)
    result.save("out")
    entries = {entry.key: entry.value for entry in onnx.load("out/model.onnx").metadata_props}
    assert "ort_config" not in entries and entries["author"] == "somebody"
    assert any("'ort_config' is left out" in note for note in result.notes())
    assert not list(Path().glob("onnxruntime_profile*"))
