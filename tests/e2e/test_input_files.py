"""Files that a user names as input: pipes, devices, deep nesting and links to themselves end in one clear message."""

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.files.reading import open_input, read_input
from onnx import TensorProto, numpy_helper

MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x) => (float[n,4] y) { y = Relu (x) }"""
CPU = ("compile", "m.onnx", "--backend", "cpu-bf16")
REQUESTS = {  # the file that is named last is the one in question
    "data": (*CPU, "--data", "f.npz"),
    "costs": (*CPU, "--solver", "min-cut", "--costs", "f.yaml"),
    "hb-yaml": ("compile", "m.onnx", "--hb-yaml", "f.yaml"),
    "quant-config": ("compile", "m.onnx", "--backend", "bpu-int8", "--quant-config", "f.json"),
    "plan": ("compile", "m.onnx", "--plan", "f.yaml"),
    "plan in JSON": ("compile", "m.onnx", "--plan", "f.json"),
    "explain": ("explain", "f.yaml"),
    "check": ("check", "f.backend.yaml"),
    "model": ("compile", "--backend", "cpu-bf16", "f.onnx"),
    "reproducer": ("opt", "--run-reproducer", "f.onnx"),
}
DEEP = {
    "costs": "start: " + "[" * 100_000,
    "hb-yaml": "model_parameters: {march: bayes-e}\nx: " + "{a: " * 50_000,
    "quant-config": "[" * 100_000 + "]" * 100_000,
    "plan": "version: 2\nnodes: " + "[" * 100_000,
    "plan in JSON": '{"version": 2, "nodes": ' + "[" * 100_000,
    "explain": "nodes:\n- " + "[" * 100_000,
    "check": "backend: x\nops: " + "[" * 100_000,
}


@pytest.fixture
def model(dovetail):
    onnx.save(onnx.parser.parse_model(MODEL), "m.onnx")


def assert_fails(done, *words):
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert not Path("m.dovetail").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this operating system has no pipes with names")
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_pipe_that_nobody_writes_does_not_block(dovetail, model, request_):
    os.mkfifo(request_[-1])
    assert_fails(dovetail(*request_), request_[-1], "not a regular file")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this operating system has no such device")
@pytest.mark.parametrize("name", ["data", "hb-yaml", "check", "plan"])
def test_a_device_that_never_ends_is_not_read(dovetail, model, name):
    Path(REQUESTS[name][-1]).symlink_to("/dev/zero")
    assert_fails(dovetail(*REQUESTS[name], before="ulimit -v 12000000"), "a device, not a regular file")


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_an_error_with_its_line(dovetail, model, name):
    """The composer of PyYAML recurses without a guard, so that the process died."""
    Path(REQUESTS[name][-1]).write_text(DEEP[name])
    line = DEEP[name].count("\n") + 1
    assert_fails(dovetail(*REQUESTS[name]), f"{REQUESTS[name][-1]}:{line}: ", "nested too deeply")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a: &a [*a]", "f.yaml:2: 'a' contains itself"),
        ("a: *b", "f.yaml:2: alias 'b' names no anchor"),
        ("a: !!python/object/apply:os.system ['touch pwned']", "f.yaml:2: unknown group 'a'"),
        ("calibration_parameters: {max_percentile: " + "9" * 5000 + "}", "f.yaml:2: a number of more than 300 digits"),
        ("input_parameters: {input_shape: 1x" + "9" * 5000 + "}", "f.yaml:2: input_shape: '1x999"),
        ("compiler_parameters: {core_num: '" + "9" * 5000 + "'}", "f.yaml:2: a number of more than 300 digits"),
        ("---\na: 1", "f.yaml:2: one document per file"),
    ],
    ids=["selfalias", "unknown alias", "tag", "digits", "shape", "cores", "documents"],
)
def test_what_yaml_can_do(dovetail, model, line, says):
    Path("f.yaml").write_text(f"model_parameters: {{march: bayes-e}}\n{line}\n")
    assert_fails(dovetail(*REQUESTS["hb-yaml"]), says)
    assert not Path("pwned").exists()


def test_aliases_of_aliases_are_not_written_out(dovetail, model):
    bombs = "".join(f"a{i + 1}: &a{i + 1} [{','.join([f'*a{i}'] * 9)}]\n" for i in range(9))
    Path("f.yaml").write_text(f"model_parameters: {{march: bayes-e}}\na0: &a0 [x,x,x,x,x,x,x,x,x]\n{bombs}")
    assert_fails(dovetail(*REQUESTS["hb-yaml"]), "aliases repeat more than")


def test_a_prefix_of_file_names_is_no_way_out_of_the_folder(dovetail, model):
    Path("f.yaml").write_text("model_parameters: {march: bayes-e, output_model_file_prefix: ../../x}\n")
    assert_fails(dovetail(*REQUESTS["hb-yaml"]), "f.yaml:1: output_model_file_prefix", "working_dir")


@pytest.mark.parametrize("link", ["loop", "deeper/loop"])
def test_a_folder_that_links_to_itself(dovetail, model, link):
    """It would be read 40 times, until the operating system follows no more links."""
    Path("f.npz", link).parent.mkdir(parents=True)
    for folder in {Path("f.npz"), Path("f.npz", link).parent}:
        np.savez(folder / "a.npz", x=np.ones((2, 4), np.float32))
    Path("f.npz", link).symlink_to(Path("f.npz").absolute())
    assert_fails(dovetail(*REQUESTS["data"]), f"{Path('f.npz', link)} is f.npz once more")


@pytest.mark.parametrize("place", ["secret.bin", "../secret.bin", "/etc/hostname"])
def test_a_tensor_of_samples_cannot_name_another_file(dovetail, model, place):
    np.arange(4, dtype=np.float32).tofile("secret.bin")
    tensor = TensorProto(name="x", data_type=1, dims=[1, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=place)
    Path("d").mkdir()
    Path("d/input_0.pb").write_bytes(tensor.SerializeToString())
    assert_fails(dovetail(*CPU, "--data", "d"), "input_0.pb", "data lies in another file")


def test_a_tensor_of_samples_is_checked_like_one_of_a_model(dovetail, model):
    tensor = numpy_helper.from_array(np.ones((2, 4), np.float32), "x")
    tensor.dims[0] = 1 << 40
    Path("f.pb").write_bytes(tensor.SerializeToString())
    assert_fails(dovetail(*CPU, "--data", "f.pb"), "f.pb: the tensor")


def test_what_is_read_is_what_was_opened(tmp_path):
    """Content is bounded by what comes, not by a size that another process changes."""
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_input(path, 5) == b"12345"
    with pytest.raises(DovetailError, match="larger than 4 bytes"):
        read_input(path, 4)
    with open_input(path) as file:
        shutil.copy(path, tmp_path / "g")
        assert file.read() == b"12345"
    with pytest.raises(DovetailError, match="a folder, not a regular file"):
        read_input(tmp_path)
