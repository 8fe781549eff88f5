import json
from pathlib import Path

import ml_dtypes
import numpy as np
from dovetail.cli.main import main

COVERAGE = "npu 3/4 nodes in 1 region, host 1"


def test_compile_prints_the_table_the_figures_and_at_last_the_coverage(api, cli):
    code, out, err = cli("compile", "m.onnx", "--backend", "npu:cores=2", "--backend", "cpu", "--verify", "-o", "out")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["backend", "nodes", "operators"]
    assert lines[1].split() == ["npu", "3", "Conv", "3"]
    assert lines[-3:] == ["y  41.2 dB", "note: npu: emulated", COVERAGE]
    assert Path("out").is_dir()


def test_compile_hands_on_what_it_is_asked(api, cli):
    cli("compile", "m.onnx", "--backend", "npu:cores=2", "--backend", "cpu")
    given = api.calls[-1][1]
    watch = given.pop("instrumentation")
    assert given.pop("plugins").registry
    assert callable(given.pop("progress"))
    assert callable(given.pop("keep"))
    assert given == {
        "backends": ["npu:cores=2", "cpu"],
        "strategy": None,
        "solver": "forward",
        "costs": None,
        "pins": (),
        "edits": (),
        "low": (),
        "high": (),
        "keep_io_types": True,
        "freeze_inputs": False,
        "data": None,
        "plan": None,
        "try_engines": None,
        "refine": None,
        "layers": False,
        "verify": None,
        "check_prepare": None,
        "input_shapes": (),
    }
    assert (watch.verify_each, watch.reproducer) == (True, Path("dovetail-reproducer.onnx"))
    assert [name for name, _ in api.calls] == ["open", "compile"]
    options = "--data x.npz --strategy all-in --solver min-cut --pin a=b/c --pin d=e/f --no-keep-io-types --verify"
    watching = "--print-before place --print-after all --no-verify-each -o some/out"
    cli("compile", "m.onnx", "--backend", "npu", *options.split(), *watching.split())
    given = api.calls[-1][1]
    assert [given[key] for key in ("data", "strategy", "solver", "pins", "keep_io_types", "verify")] == [
        Path("x.npz"),
        "all-in",
        "min-cut",
        ("a=b/c", "d=e/f"),
        False,
        True,
    ]
    watch = given["instrumentation"]
    assert (watch.print_before, watch.print_after, watch.verify_each) == (("place",), ("all",), False)
    assert watch.reproducer == Path("some/dovetail-reproducer.onnx")


def test_compile_as_json(api, cli):
    code, out, _ = cli("compile", "m.onnx", "--backend", "npu", "--verify", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["summary"] == COVERAGE
    assert document["verification"]["outputs"][0]["snr_db"] == 41.2
    assert document["remarks"][0]["rule"] == "too-big"
    assert document["plan"]["nodes"][0]["backend"] == "npu"


def test_plan(api, cli):
    assert cli("plan", "m.onnx", "--backend", "npu") == (0, "version: 1\n", "note: what an option says\n")
    assert cli("plan", "m.onnx", "--backend", "npu", "-o", "plan.yaml")[1] == "plan.yaml\n"
    assert Path("plan.yaml").read_text() == "version: 1\n"
    assert json.loads(cli("plan", "m.onnx", "--backend", "npu", "--json")[1])["version"] == 1


def test_explain(api, cli):
    assert cli("explain", ".", "conv_0")[1] == "conv_0 runs on host\nH = 9; allowed: ..8\n"
    assert json.loads(cli("explain", ".", "conv_0", "--json")[1])["lines"][0] == "conv_0 runs on host"
    assert cli("explain", ".", "nope") == (1, "", "error: no node 'nope'\n")


def test_run(api, cli):
    code, out, _ = cli("run", ".", "--data", "x.npz", "-o", "y.npz")
    assert code == 0
    assert out.splitlines()[1].split() == ["y", "float32", "2", "2", "4", "6"]
    assert out.splitlines()[-1] == COVERAGE
    assert np.load("y.npz")["y"].tolist() == [2.0, 6.0]
    document = json.loads(cli("run", ".", "--data", "x.npz", "--json")[1])
    assert document["outputs"] == [
        {"output": "y", "type": "float32", "shape": [2], "min": 2.0, "mean": 4.0, "max": 6.0}
    ]
    assert document["executed"] == {"conv_0": ["float16", "reported"]}


def test_types_that_numpy_files_do_not_know_are_widened(cli, tmp_path):
    from dovetail_runtime.run_command import _write

    _write(tmp_path / "y.npz", {"y": np.array([1.5], ml_dtypes.bfloat16), "n": np.array([1], np.int64)})
    with np.load(tmp_path / "y.npz") as arrays:
        assert (arrays["y"].dtype, arrays["n"].dtype) == (np.float32, np.int64)


def test_verify(api, cli):
    assert cli("verify", "m.onnx", ".", "--seed", 3)[1] == "y  41.2 dB\n"
    assert api.calls[-1][1]["seed"] == 3
    assert json.loads(cli("verify", "m.onnx", ".", "--json")[1])["outputs"]


def test_backends(api, cli, monkeypatch):
    monkeypatch.setenv("DOVETAIL_PLUGINS", "commands")
    code, out, _ = cli("backends")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "npu  (dovetail-npu)  Acme NPU"
    assert lines[1].split(None, 2) == ["npu-sdk", "absent", "not installed"]
    assert lines[2].split() == ["reference", "available"]
    assert lines[3] == "    needs data"
    assert "not in use:" in lines
    document = json.loads(cli("backends", "--json")[1])
    assert document["backends"][0]["engines"][0] == {"name": "npu-sdk", "available": False, "why": "not installed"}
    assert {plugin["status"] for plugin in document["plugins"]} == {"ok", "disabled"}


def test_backends_by_name(capsys):
    assert main(["backends", "reference-free"]) == 2
    assert "no backend 'reference-free' is installed" in capsys.readouterr().err
    assert main(["backends", "host", "cpu-bf16", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["backends"]] == ["cpu-bf16", "host"]
