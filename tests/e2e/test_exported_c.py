"""`dovetail export --runner c`: a runner in C++ that gives what `dovetail run` gives, byte for byte."""

import json
import os
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import dovetail
import ml_dtypes
import numpy as np
import onnxruntime
import openvino
import pytest

from . import generators
from .exported_nets import (
    DIGITS,
    MIXED,
    REFUSED,
    ROWS,
    acme,
    digits,
    exported,
    module,
    noise,
    plugins_of_acme,
    steps_of_decoding,
    text,
    two_branches,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
RUNNERS = resources.files("dovetail_export") / "runners"
FOLDERS = module(RUNNERS)  # what reads and writes folders of tensors
STRICT = ["-Wall", "-Wextra", "-Werror"]
# An engine that computes relu(x), and refuses what is no number.
ENGINE = """
#include "dovetail_run.h"
#include <string.h>
static const char *problem = "";
static int open_engine(int threads, void **engine) { *engine = (void *)problem; return threads < 0; }
static int load(void *engine, const char *folder, const char *step, const char *types, void **program) {
    *program = engine;
    problem = "no program of Acme";
    return !folder[0] || !strstr(step, "net.program") || !strstr(types, "\\"x\\": \\"float32\\"");
}
static int run(void *program, const dovetail_tensor *inputs, size_t count, const dovetail_outputs *outputs) {
    const float *x = (const float *)inputs[0].data;
    float *y = (float *)outputs->allocate(outputs->context, 0, inputs[0].shape, inputs[0].rank);
    problem = "x is no number";
    for (size_t i = 0; i < inputs[0].bytes / sizeof(float); ++i) {
        if (x[i] != x[i]) return 1;
        y[i] = x[i] > 0 ? x[i] : 0;
    }
    return !program || count != 1;
}
static void close_engine(void *engine) { (void)engine; }
static const char *last_error(void) { return problem; }
const dovetail_engine *dovetail_engine_table(void) {
    static const dovetail_engine table = {DOVETAIL_ENGINE_VERSION, open_engine, load, run, close_engine, last_error};
    return &table;
}
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The runner, compiled."""
    path = tmp_path_factory.mktemp("runner") / "dovetail_run"
    command = ["g++", "-std=c++17", *STRICT, RUNNERS / "dovetail_run.cpp", "-ldl", "-pthread", "-o", path]
    assert subprocess.run(command).returncode == 0
    return path


@pytest.fixture
def run(program, tmp_path):
    """Run the program on an export; return the outputs, or what it says."""

    def computed(shipped, feeds, types=None, words=(), **environment):
        types = types or {name: "string" if a.dtype == object else str(a.dtype) for name, a in feeds.items()}
        FOLDERS.write_tensors(tmp_path / "in", feeds, types)
        libraries = {
            "DOVETAIL_ONNXRUNTIME": str(next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))),
            "DOVETAIL_OPENVINO": str(next(Path(openvino.__file__).parent.glob("libs/libopenvino_c.so.*"))),
        }
        command = [program, shipped, tmp_path / "in", tmp_path / "answers", *words]
        variables = {**os.environ, **libraries, **environment}
        done = subprocess.run(command, capture_output=True, text=True, env=variables)
        return done.stderr if done.returncode else FOLDERS.read_tensors(tmp_path / "answers")

    return computed


def assert_same_bytes(answers, expected):
    assert not isinstance(answers, str), answers
    assert set(answers) == set(expected)
    for name, array in expected.items():
        assert answers[name].shape == array.shape
        same = (answers[name] == array).all() if array.dtype == object else answers[name].tobytes() == array.tobytes()
        assert same, name


@pytest.mark.parametrize(("net", "backends", "engines"), ROWS)
def test_the_runner_computes_what_dovetail_computes(net, backends, engines, tmp_path, run):
    model, feeds = net()
    data = DIGITS / "test.npz" if net is digits else None
    result, description = exported(model, tmp_path, "c", backends, data)
    assert engines is None or [step["engine"] for step in description["steps"]] == engines
    assert_same_bytes(run(tmp_path / "shipped", feeds), result.run(feeds))


def test_types_extents_and_constants(tmp_path, run):
    """Types that C++ lacks are their bits; scalars, empty extents and constants are outputs like others."""
    graph = """g (bfloat16[n,8] x, float[n,8] z, int64 i, string s) => (bfloat16[n,8] y, float[n,8] q, int64 j, float r,
        string t, bool[3] k, string[2] l) <bool[3] k = {1, 0, 1}, string[2] l = {"a", "bé"}, int64 three = {3}> {
        f = Cast <to = 1> (x)  h = MatMul (f, w)  c = Celu (h)  p = MatMul (c, w)  y = Cast <to = 16> (p)
        m = MatMul (z, w)  q = Relu (m)  j = Add (i, three)  u = ReduceSum <keepdims = 0> (q)  r = Tanh (u)
        t = Identity (s) }"""
    result, _ = exported(text(graph, w=noise(8, 8)), tmp_path, "c")
    types = {"x": "bfloat16", "z": "float32", "i": "int64", "s": "string"}
    for rows in (2, 0):
        x = (noise(rows, 8).view(np.uint32) >> 16).astype(np.uint16)
        feeds = {"x": x, "z": noise(rows, 8), "i": np.array(2**40), "s": np.array("naïve", object)}
        expected = result.run({**feeds, "x": x.view(ml_dtypes.bfloat16)})
        expected["l"] = np.array(["a", "bé"], object)
        assert_same_bytes(run(tmp_path / "shipped", feeds, types), expected)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """An export of digits."""
    folder = tmp_path_factory.mktemp("digits")
    exported(digits()[0], folder, "c")
    return folder / "shipped"


@pytest.mark.parametrize(("damage", "feed", "message"), REFUSED)
def test_the_runner_says_what_is_wrong(shipped, tmp_path, run, damage, feed, message):
    folder = tmp_path / "shipped"
    shutil.copytree(shipped, folder)
    if damage is not None:
        damage(folder)
    answer = run(folder, feed)
    assert answer.startswith("error: ") and answer.count("\n") == 1
    with pytest.raises(ValueError, match=message):
        raise ValueError(answer)


def test_libraries_and_providers_that_are_not_there(shipped, tmp_path, run):
    feeds = {"image": noise(1, 1, 8, 8)}
    answer = run(shipped, feeds, DOVETAIL_OPENVINO="/no/such.so")
    assert answer.startswith("error: step 0 on openvino: /no/such.so: cannot open")
    exported(digits()[0], tmp_path, "c", "gpu-fp16", DIGITS / "test.npz")
    path = tmp_path / "shipped" / "deploy.json"
    path.write_text(path.read_text().replace('"CPUExecutionProvider"', '"CUDAExecutionProvider"'))
    assert "it is for CUDAExecutionProvider, and this runner starts CPU" in run(tmp_path / "shipped", feeds)


def test_the_times_of_further_runs_are_in_a_file(shipped, tmp_path, run):
    assert "probabilities" in run(shipped, {"image": noise(1, 1, 8, 8)}, words=("--repeat", "3"))
    times = json.loads((tmp_path / "answers" / "times.json").read_text())
    assert (times["format"], times["version"], len(times["seconds"])) == ("dovetail-times", 1, 3)
    assert all(0 < seconds < 60 for seconds in times["seconds"])


def test_integers_beyond_their_range(tmp_path, run):
    """An index that the model never takes is refused before a step reads it."""
    graph = "g (int64[2] i) => (float[2,4] y) { g = Gather (w, i)  y = Relu (g) }"
    result, description = exported(text(graph, w=noise(3, 4)), tmp_path, "c")
    feeds = {"i": np.array([-3, 2])}
    assert_same_bytes(run(tmp_path / "shipped", feeds), result.run(feeds))
    description["inputs"][0]["range"] = [-3, 2]
    (tmp_path / "shipped" / "deploy.json").write_text(json.dumps(description))
    answer = run(tmp_path / "shipped", {"i": np.array([3, -4])})
    assert answer == "error: input 'i' holds -4 to 3, and takes -3 to 2\n"


def test_an_engine_of_a_vendor_is_a_library_in_c(tmp_path, run, monkeypatch):
    result, description = exported(
        acme(np.eye(4, dtype=np.float32)), tmp_path, "c", "acme-aot", plugins=plugins_of_acme(monkeypatch)
    )
    assert [step["engine"] for step in description["steps"]] == ["acme-runtime", "onnxruntime"]
    (tmp_path / "engine.c").write_text(ENGINE)
    command = ["gcc", *STRICT, "-shared", "-fPIC", f"-I{RUNNERS}", "engine.c", "-o", "engine.so"]
    assert subprocess.run(command, cwd=tmp_path).returncode == 0
    library = {"DOVETAIL_ENGINE_ACME_RUNTIME": str(tmp_path / "engine.so")}
    x = {"x": noise(1, 4)}
    assert_same_bytes(run(tmp_path / "shipped", x, **library), result.run(x))
    assert run(tmp_path / "shipped", {"x": x["x"] * np.nan}, **library) == "error: step 0: x is no number\n"
    assert "step 0 is for acme-runtime: name its library by DOVETAIL_ENGINE_ACME_RUNTIME" in run(
        tmp_path / "shipped", x
    )


def test_a_decoder_on_two_engines_fills_its_caches(tmp_path, run):
    dovetail.compile(generators.llama_folder(tmp_path / "source"), **MIXED).save(tmp_path / "out")
    description = dovetail.export(tmp_path / "out", tmp_path / "shipped", "c")["parts"]["model"]
    assert {step["engine"] for step in description["steps"]} == {"onnxruntime", "openvino"}
    for feeds, expected in steps_of_decoding(dovetail.load(tmp_path / "out")):
        assert_same_bytes(run(tmp_path / "shipped/parts/model", feeds), expected)


@pytest.mark.parametrize("parallel", ["on", "off", "auto"])
def test_branches_give_the_same_in_any_order(parallel, tmp_path, run):
    model, pins = two_branches()
    result = dovetail.compile(model, "cpu-bf16", pins=pins, verify=False)
    result.save(tmp_path / "out")
    dovetail.export(tmp_path / "out", tmp_path / "shipped", "c")
    feeds = {"x": noise(2, 8)}
    options = ["--parallel", parallel, "--repeat", "9"]
    assert_same_bytes(run(tmp_path / "shipped", feeds, words=options), result.run(feeds))


def test_a_way_that_there_is_not(shipped, run):
    message = run(shipped, digits()[1], words=["--parallel", "maybe"])
    assert message.strip() == "error: 'maybe' is not one of auto, on, off"


ORDER = r"""
#include "dovetail_run.cpp"
#include <iostream>
// Run steps that read what the arguments say, a letter each; step n gives the letter n of "abc...", and capitals fail.
int main(int count, char **words) {
    std::vector<std::string> steps;
    std::set<size_t> failing;
    for (int i = 1; i < count; ++i) {
        std::vector<std::string> reads;
        for (const char *one = words[i]; *one; ++one) {
            reads.push_back(dovetail::quoted(std::string(1, static_cast<char>(std::tolower(*one)))));
            if (std::isupper(*one)) failing.insert(steps.size());
        }
        std::string gives = dovetail::quoted(std::string(1, static_cast<char>('a' + steps.size())));
        std::string read = "{\"inputs\": [" + dovetail::joined(reads, ",") + "], ";
        steps.push_back(read + "\"outputs\": [{\"name\": " + gives + "}]}");
    }
    std::string source = "[" + dovetail::joined(steps, ",") + "]";
    dovetail::Schedule schedule(dovetail::Parser(source).document().rows(), "on");
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::string order;
    try {
        schedule.run([&](size_t number) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            std::lock_guard<std::mutex> lock(mutex);
            threads.insert(std::this_thread::get_id());
            order += static_cast<char>('a' + number);
            if (failing.count(number)) throw dovetail::Error(std::to_string(number) + " fails");
        });
    } catch (const dovetail::Error &error) {
        order = error.what();
    }
    std::cout << order << " " << (threads.size() == 1 ? "one thread" : "threads") << std::endl;
}
"""


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    """Run steps in their order; return what has run, or failed."""
    folder = tmp_path_factory.mktemp("order")
    (folder / "order.cpp").write_text(ORDER)
    command = ["g++", "-std=c++17", "-DDOVETAIL_NO_MAIN", "-I", RUNNERS, folder / "order.cpp", "-ldl", "-pthread"]
    assert subprocess.run([*command, "-o", folder / "order"]).returncode == 0
    return lambda *reads: subprocess.run([folder / "order", *reads], capture_output=True, text=True).stdout.strip()


def test_the_order_of_steps(order):
    assert order("x", "a", "b") == "abc one thread"
    found, how = order("x", "x", "ab", "c").split(" ", 1)
    assert found in ("abcd", "bacd") and how == "threads"


@pytest.mark.parametrize(("steps", "failing"), [("X X a", 0), ("x X a B", 1), ("x x A B", 2), ("x X A b", 1)])
def test_the_first_step_that_fails_is_told(order, steps, failing):
    for _ in range(10):
        assert order(*steps.split()).startswith(f"{failing} fails")
