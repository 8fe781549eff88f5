"""`--device COMMAND`: a result runs elsewhere, here in another process that plays a board."""

import json
import re
import sys
from pathlib import Path

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.errors import DovetailError

from .exported_nets import noise, text

RUN = f"{sys.executable} {{folder}}/run.py {{inputs}} {{outputs}}"
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A result whose second output is in bfloat16."""
    graph = """g (float[2,8] x) => (float[2,8] y, bfloat16[2,8] z) {
        p = MatMul (x, w)  y = Tanh (p)  z = Cast <to = 16> (p) }"""
    folder = tmp_path_factory.mktemp("result") / "out"
    dovetail.compile(text(graph, w=noise(8, 8)), "cpu-bf16").save(folder)
    return folder


def test_a_device_computes_what_this_machine_computes(saved):
    result, feeds = dovetail.load(saved), {"x": noise(2, 8)}
    result.options["device"] = RUN
    expected, found = result.run(feeds), result.run(feeds, executor="device")
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_the_times_of_a_device_are_those_that_its_runner_reports(saved):
    result, feeds = dovetail.load(saved), {"x": noise(2, 8)}
    result.options.update(device=f"{RUN} --repeat {{repeat}} --threads {{threads}}", threads=1)
    times = result.executor("device").timed(feeds, 3)
    assert len(times) == 3 and all(0 < seconds < 60 for seconds in times)
    assert len(result.executor().timed(feeds, 2)) == 2  # measured here
    result.options["device"] = RUN
    with pytest.raises(DovetailError, match="the runner reports no times: it writes no times.json"):
        result.executor("device").timed(feeds, 3)


def test_verify_measures_what_the_device_gives(tmp_path, capsys):
    """A board that gives something else is seen in the comparison, and named in it."""
    model = DIGITS / "digits.onnx"
    np.savez(tmp_path / "few.npz", image=np.load(DIGITS / "test.npz")["image"][:4])
    dovetail.compile(model, "cpu-bf16").save(tmp_path / "out")
    worse = tmp_path / "worse.py"
    worse.write_text(
        "import runpy, sys\n"
        "run = runpy.run_path(sys.argv[1] + '/run.py')\n"
        "runner = run['Runner'](sys.argv[1])\n"
        "found = runner.run(run['read_tensors'](sys.argv[2]))\n"
        "run['write_tensors'](sys.argv[3], {name: array * 0.9 for name, array in found.items()}, runner.types)\n"
    )
    snr = []
    for command in (RUN, f"{sys.executable} {worse} {{folder}} {{inputs}} {{outputs}}"):
        arguments = ["verify", model, tmp_path / "out", "--data", tmp_path / "few.npz", "--json", "--device", command]
        assert main(list(map(str, arguments))) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["engines"] == ["device"]
        snr.append(document["outputs"][0]["snr_db"])
    assert snr[0] > 40 and 15 < snr[1] < 25


def script(tmp_path, content):
    (tmp_path / "board.py").write_text(content)
    return f"{sys.executable} {tmp_path / 'board.py'} {{folder}} {{inputs}} {{outputs}}"


WRITES = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[3])
out.mkdir()
def write(shape, type="float32"):
    entries = []
    for name, each in (("y", type), ("z", "bfloat16")):
        count = shape[0] * shape[1]
        (out / name).write_bytes(bytes(count * {"float32": 4, "float64": 8, "bfloat16": 2}[each]))
        entries.append({"name": name, "type": each, "shape": shape, "file": name})
    (out / "tensors.json").write_text(json.dumps({"format": "dovetail-tensors", "version": 1, "tensors": entries}))
"""

COPIES = """
import pathlib, runpy, shutil, sys
copy = pathlib.Path(sys.argv[3]).with_name("copy")
shutil.copytree(sys.argv[1], copy)
file = next(path for path in sorted(copy.glob("0/*")) if path.is_file())
{damage}
sys.argv[:] = [str(copy / "run.py"), *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(COPIES.format(damage="file.unlink()"), "ended with 1: error: .* is missing\n", id="not copied"),
        pytest.param(
            COPIES.format(damage="file.write_bytes(file.read_bytes()[::-1])"),
            "ended with 1: error: .* was changed: its digest differs\n",
            id="copied badly",
        ),
        pytest.param(
            "import sys; sys.exit('no such board')", "ended with 1: no such board\n  it was called as: ", id="fails"
        ),
        pytest.param(
            "import time; print('booting', flush=True); time.sleep(60)",
            "no answer within 2 s, and was ended; it last said: booting\n  --device-timeout",
            id="hangs",
        ),
        pytest.param(
            "print('done')", "gives no such outputs: .*tensors.json.*; it last said: done\n", id="writes nothing"
        ),
        pytest.param(WRITES + "(out / 'tensors.json').write_text('{')", "gives no such outputs", id="writes garbage"),
        pytest.param(WRITES + "write([2, 9])", r"'y' has the shape \[2, 9\] in place of", id="another shape"),
        pytest.param(WRITES + "write([2, 8], 'float64')", "'y' is float64 in place of float32", id="another type"),
        pytest.param(WRITES + "write([2, 8]); (out / 'y').write_bytes(b'')", "gives no such outputs", id="cut"),
    ],
)
def test_what_a_device_does_wrong_is_said(saved, tmp_path, content, message):
    result = dovetail.load(saved)
    result.options.update(device=script(tmp_path, content), device_timeout=2 if "no answer" in message else 60)
    with pytest.raises(DovetailError) as error:
        result.run({"x": noise(2, 8)}, executor="device")
    assert re.search(message, f"{error.value.message}\n  {error.value.hint}", re.DOTALL)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("", "there is no command", id="none"),
        pytest.param("run {folder} {inputs}", "has no {outputs}", id="no outputs"),
        pytest.param("no-such-program {folder} {inputs} {outputs}", "cannot be run", id="no program"),
    ],
)
def test_commands_that_cannot_be(saved, command, message):
    result = dovetail.load(saved)
    result.options["device"] = command
    with pytest.raises(DovetailError, match=message):
        result.run({"x": noise(2, 8)}, executor="device")


def test_a_device_and_a_cluster_exclude_each_other(saved, capsys):
    assert main(["run", str(saved), "--data", str(DIGITS / "test.npz"), "--device", RUN, "--cluster", "tcp://x:1"]) == 2
    assert "--device says what runs the result" in capsys.readouterr().err
