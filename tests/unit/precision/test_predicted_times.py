"""What profiles of this machine say about a quantized plan."""

import dovetail
import numpy as np
import onnx.parser
import pytest
import yaml
from dovetail.plugin import load_plugins
from dovetail_runtime.machine import fingerprint

TEXT = """<ir_version: 10, opset_import: ["": 21]> g (float[{first},64] x) => (float[{first},64] y)
  <float[64,64] w = {{{weights}}}> {{ a = MatMul (x, w)  b = Relu (a)  y = MatMul (b, w) }}"""
WEIGHTS = ", ".join(f"{number:.3f}" for number in np.random.default_rng(0).standard_normal(64 * 64) / 8)
RULE = "slower-integers"


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """Write a profile: operations per nanosecond, of integers and of floats."""
    monkeypatch.setenv("DOVETAIL_PROFILES", str(tmp_path))
    owned = [record.distribution for record in load_plugins().plugins if record.status == "ok" and record.distribution]

    def write(backend, integers, floats, **more):
        table = {
            "machine": {**fingerprint(owned), **more}, "start": 1, "bytes": {"other": 1000}, "casts": 1000,
            "operations": {"int8": integers, "uint8": integers, "other": floats},
        }  # fmt: skip
        (tmp_path / f"{backend}.costs.yaml").write_text(yaml.safe_dump(table))

    return write


def said(first="4", backend="cpu-int8"):
    model = onnx.parser.parse_model(TEXT.format(first=first, weights=WEIGHTS))
    data = {"x": np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)}
    compiled = dovetail.compile(model, backend, data=data, verify=False)
    return [remark for remark in compiled.remarks if remark.rule == RULE]


@pytest.mark.parametrize(("integers", "slower"), [(10, True), (1000, False)])
def test_integers_that_are_not_faster_are_remarked(profile, integers, slower):
    profile("host", 100, 100)
    profile("cpu-int8", integers, 100)
    for first in ("4", "N"):
        found = said(first)
        assert [remark.suggest != "" for remark in found] == [True] * slower
        if found:
            # Two products of 64 x 64 for each row, each 2 * 64 * 64 operations.
            operations = 2 * 2 * 64 * 64 * (4 if first == "4" else 1)
            assert found[0].facts["planned_ms"] >= round(operations / integers / 1e6, 4)
            assert "ms in float32 on host" in found[0].why


def test_nothing_is_said_without_a_profile_of_every_backend_and_this_machine(profile):
    profile("cpu-int8", 1, 100)
    assert said() == []
    profile("host", 100, 100, processor="another")
    assert said() == []
    profile("host", 100, 100)
    assert len(said()) == 1
    assert said(backend="cpu-bf16") == []
