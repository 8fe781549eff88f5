"""What a user may get wrong: one clear message, exit code 1, and nothing that was there is touched."""

import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

SMALL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[N,8] x) => (float[N,8] y) <float[8,8] w> { [mul] a = MatMul (x, w)  [relu] y = Relu (a) }"""


def small():
    """Two nodes and a weight of 256 bytes."""
    model = onnx.parser.parse_model(SMALL)
    del model.graph.value_info[:]
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def graph_of(nodes, opset=22, domains=()):
    """`x` to `y`, both float32[2,2], through `nodes`."""
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2])] for n in ("x", "y"))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10)


def write(model, name="m.onnx"):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(model.SerializeToString())


def text_file():
    Path("m.onnx").write_text("This is not a model.\n" * 100)


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress(bytes(65) * 64)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0))
    Path("m.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def truncated():
    data = small().SerializeToString()
    Path("m.onnx").write_bytes(data[: len(data) // 2])


def cycle():
    write(graph_of([helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Relu", ["a"], ["b"], "two"),
                    helper.make_node("Neg", ["a"], ["y"], "three")]))  # fmt: skip


def external(location, size=256, length=256):
    model = small()
    weight = model.graph.initializer[0]
    data = weight.raw_data
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        weight.external_data.add(key=key, value=value)
    write(model, "models/m.onnx")
    if size:
        Path("models", location).write_bytes(data[:size])


def unknown_domain():
    write(graph_of([helper.make_node("FusedMlp", ["x"], ["y"], "mlp", domain="com.acme")], domains=["com.acme"]))


def misspelled():
    write(graph_of([helper.make_node("Rellu", ["x"], ["y"], "act")]))


def two_types():
    write(graph_of([helper.make_node("Cast", ["x"], ["h"], "half", to=TensorProto.FLOAT16),
                    helper.make_node("Add", ["x", "h"], ["y"], "sum")]))  # fmt: skip


def nothing():
    Path("m.onnx").write_bytes(b"")


MODELS = [
    # what is there, the model's path, what the message must say
    (lambda: None, "m.onnx", ["m.onnx", "no such file"]),
    (text_file, "m.onnx", ["m.onnx", "not an ONNX model"]),
    (png, "m.onnx", ["m.onnx", "not an ONNX model"]),
    (lambda: Path("m.onnx").mkdir(), "m.onnx", ["m.onnx holds no models", "front ends read .onnx"]),
    (nothing, "m.onnx", ["m.onnx is empty", "again"]),
    (truncated, "m.onnx", ["m.onnx", "cut short", "again"]),
    (cycle, "m.onnx", ["'one'", "'b'"]),
    (lambda: external("w.bin", size=0), "models/m.onnx", ["initializer 'w'", "missing", "w.bin"]),
    (lambda: external("../w.bin"), "models/m.onnx", ["initializer 'w'", "outside the model's folder", "copy"]),
    (lambda: external("w.bin", size=100), "models/m.onnx", ["initializer 'w'", "cut short", "100 bytes", "256"]),
    (unknown_domain, "m.onnx", ["'mlp'", "com.acme::FusedMlp", "install a backend"]),
    (misspelled, "m.onnx", ["'act'", "Rellu", "Relu"]),
    (two_types, "m.onnx", ["'sum'", "tensor(float16)", "tensor(float)"]),
]
NAMES = [
    "missing", "text", "png", "folder", "empty", "truncated", "cycle", "external missing", "external outside",
    "external short", "unknown domain", "misspelled", "two types",
]  # fmt: skip


@pytest.mark.parametrize(("make", "path", "says"), MODELS, ids=NAMES)
def test_models(dovetail, earlier, make, path, says):
    make()
    unchanged = earlier()
    refused(dovetail("compile", path, "--backend", "cpu-bf16", "-o", "out"), *says)
    assert unchanged()


def refused(done, *says, code=1):
    """It failed with one message on standard error that says all of this, and no traceback."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.count("error:") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    message = done.stderr[done.stderr.index("error:") :]  # progress may stand before it
    assert len(message.splitlines()) <= 7, message
    missing = [text for text in says if text not in message]
    assert not missing, f"not said: {missing}\n{message}"


REQUESTS = [
    # arguments after `compile m.onnx`, what the message must say
    ("--backend cpu-bf16 --pin mil=host", ["no node matches 'mil'", "did you mean 'mul'"]),
    ("--backend cpu-bf16 --pin type:MatMull=host", ["type:MatMull", "did you mean 'MatMul'"]),
    ("--backend cpu-bf16 --pin relu=npu", ["'npu'", "not chosen"]),
    ("--backend cpu-bf16 --pin relu=cpu-bf16/bfloat17", ["there is no element type 'bfloat17'", "bfloat16"]),
    ("--backend cpu-bf61", ["'cpu-bf61'", "cpu-bf16"]),
    (
        "--backend acme-npu",
        ["'acme-npu'", "installed backends: bpu-int8, cpu-bf16, cpu-int8, gpu-fp16, host, ppl-int8, qnn, tensorrt"],
    ),
    ("--backend cpu-bf16:threds=2", ["threds"]),
    ("--backend cpu-bf16 --data names.npz", ["names.npz", "no input 'X'", "did you mean 'x'?"]),
    ("--backend cpu-bf16 --data shapes.npz", ["shapes.npz", "input 'x'", "[N, 8]", "[4, 9]"]),
    ("--backend cpu-bf16 --data text.npz", ["text.npz"]),
    ("--backend cpu-bf16 --data empty", ["empty", ".npz"]),
    ("--backend cpu-bf16 --plan broken.yaml", ["broken.yaml:2"]),
    ("--backend cpu-bf16 --plan other.yaml", ["another model"]),
    ("--hb-yaml hb.yaml", ["hb.yaml:4", "unknown key 'calibration_typ'", "did you mean 'calibration_type'"]),
    (
        "--backend bpu-int8:march=nash --quant-config quant.json",
        ["quant.json:2", "'mil'", "did you mean 'mul'?"],
    ),
    ("--backend bpu-int8 --int16 mul", ["march 'bernoulli2' computes in int8 alone", "march=bayes"]),
]


@pytest.mark.parametrize(("arguments", "says"), REQUESTS, ids=[arguments for arguments, _ in REQUESTS])
def test_requests(dovetail, earlier, arguments, says):
    write(small())
    np.savez("names.npz", X=np.zeros((4, 8), np.float32))
    np.savez("shapes.npz", x=np.zeros((4, 9), np.float32))
    Path("text.npz").write_text("no arrays")
    Path("empty").mkdir()
    Path("broken.yaml").write_text("version: 1\nnodes: ]\n")
    Path("other.yaml").write_text("version: 1\nnodes:\n  - {name: n, output: of_another, backend: host}\n")
    text = "model_parameters:\n  march: bayes-e\ncalibration_parameters:\n  calibration_typ: max\n"
    Path("hb.yaml").write_text(text)
    Path("quant.json").write_text('{"node_config":\n  {"mil": {"qtype": "int16"}}}\n')
    unchanged = earlier()
    done = dovetail("compile", "m.onnx", *arguments.split(), "-o", "out")
    refused(done, *says, code=done.returncode or 1)
    assert done.returncode in (1, 2)
    assert unchanged()


def test_output_that_is_a_file(dovetail):
    write(small())
    Path("out").write_text("mine")
    refused(dovetail("compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out"), "out is a file", "folder")
    assert Path("out").read_text() == "mine"


@pytest.mark.parametrize("command", ["compile m.onnx --backend host", "plan m.onnx --backend host", "run out --data x"])
def test_an_output_without_a_name(dovetail, command):
    """It would be the current folder."""
    write(small())
    done = dovetail(*command.split(), "-o", "")
    assert done.returncode == 2
    assert "the output has an empty name" in done.stderr
    assert [path.name for path in Path().iterdir()] == ["m.onnx"]


def test_a_plan_is_never_written_through_a_planted_link(dovetail):
    write(small())
    Path("victim").write_text("precious")
    for name in ("plan.yaml", ".plan.yaml.partial"):
        Path(name).symlink_to("victim")
    assert dovetail("plan", "m.onnx", "--backend", "cpu-bf16", "-o", "plan.yaml").returncode == 0
    assert Path("victim").read_text() == "precious"
    assert Path("plan.yaml").read_text().startswith("version: ")


def test_output_that_cannot_be_written(dovetail):
    """A file in the way stands for missing rights, which an administrator always has."""
    write(small())
    Path("file").write_text("mine")
    refused(dovetail("compile", "m.onnx", "--backend", "cpu-bf16", "-o", "file/out"), "file/out")
    assert Path("file").read_text() == "mine"


def large(width=65536):
    """The same with weights of 16 times `width` bytes in bfloat16."""
    model = small()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((8, width), np.float32), "w"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = width
    return model


@pytest.mark.generated(one_of=2)
@pytest.mark.parametrize("options", [[], ["--external-data"]], ids=["inline", "external"])
def test_full_disk(dovetail, earlier, options):
    """A limit on the size of files fails a write as a full disk does."""
    write(large())
    unchanged = earlier()
    command = ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out", *options]
    done = dovetail(*command, before="trap '' XFSZ; ulimit -f 256")  # blocks of 1024 bytes
    refused(done, "out/model.onnx", "File too large", "nothing there was changed")
    assert unchanged()


@pytest.mark.slow
def test_kill_while_saving(dovetail):
    """What was there stays; the next run is not disturbed by what is left of the killed one."""
    write(large())
    command = ["compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out"]
    assert dovetail(*command).returncode == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    write(large(1 << 22))  # 64 MiB take a while to write
    running = subprocess.Popen([sys.executable, "-m", "dovetail.cli.main", *command], stdout=subprocess.DEVNULL)
    while not any(path.stat().st_size for path in Path("out").glob(".dovetail-*/.model.onnx.*")):
        assert running.poll() is None
        time.sleep(0.001)  # the processor is the other's
    running.kill()
    assert running.wait() == -signal.SIGKILL
    assert {path: path.read_bytes() for path in Path("out").iterdir() if path.is_file()} == before
    assert dovetail(*command).returncode == 0
    onnx.checker.check_model("out/model.onnx", full_check=True)
    assert not list(Path("out").glob(".*"))


def test_a_plugin_that_does_not_import(dovetail):
    """It is listed with its error, and everything else works."""
    info = Path("site/broken-1.0.dist-info")
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dovetail]\nbroken = broken_plugin\n")
    Path("site/broken_plugin.py").write_text("raise RuntimeError('no license')\n")
    write(small())
    listed = dovetail("backends", PYTHONPATH="site")
    assert listed.returncode == 0
    assert "RuntimeError: no license" in listed.stdout + listed.stderr
    assert "cpu-bf16" in listed.stdout
    done = dovetail("compile", "m.onnx", "--backend", "cpu-bf16", "-o", "out", PYTHONPATH="site")
    assert done.returncode == 0, done.stderr
    assert "no license" in done.stderr
    assert Path("out/model.onnx").is_file()


BACKENDS = [
    ("  Conv2d: {policy: lower}\n", "unknown operator 'Conv2d' (did you mean 'Conv'?)"),
    ("  Conv: {polcy: lower}\n", "polcy"),
    ("  Conv: {limits: {kernel_shap: ..7}}\n", "kernel_shap"),
    ("  Conv: [\n", ""),
]


@pytest.mark.parametrize(("line", "says"), BACKENDS, ids=[line.strip() for line, _ in BACKENDS])
def test_a_mistake_in_a_backend_file_is_named_with_its_line(dovetail, line, says):
    header = "backend: npu\nsummary: s\nprecision: {low: float16, high: float32}\nops:\n"
    Path("npu.backend.yaml").write_text(header + line)
    done = dovetail("check", "npu.backend.yaml")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "npu.backend.yaml:5" in done.stderr or "npu.backend.yaml:6" in done.stderr, done.stderr
    assert says in done.stderr
