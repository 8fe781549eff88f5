"""Whatever a compilation read may change: the next session gives the answer of the changed request."""

import io
import os
import shutil
import subprocess
import sys

import dovetail
import numpy as np
import pytest
from dovetail.cli.main import main
from dovetail.files import file_state
from dovetail_adapters import opening, result_key
from dovetail_onnx.files.source_state import source_state
from onnx import TensorProto, helper, numpy_helper

OLD = (315532800,) * 2  # the time of files in reproducible archives
GENERATOR = np.random.default_rng(0)
W = [GENERATOR.standard_normal((8, 64)).astype(np.float32) for _ in range(2)]  # larger than what is read with a graph
X = GENERATOR.standard_normal((4, 8)).astype(np.float32)
BACKEND = """backend: {name}
summary: x
device: npu
opset: 13..22
integers: refuse
precision: {{low: float16, high: float32}}
policies: {policies}
types: {{f: [float16, float32]}}
unlisted: refuse
ops:
  {operators}: {{types: f}}
place: {{strategy: autocast}}
emit: {{engines: [onnxruntime-cpu]}}
"""
BOTH, ONE = "MatMul, Relu", "Concat, Relu"  # of equal length
COSTS = "start: {}\nbytes: {{other: 10}}\noperations: {{float32: 50, other: 400}}\ncasts: 10\n"
YAML = """model_parameters:
  onnx_model: net.onnx
  march: {march}
input_parameters:
  input_name: x
  input_shape: 4x8
  input_type_rt: featuremap
  input_layout_rt: NCHW
  input_type_train: featuremap
  input_layout_train: NCHW
  norm_type: no_preprocess
calibration_parameters:
  cal_data_dir: cal
  cal_data_type: float32
  calibration_type: {kind}{further}
compiler_parameters:
  compile_mode: latency
"""


def write(path, content):
    """Write a file in place, with the time that it always has."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    os.utime(path, OLD)


def net(which, external=""):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"),
        helper.make_node("Add", ["m", "b"], ["a"], name="ad"),
        helper.make_node("Relu", ["a"], ["y"], name="re"),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, e]) for n, e in (("x", 8), ("y", 64))]
    weights = [numpy_helper.from_array(W[which], "w"), numpy_helper.from_array(W[which][0], "b")]
    for tensor, place in zip(weights, external.split()):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=place)
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def npz(scale):
    held = io.BytesIO()
    np.savez(held, x=X * np.float32(scale))
    return held.getvalue()


def npy(scale):
    held = io.BytesIO()
    np.save(held, X * np.float32(scale))
    return held.getvalue()


def proto(scale):
    return numpy_helper.from_array(X * np.float32(scale), "x").SerializeToString()


def anew(path, content):
    """Remove a file and write it again, as archives are extracted, under the same inode if it is given again."""
    inode, held = os.stat(path).st_ino, []
    os.remove(path)
    for number in range(100):
        write(f"t{number}", content)
        held.append(f"t{number}")
        if os.stat(held[-1]).st_ino == inode:
            break
    os.rename(held.pop(), path)
    for name in held:
        os.remove(name)


def renamed(path, content):
    write("beside", content)
    os.replace("beside", path)


def linked(path, target):
    os.path.lexists(path) and os.remove(path)
    os.symlink(target, path)


def memory(name, content):
    import fsspec

    fsspec.filesystem("memory").pipe(name, content)


def backend(name, operators=BOTH, policies="fp16", path=""):
    write(path or f"{name}.backend.yaml", BACKEND.format(name=name, operators=operators, policies=policies))


def policy(first, path="mypolicy.yaml"):
    write(path, f"policy:\n  {'lower' if first else 'fp32 '}: [MatMul, Relu]\n")


def calibrated(scale):
    for number in range(3):
        write(f"cal/{number}.bin", (X * np.float32(scale)).tobytes())


def vendor(kind="max", march="bayes-e", further=""):
    write("hb.yaml", YAML.format(kind=kind, march=march, further=further))


def both(*actions):
    return lambda: [action() for action in actions]


def call(function, *arguments, **keywords):
    return lambda: function(*arguments, **keywords)


BF16, INT8, VENDOR = {"backend": "cpu-bf16"}, {"backend": "cpu-int8"}, {"backend": "bpu-int8", "hb_yaml": "hb.yaml"}
SCALES = (1, 0.2)


def made_plan(pins):
    dovetail.plan("net.onnx", "cpu-bf16", pins=pins).save("plan.yaml")
    os.utime("plan.yaml", OLD)


CHANGES = {
    "model in place": (None, call(write, "net.onnx", net(1)), BF16),
    "model extracted anew": (None, lambda: anew("net.onnx", net(1)), BF16),
    "model renamed onto it": (None, call(renamed, "net.onnx", net(1)), BF16),
    "model behind a link": (
        both(lambda: os.rename("net.onnx", "real.onnx"), call(linked, "net.onnx", "real.onnx")),
        call(write, "real.onnx", net(1)), BF16,
    ),
    "link to another model": (
        both(*(call(write, f"{n}.onnx", net(n)) for n in (0, 1)), call(linked, "net.onnx", "0.onnx")),
        call(linked, "net.onnx", "1.onnx"), BF16,
    ),
    "folder that is a link": (
        both(*(call(write, f"{n}/net.onnx", net(n)) for n in (0, 1)), call(linked, "m", "0")),
        call(linked, "m", "1"), {**BF16, "model": "m/net.onnx"},
    ),
    "large weights beside the model": (
        both(call(write, "net.onnx", net(0, "w.bin")), call(write, "w.bin", W[0].tobytes())),
        call(write, "w.bin", W[1].tobytes()), BF16,
    ),
    "small weights beside the model": (
        both(
            call(write, "net.onnx", net(0, "w.bin b.bin")), call(write, "w.bin", W[0].tobytes()),
            call(write, "b.bin", W[0][0].tobytes()),
        ),
        call(write, "b.bin", W[1][0].tobytes()), BF16,
    ),
    "weights in a subfolder": (
        both(call(write, "net.onnx", net(0, "d/w.bin")), call(write, "d/w.bin", W[0].tobytes())),
        call(write, "d/w.bin", W[1].tobytes()), BF16,
    ),
    "link to weights": (
        both(
            call(write, "net.onnx", net(0, "w.bin")), *(call(write, f"w{n}", W[n].tobytes()) for n in (0, 1)),
            call(linked, "w.bin", "w0"),
        ),
        call(linked, "w.bin", "w1"), BF16,
    ),
    "data: .npz": (call(write, "d.npz", npz(1)), call(write, "d.npz", npz(0.2)), {**INT8, "data": "d.npz"}),
    "data: .npy": (call(write, "x.npy", npy(1)), call(write, "x.npy", npy(0.2)), {**INT8, "data": "x.npy"}),
    "data: .pb": (call(write, "i.pb", proto(1)), call(write, "i.pb", proto(0.2)), {**INT8, "data": "i.pb"}),
    "data: link": (
        both(*(call(write, f"{n}.npz", npz(SCALES[n])) for n in (0, 1)), call(linked, "d.npz", "0.npz")),
        call(linked, "d.npz", "1.npz"), {**INT8, "data": "d.npz"},
    ),
    "data: file in a folder": (call(write, "d/0.npz", npz(1)), call(write, "d/0.npz", npz(0.2)), {**INT8, "data": "d"}),
    "data: file in a subfolder": (
        call(write, "d/s/input_0.pb", proto(1)), call(write, "d/s/input_0.pb", proto(0.2)), {**INT8, "data": "d"},
    ),
    "data: a folder gains a file": (
        call(write, "d/0.npz", npz(1)), call(write, "d/1.npz", npz(5)), {**INT8, "data": "d"},
    ),
    "data: a folder loses a file": (
        both(call(write, "d/0.npz", npz(1)), call(write, "d/1.npz", npz(5))),
        lambda: os.remove("d/1.npz"), {**INT8, "data": "d"},
    ),
    "data: file://": (call(write, "d.npz", npz(1)), call(write, "d.npz", npz(0.2)), {**INT8, "data": "file://{}/d.npz"}),
    "data: folder at file://": (
        call(write, "d/0.npz", npz(1)), call(write, "d/1.npz", npz(5)), {**INT8, "data": "file://{}/d"},
    ),
    "data: remote object": (
        call(memory, "/d.npz", npz(1)), call(memory, "/d.npz", npz(0.2)), {**INT8, "data": "memory://d.npz"},
    ),
    "data: remote folder": (
        call(memory, "/f/0.npz", npz(1)), call(memory, "/f/1.npz", npz(5)), {**INT8, "data": "memory://f"},
    ),
    "data: arrays": (None, None, {**INT8, "data": {"x": X}}, {"data": {"x": X * np.float32(0.2)}}),
    "data: list of arrays": (None, None, {**INT8, "data": [{"x": X}]}, {"data": [{"x": X}, {"x": X * np.float32(5)}]}),
    "backend file": (call(backend, "q1"), call(backend, "q1", ONE), {"backend": "./q1.backend.yaml"}),
    "base of a backend file": (
        both(call(backend, "base1"), call(write, "q.backend.yaml", "backend: q1\nextends: base1\n")),
        call(backend, "base1", ONE), {"backend": "./q.backend.yaml"},
    ),
    "base of a base": (
        both(
            call(backend, "base1"), call(write, "base2.backend.yaml", "backend: base2\nextends: base1\n"),
            call(write, "q.backend.yaml", "backend: q1\nextends: base2\n"),
        ),
        call(backend, "base1", ONE), {"backend": "./q.backend.yaml"},
    ),
    "base that is found before the other one": (
        both(call(backend, "base1"), call(write, "q.backend.yaml", "backend: q1\nextends: base1\n")),
        call(backend, "base1", ONE, path="base1.yaml"), {"backend": "./q.backend.yaml"},
    ),
    "policies": (
        both(call(policy, True), call(backend, "r1", policies="mypolicy")),
        call(policy, False), {"backend": "./r1.backend.yaml"},
    ),
    "policies that are found before the others": (
        both(call(policy, True), call(backend, "r1", policies="mypolicy", path="b/r1.backend.yaml"),
             call(policy, True, "b/mypolicy.yaml")),
        call(policy, False, "policies/mypolicy.yaml"), {"backend": "./b/r1.backend.yaml"},
    ),
    "file of a variant": (
        both(
            call(write, "v.yaml", f"ops:\n  {BOTH}: {{types: f}}\n"),
            lambda: write("s1.backend.yaml", BACKEND.format(name="s1", operators="Relu", policies="fp16")
                          + "options: {o: [a, b]}\nvariants:\n  - when: {o: b}\n    file: v.yaml\n"),
        ),
        call(write, "v.yaml", f"ops:\n  {ONE}: {{types: f}}\n"), {"backend": "./s1.backend.yaml:o=b"},
    ),
    "plan": (call(made_plan, []), call(made_plan, ["mm=host"]), {**BF16, "plan": "plan.yaml"}),
    "cost table": (
        both(call(backend, "q1"), call(write, "c.yaml", COSTS.format(500))),
        call(write, "c.yaml", COSTS.format(900)),
        {"backend": "./q1.backend.yaml", "solver": "min-cut", "costs": "c.yaml"},
    ),
    "vendor's YAML": (
        both(call(vendor), call(calibrated, 1)), call(vendor, "kl "), VENDOR,
    ),
    "vendor's calibration data": (both(call(vendor), call(calibrated, 1)), call(calibrated, 0.2), VENDOR),
    "vendor's folder gains a file": (
        both(call(vendor), call(calibrated, 1)), call(write, "cal/9.bin", (X * np.float32(5)).tobytes()), VENDOR,
    ),
    "vendor's quant_config": (
        both(
            call(vendor, march="nash-e", further="\n  quant_config: q.json"), call(calibrated, 1),
            call(write, "q.json", '{"op_config": {"MatMul": {"qtype": "int16"}}}'),
        ),
        call(write, "q.json", '{"op_config": {"Relu"  : {"qtype": "int16"}}}'), VENDOR,
    ),
    "quant_config of the request": (
        both(call(calibrated, 1), call(write, "q.json", '{"op_config": {"MatMul": {"qtype": "int16"}}}')),
        call(write, "q.json", '{"op_config": {"Relu"  : {"qtype": "int16"}}}'),
        {"backend": "bpu-int8:march=nash", "quant_config": "q.json", "data": {"x": X}},
    ),
    "option": (None, None, BF16, {"high": ["mm"]}),
    "providers": (None, None, {"providers": ["cpu-bf16"]}, {"providers": ["host"]}),
}  # fmt: skip
"""What is there at first, what changes, the request, and what changes of the request."""


QUICK = {
    "model in place", "small weights beside the model", "data: a folder gains a file", "data: file://",
    "data: remote object", "base of a backend file", "policies", "vendor's calibration data",
}  # fmt: skip


@pytest.fixture
def compiled(monkeypatch):
    """How often something was compiled."""
    found = []
    monkeypatch.setattr(opening, "compile", lambda *a, **k: (found.append(a), dovetail.compile(*a, **k))[1])
    return found


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("net.onnx", net(0))
    return tmp_path


def started(request, **keywords):
    request = {"model": "net.onnx", **request, **keywords}
    model = request.pop("model")
    return dovetail.InferenceSession(model, **request)


def answer(session):
    return session.run(None, {"x": X})[0].tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "change", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CHANGES]
)
def test_nothing_is_stale(cache, work, compiled, change):
    before, after, request, *changed = CHANGES[change]
    if before is not None:
        before()
    request = {key: value.format(work) if key == "data" and isinstance(value, str) else value
               for key, value in request.items()}  # fmt: skip
    first, again = started(request), started(request)
    assert len(compiled) == 1, "it was kept"
    assert answer(first) == answer(again)
    if after is not None:
        after()
    request |= changed[0] if changed else {}
    later = started(request)
    assert len(compiled) == 2, "it is not the kept one"
    assert answer(later) == answer(started(request, cache=False))
    started(request)
    assert len(compiled) == 3, "with the one that leaves the cache out; the other one is kept in turn"


def test_parts_of_two_processes_are_not_mixed(cache, work, compiled, monkeypatch):
    """The model changes while one process compiles it, and another one keeps what it is made of now."""
    request = {"backend": "cpu-bf16"}
    kept = opening.ResultCache.store_read

    def beaten(self, key, about, read):
        monkeypatch.setattr(opening.ResultCache, "store_read", kept)
        digest = kept(self, key, about, read)
        write("net.onnx", net(1))
        started(request, cache=True)
        return digest  # its result comes last

    monkeypatch.setattr(opening.ResultCache, "store_read", beaten)
    started(request)
    assert answer(started(request)) == answer(started(request, cache=False))


@pytest.mark.parametrize("what", ["variable", "processor", "source of a plugin"])
def test_what_computes_counts_too(cache, work, compiled, what, monkeypatch, tmp_path):
    started(BF16)
    if what == "variable":
        monkeypatch.setenv("DOVETAIL_SOMETHING", "1")
    elif what == "processor":
        monkeypatch.setattr(result_key, "_fingerprint", lambda distributions: {"processor": "another"})
    else:  # an installation of sources in place, whose file was changed with its time restored
        import dovetail_cpu_bf16

        status = os.stat(dovetail_cpu_bf16.__file__)
        os.utime(dovetail_cpu_bf16.__file__, ns=(status.st_atime_ns, status.st_mtime_ns))  # changes its ctime
        source_state.cache_clear()
    started(BF16)
    assert len(compiled) == 2
    source_state.cache_clear()


@pytest.mark.parametrize("change", ["time", "inode", "copy with another time"])
def test_the_same_content_is_not_compiled_again(cache, work, compiled, change):
    started(BF16)
    if change == "time":
        os.utime("net.onnx")
    elif change == "inode":
        anew("net.onnx", net(0))
    else:
        shutil.copy("net.onnx", "copy")
        os.replace("copy", "net.onnx")
    started(BF16)
    assert len(compiled) == 1


@pytest.mark.parametrize("change", ["model", "weights"])
def test_a_saved_result_that_changes_is_loaded_again(cache, work, change):
    for which in (0, 1):
        write("net.onnx", net(which))
        dovetail.compile("net.onnx", "host").save(f"result{which}")
    for _ in range(2):
        first = answer(dovetail.InferenceSession("result0"))
    for name in os.listdir("result1"):
        status = os.stat(f"result0/{name}") if os.path.exists(f"result0/{name}") else None
        if os.path.isfile(f"result1/{name}"):
            shutil.copyfile(f"result1/{name}", f"result0/{name}")
            status and os.utime(f"result0/{name}", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert answer(dovetail.InferenceSession("result0")) == answer(dovetail.InferenceSession("result1")) != first


def test_large_files_are_read_again_only_if_their_state_changed(cache, work, compiled, monkeypatch):
    """Small ones are hashed at every start."""
    from dovetail_adapters import read_files

    monkeypatch.setattr(read_files, "_SMALL", 16)
    monkeypatch.setattr(read_files, "_SETTLED", 0)
    monkeypatch.setattr(read_files, "_keeps_changes", lambda path: True)
    started(BF16)
    hashed = []
    known = read_files._hashed
    monkeypatch.setattr(read_files, "_hashed", lambda path: (hashed.append(os.path.basename(path)), known(path))[1])
    started(BF16)
    assert hashed == []
    os.utime("net.onnx")
    started(BF16)
    started(BF16)
    assert hashed == ["net.onnx"] and len(compiled) == 1, "hashed once for the new time"


def test_equal_states_do_not_stand_for_equal_content(work, monkeypatch):
    """Images of file systems are made with equal times and inodes: samples of the content tell."""
    from dovetail_adapters import read_files

    content = bytes(1 << 20)
    monkeypatch.setattr(read_files, "_SETTLED", 0)
    monkeypatch.setattr(read_files, "_keeps_changes", lambda path: True)
    write("large", content)
    found, _ = read_files._hashed(str(work / "large"))
    assert read_files._is_as_it_was(found)
    write("large", b"x" + content[1:])
    assert not read_files._is_as_it_was(found._replace(state=file_state("large")))


OPENED = """
import os, sys
opened = []
def hook(event, arguments):
    path, _, flags = arguments if event == "open" else (0, 0, 0)
    if isinstance(path, (str, bytes)) and not (flags or 0) & (os.O_WRONLY | os.O_RDWR):
        opened.append(os.path.abspath(os.fsdecode(path)))
sys.addaudithook(hook)
from dovetail.files import recorded
import dovetail
request = eval(sys.argv[1])
with recorded() as reading:
    dovetail.InferenceSession(request.pop("model", "net.onnx"), cache=False, **request)
here = os.getcwd() + os.sep
print([path for path in opened if path.startswith(here) and os.path.isfile(path) and path not in reading.files])
"""


@pytest.mark.generated(one_of=5)
@pytest.mark.parametrize(
    "change",
    ["small weights beside the model", "data: file in a subfolder", "data: .npy", "data: file://", "base of a base",
     "policies", "file of a variant", "plan", "cost table", "vendor's quant_config"],
)  # fmt: skip
def test_all_files_that_are_opened_are_recorded(work, change):
    """Python itself says which."""
    before, _, request, *_ = CHANGES[change]
    before()
    request = {key: value.format(work) if isinstance(value, str) else value for key, value in request.items()}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OPENED, repr(request)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr


def test_what_a_command_shows_of_an_entry(cache, work, capsys):
    started(BF16)
    assert main(["cache"]) == 0
    assert "net.onnx for cpu-bf16" in capsys.readouterr().out
