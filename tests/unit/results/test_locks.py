"""A result is saved under a lock of its folder, which others can hold, but not without end."""

import os

import dovetail
import pytest
from dovetail.plugin import hold
from dovetail_onnx.results import committing


def test_a_lock_that_is_not_given_back_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(committing, "_WAITS", 2)
    result = dovetail.compile("examples/digits/digits.onnx", "host")
    result.save(tmp_path / "out")
    before = (tmp_path / "out" / "model.onnx").read_bytes()
    held = os.open(tmp_path / "out", os.O_RDONLY)  # whoever may read the folder can do that
    hold(held)
    with pytest.raises(dovetail.DovetailError, match="has held the lock of .*/out for a minute") as caught:
        result.save(tmp_path / "out")
    assert "end that program" in caught.value.hint
    os.close(held)
    assert (tmp_path / "out" / "model.onnx").read_bytes() == before
    result.save(tmp_path / "out")
