"""What a notebook shows of an error: what is wrong and what to do, and no calls inside of this library."""

from pathlib import Path

import dovetail
import pytest
from dovetail.errors import GoalError, UsageError

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
CELLS = {
    "a backend that is unknown": f"dovetail.compile({str(DIGITS / 'digits.onnx')!r}, 'cpu-bf17')",
    "a goal that is missed": f"dovetail.compile({str(DIGITS / 'digits.onnx')!r}, 'cpu-bf16', "
    f"data={str(DIGITS / 'test.npz')!r}, min_snr=400)",
    "a wrong keyword": f"dovetail.compile({str(DIGITS / 'digits.onnx')!r}, 'cpu-bf16', min_snr=-1)",
}


@pytest.mark.parametrize("cell", CELLS)
def test_an_error_is_a_message_in_a_notebook(cell, capsys, tmp_path, monkeypatch):
    shells = pytest.importorskip("IPython.core.interactiveshell")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = shells.InteractiveShell.instance(colors="nocolor")
    shell.run_cell("import dovetail")
    shell.run_cell(CELLS[cell])
    shells.InteractiveShell.clear_instance()
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 2, lines
    assert lines[0].partition(":")[0] in ("DovetailError", "GoalError", "UsageError")
    assert not any("option_phases" in line or "Traceback" in line for line in lines)


@pytest.mark.slow
def test_options_that_wrap_nothing_are_not_among_the_calls():
    """Each option that does wrap a compilation is three calls; the others are none."""
    with pytest.raises(GoalError) as caught:
        dovetail.compile(DIGITS / "digits.onnx", "cpu-bf16", data=DIGITS / "test.npz", min_snr=400)
    assert not any(Path(frame.path).name == "options.py" for frame in caught.traceback)


def test_the_text_of_an_error_is_the_same():
    error = UsageError("something is wrong", "mend it")
    assert error._render_traceback_() == [f"UsageError: {error}"]
