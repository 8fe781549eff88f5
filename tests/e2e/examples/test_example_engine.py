"""An accelerator of a vendor whose programs are compiled ahead of time: emitted, loaded, moved, and refused."""

import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
SAMPLES = ROOT / "examples" / "digits" / "test.npz"
COMPILE = ("compile", DIGITS, "-o", "out", "--backend")


@pytest.fixture(scope="module")
def site(pip_installed):
    return pip_installed(ROOT / "tests" / "example_engine")


@pytest.fixture
def acme(dovetail, site):
    """The command line with the distribution installed."""

    def run(*arguments, **environment):
        return dovetail(*arguments, **{"PYTHONPATH": str(site), **environment})

    return run


@pytest.fixture
def broken(site, broken_copy):
    return broken_copy(site)


def test_regions_are_compiled_and_replaced(acme, site, python):
    done = acme(*COMPILE, "acme-aot", "--verify")
    assert done.returncode == 0, done.stderr
    assert "acme-aot 12/13 nodes in 1 region, host 1; 2 conversions; SNR 1" in done.stdout
    assert "acme-aot  float16    in-program  12     Relu 4, Conv 3, Gemm 2" in done.stdout  # what the program holds
    assert files_of("artifacts") == ["acme-aot/region_0/net.program"]
    assert "artifacts/acme-aot/region_0/net.program" in json.loads(Path("out/result.json").read_text())["files"]
    said = acme("explain", "out", "conv_2").stdout
    assert said.startswith("conv_2 (Conv) (from 'conv_2' and 'norm_2'): acme-aot, float16, region 0")
    code = "import onnx; print([node.op_type for node in onnx.load('out/model.onnx').graph.node])"
    operators = python(code, PYTHONPATH=str(site))
    assert operators == "['Transpose', 'EPContext', 'Softmax']\n", "images enter with the channels last"


def test_for_a_device_that_is_not_here_the_programs_are_written_and_nothing_else_runs_them(acme, broken):
    folder = broken("runtime.py", "Availability(True", "Availability(False")
    done = acme(*COMPILE, "acme-aot", "--target-only", "--data", SAMPLES, PYTHONPATH=folder)
    assert done.returncode == 0, done.stderr
    assert files_of("artifacts") == ["acme-aot/region_0/net.program"]
    assert "the result was not verified: acme-aot has no engine here, and no engine runs region" in " ".join(
        Path("out/remarks.json").read_text().split()
    )


@pytest.mark.slow
def test_its_policy_and_its_cost_table_decide_about_precisions(acme, broken):
    """Where float16 is slow, the cheapest plan has none; where the policy wants float32, no solver asks for more."""

    def precision(folder, *options):
        assert acme(*COMPILE, "acme-aot", *options, PYTHONPATH=folder).returncode == 0
        return acme("explain", "out", "conv_1", PYTHONPATH=folder).stdout.split(", ")[1]

    def change(file, old, new):
        path = Path(folder) / "dovetail_example_engine" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    folder = broken("aot.backend.yaml", "policies: acme-aot\n", "")
    assert precision(folder, "--solver", "min-cut") == "float16"
    change("costs.yaml", "{float16: 800, ", "{float16: 0.01, ")
    assert precision(folder, "--solver", "min-cut") == "float32"
    change("aot.backend.yaml", "types: {f", "policies: acme-aot\ntypes: {f")
    assert precision(folder) == "float16"
    change("policy.yaml", "lower: [Conv, Gemm]", "lower: [Gemm]\n  fp32: [Conv]")
    assert precision(folder) == "float32"


@pytest.mark.slow
def test_a_result_that_is_moved_runs(acme):
    acme(*COMPILE, "acme-aot")
    shutil.move("out", "elsewhere")
    assert acme("verify", DIGITS, "elsewhere").returncode == 0
    assert acme("compile", DIGITS, "-o", "elsewhere", "--backend", "acme-aot").returncode == 0
    assert acme("run", "elsewhere", "--data", SAMPLES).returncode == 0


def test_a_program_that_does_not_fit_is_refused_with_the_reason_and_its_nodes_are_placed_elsewhere(acme):
    done = acme(*COMPILE, "acme-aot:revision=3", "--backend", "cpu-bf16", "--verify")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("acme-aot 0/13 nodes (all refused), ")
    assert "cpu-bf16 13/13" in done.stdout.splitlines()[-1]
    assert not Path("out/artifacts").exists()
    said = acme("explain", "out", "conv_1").stdout
    assert (
        "failed load/engine-refused: not on acme-aot: acme-runtime (dovetail-example-engine) is of revision 2" in said
    )
    assert acme(*COMPILE, "acme-aot:revision=3", ACME_REVISION="3").returncode == 0
    assert files_of("artifacts") == ["acme-aot/region_0/net.program"]


def test_on_another_machine_the_message_names_engine_revision_and_way_out(acme):
    acme(*COMPILE, "acme-aot")
    done = acme("run", "out", "--data", SAMPLES, ACME_REVISION="3")
    assert done.returncode == 1
    assert "acme-runtime (dovetail-example-engine) is of revision 3, the program of 'region_0' is for 2" in done.stderr


def test_what_the_emitter_refuses_is_placed_elsewhere(acme, broken):
    """Layers that are too wide for it divide the net into three programs."""
    folder = broken("compiler.py", "MOST_CHANNELS = 64", "MOST_CHANNELS = 16")
    done = acme(*COMPILE, "acme-aot", "--verify", PYTHONPATH=folder)
    assert done.returncode == 0, done.stderr
    said = acme("explain", "out", "type:Conv", PYTHONPATH=folder).stdout
    assert "emitter 'acme-compiler' of dovetail-example-engine: 'conv_2' has 32 channels" in said
    assert len(files_of("artifacts")) == 3


def test_conversions_at_the_border_run_on_the_backend_at_their_other_end(acme, broken, python):
    folder = broken("compiler.py", "MOST_CHANNELS = 64", "MOST_CHANNELS = 16")
    done = acme(*COMPILE, "acme-aot", "--backend", "gpu-fp16", "--verify", PYTHONPATH=folder)
    assert done.returncode == 0, done.stderr
    code = """
import dovetail
from dovetail.planning.placement import get_placement
for node in dovetail.load("out").model.graph:
    if node.op_type == "Transpose":
        ends = [node.inputs[0].producer(), *(reader for reader, _ in node.outputs[0].uses())]
        print(get_placement(node).backend, "beside", *(end.op_type for end in ends if end is not None))
"""
    said = python(code, PYTHONPATH=folder).splitlines()
    assert said[0] == "host beside EPContext", "nothing else stands before the first program"
    assert set(said[1:]) == {"gpu-fp16 beside EPContext Conv", "gpu-fp16 beside Conv EPContext"}


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("compiler.py", "        revision =", "        exit(3)\n        revision =", "failed: SystemExit: 3"),
        ("compiler.py", "Emitter, EngineError,", "Emitter, EngineErorr,", "cannot be loaded"),
        ("runtime.py", "        (node,) =", "        1 / 0\n        (node,) =", "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_whatever_the_vendor_breaks_is_named_and_the_rest_works(acme, broken, file, old, new, says):
    """Emitter and engine are broken; their nodes go to the host."""
    done = acme(*COMPILE, "acme-aot", PYTHONPATH=broken(file, old, new))
    said = done.stdout + done.stderr + acme("explain", "out", PYTHONPATH="").stdout
    assert says in said
    assert "dovetail-example-engine" in said
    assert "Traceback" not in said
    if done.returncode == 0:
        assert done.stdout.splitlines()[-1] == "acme-aot 0/13 nodes (all refused), host 13; 0 conversions"


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("compiler.py", "(NAME,)", "('../net.program',)", "writes '../net.program', which is outside of its folder"),
        ("compiler.py", "(NAME,)", "('/tmp/x',)", "writes '/tmp/x', which is outside of its folder"),
        ("compiler.py", "(NAME,)", "('other',)", "names 'other', which it did not write"),
        ("compiler.py", "return Artifact(", "return (", "`emit` returns `dovetail.plugin.Artifact`"),
        ("compiler.py", "(folder / NAME).write", "(folder / NAME).symlink_to('/etc/hosts'), (folder / 'x').write",
         "names 'net.program', which is no file of its own"),
        ("chains.py", "return chains", "return chains[1:]", "puts 'conv_1' into no region"),
        ("layout.py", "value.shape is None", "1 / 0", "conversion 'acme-channels-last' of dovetail-example-engine"),
        ("layout.py", "result.type =", "result.kind =", "gives no value with a type"),
        ("aot.backend.yaml", "[acme-compiler]", "[acme-compilre]", "did you mean 'acme-compiler'?"),
    ],
)  # fmt: skip
def test_a_broken_contract_is_one_message(acme, broken, earlier, file, old, new, says):
    as_it_was = earlier()
    done = acme(*COMPILE, "acme-aot", PYTHONPATH=broken(file, old, new))
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert as_it_was()


def test_an_edited_or_missing_program_is_named(acme):
    acme(*COMPILE, "acme-aot")
    Path("out/artifacts/acme-aot/region_0/net.program").write_bytes(b"ACME 2\nedited")
    done = acme("run", "out", "--data", SAMPLES)
    assert done.returncode == 1
    assert "acme-aot/region_0/net.program is not the file that was saved" in done.stderr
    shutil.rmtree("out/artifacts")
    done = acme("run", "out", "--data", SAMPLES)
    assert (done.returncode, "net.program is not the file that was saved" in done.stderr) == (1, True)


def test_the_next_result_in_the_folder_removes_the_programs(acme):
    acme(*COMPILE, "acme-aot")
    Path("out/artifacts/mine.txt").write_text("mine")
    acme(*COMPILE, "host")
    assert files_of("artifacts") == ["mine.txt"], "what the user put there stays"


def test_without_the_distribution_the_message_says_what_is_missing(acme, dovetail):
    acme(*COMPILE, "acme-aot")
    done = dovetail("run", "out", "--data", SAMPLES)
    assert done.returncode == 1
    assert "backend 'acme-aot' is not here: it needs dovetail-example-engine 0.1.x" in done.stderr


def test_from_python(site, python, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = f"""
import numpy as np

import dovetail

compiled = dovetail.compile({str(DIGITS)!r}, "acme-aot")
x = np.ones((2, 1, 8, 8), np.float32)
before = compiled.run({{"image": x}})["probabilities"]
compiled.save("out")
after = dovetail.load("out").run({{"image": x}})["probabilities"]
assert np.array_equal(before, after)
print(compiled.regions)
"""
    assert python(code, PYTHONPATH=str(site)).startswith(
        "[<region 0: 1 node of host on onnxruntime-cpu>, <region 1: 1 node of acme-aot on acme-"
    )


def test_values_of_unknown_rank_are_not_handed_to_programs(site, python, tmp_path, monkeypatch):
    """Nothing states the rank of what is computed from the result of a Loop: it may be an image, or not."""
    monkeypatch.chdir(tmp_path)
    code = """
import dovetail, numpy as np, onnx

model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
g (float[1,2,3,4] x) => (float[1,2,3,4] y) <int64[2] k = {2,2}, bool yes = {1}, float two = {2}> {
  n = Size (k)
  s = Loop (n, yes, x) <body = b (int64 i, bool go, float[1,2,3,4] t) => (bool on, float[1,2,3,4] u) {
    on = Identity (go)  u = Tanh (t) }>
  r = Abs (s)  [add] y = Add (r, two) }''')
x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) / 24
found = dovetail.compile(model, "acme-aot").run({"x": x})["y"]
print(np.allclose(found, np.tanh(np.tanh(x)) + 2, atol=1e-2))
"""
    assert python(code, PYTHONPATH=str(site)) == "True\n"


def files_of(name):
    return sorted(path.relative_to(Path("out") / name).as_posix() for path in (Path("out") / name).rglob("*.*"))
