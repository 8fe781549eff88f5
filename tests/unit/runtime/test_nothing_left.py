"""A backend whose engine refuses the whole model: the last line says so, and not only a note."""

import dovetail
import pytest
from dovetail.plugin import EngineError

DIGITS = "examples/digits/digits.onnx"


@pytest.fixture
def refusing(monkeypatch):
    from dovetail_cpu_bf16.engine import OpenVinoCpu

    def load(self, region, options):
        raise EngineError("the file cannot be read: Permission denied")

    monkeypatch.setattr(OpenVinoCpu, "load", load)


def test_the_coverage_line_names_the_backend(refusing):
    result = dovetail.compile(DIGITS, "cpu-bf16")
    assert result.coverage() == "cpu-bf16 0/13 nodes (all refused), host 13; 0 conversions"
    (remark,) = [remark for remark in result.remarks if remark.rule == "nothing-left"]
    assert remark.why == (
        "nothing of the model runs on cpu-bf16: what it took was refused, 13 nodes because openvino-cpu "
        "(dovetail-cpu-bf16): the file cannot be read: Permission denied"
    )


def test_a_backend_whose_engine_takes_the_model_is_not_called_refused():
    assert "refused" not in dovetail.compile(DIGITS, "cpu-bf16").coverage()


def test_the_line_is_kept_in_a_saved_result(refusing, tmp_path):
    dovetail.compile(DIGITS, "cpu-bf16").save(tmp_path / "out")
    assert dovetail.load(tmp_path / "out").coverage().startswith("cpu-bf16 0/13 nodes (all refused)")
