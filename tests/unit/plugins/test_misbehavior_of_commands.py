"""What the command line says of an installed plugin that misbehaves: name, distribution, place; and an exit code.

`test_misbehavior.py` has the kinds that take part in compiling; here are those around it, and the hooks.
"""

import json
import sys
import warnings
from pathlib import Path

import pytest
from dovetail.cli.main import main

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
MODEL, DATA = str(DIGITS / "digits.onnx"), str(DIGITS / "test.npz")

WAYS = {
    "KeyError": "raise KeyError('wrong')",
    "SystemExit": "sys.exit(3)",
    "SystemExit of zero": "sys.exit(0)",
    "BaseException": "raise Odd('wrong')",
    "RecursionError": "return act()",
    "MemoryError": "raise MemoryError()",
    "None": "return None",
    "a number": "return 5",
    "a text": "return 'wrong'",
    "a print": "print('wrong')",
}
RAISES = tuple(WAYS)[:6]

CODE = '''
import sys
import dovetail.plugin
from dovetail.plugin import BackendSummary, DovetailError, Option, Recognition, Refusal, Verdict, hookimpl
from dovetail.plugin import Outcome, Policy
from dovetail_quantize.integers import parameters_of_range

class Odd(BaseException):
    """No Exception, as some libraries raise."""

def act(*_, **__):
    {way}

AT = {at!r}

class Observer(dovetail.plugin.Observer):
    def __init__(self, format_):
        self.format = format_
        act() if AT == "observer" else None
    def update(self, array):
        act() if AT == "observer update" else None
    def parameters(self):
        return act() if AT == "observer parameters" else parameters_of_range(self.format, -1.0, 1.0)

class Executor(dovetail.plugin.Executor):
    def __init__(self, compiled):
        act() if AT == "executor" else None
        self.notes = []
    def executed(self):
        return []
    def run(self, inputs):
        return act()

class Conversion:
    def build(self, op, value, step):
        return act()

class Store(dovetail.plugin.ResultStore):
    suffixes = (".odd",)
    def save(self, compiled, path, *, external=None, progress=None):
        act() if AT == "store save" else path.write_text("odd")
    def load(self, path, plugins):
        return act()
    def load_plan(self, path):
        return act()
    def recognize(self, job):
        return act() if AT == "store recognize" else Recognition(None, lambda compiled: None)

class Format(dovetail.plugin.BackendFormat):
    suffix, endings = ".oddlist", ()
    def name(self, source):
        return act() if AT == "format name" else "listed"
    def peek(self, source):
        return act() if AT == "format peek" else BackendSummary("listed", "", "npu", ("onnxruntime-cpu",))
    def load(self, source, find, options, facts):
        return act()
    def check(self, source, known, load):
        return act()

class Command:
    def add_arguments(self, parser):
        act() if AT == "command arguments" else None
    def run(self, args):
        return act()

class OddPolicy(Policy):
    phase, name = "observe", "odd"
    def propose(self, trials):
        return act() if AT == "policy propose" else None
    def outcome(self, trials):
        return act() if AT == "policy outcome" else Outcome()

class Odd(Option):
    commands, keywords = ("compile", "plan", "check", "bisect"), ("odd",)
    def add_arguments(self, parser):
        act() if AT == "option arguments" else parser.add_argument("--odd")
    def keywords_of(self, args):
        return act() if AT == "option keywords" else dict(odd=1)
    def recorded(self, keywords):
        return act() if AT == "option recorded" else dict(odd=1) if keywords.get("odd") else {{}}
    def requested(self, request, model, keywords):
        return act() if AT == "option requested" else request
    def planned(self, plan, model, ctx, keywords):
        return act() if AT == "option planned" else None
    def words(self, command, recorded):
        return act() if AT == "option words" else []
    def complete(self, args):
        return act() if AT == "option complete" else None
    def begin(self, job):
        return act() if AT == "option begin" else None
    def policies(self, job, phase):
        return act() if AT == "option policies" else [OddPolicy()] if phase == "observe" else []
    def finish(self, job, compiled):
        return act() if AT == "option finish" else None
    def judge(self, job, compiled):
        return act() if AT == "option judge" else None
    def publish(self, job, compiled):
        return act() if AT == "option publish" else None

COMMAND, OPTION = Command(), Odd()

class Backend(dovetail.plugin.Backend):
    name, summary, device = "odd-npu", "It is odd.", "npu"
    low, high, accumulate = "float32", "float32", None
    opset = (13, 22)
    strategy, regions, engines = "autocast", "topological", ("onnxruntime-cpu",)
    facts, border_types, source = (), ("float32",), "odd"
    def __init__(self, options):
        self.chosen = dict(options)
        act() if AT == "backend" else None
    def takes(self, domain, op_type):
        return act() if AT == "backend takes" else op_type == "Conv"
    def lists(self, domain, op_type):
        return act() if AT == "backend lists" else op_type == "Conv"
    def takes_angles(self, domain, op_type):
        return act() if AT == "backend takes_angles" else False
    def judge(self, opsets, facts):
        if AT == "backend judge":
            return act()
        def verdict(node, region=None):
            if AT == "backend verdict":
                return act()
            return Verdict(node.op_type == "Conv", (Refusal("no", "odd"),), policy="pass")
        return verdict

class Emitter(dovetail.plugin.Emitter):
    def emit(self, region, folder):
        from dovetail.plugin import Artifact, StandIn
        return Artifact((), StandIn(into=("odd-conversion",), out=()))

@hookimpl
def opened(model, registry):
    act() if AT == "hook opened" else None
@hookimpl
def before_opening(registry):
    act() if AT == "hook before_opening" else None
@hookimpl
def configure_pipeline(pipeline, request):
    act() if AT == "hook configure_pipeline" else None
@hookimpl
def before_pass(pass_, model):
    act() if AT == "hook before_pass" else None
@hookimpl
def after_pass(pass_, model, result):
    act() if AT == "hook after_pass" else None
@hookimpl
def pass_failed(pass_, model, error):
    act() if AT == "hook pass_failed" else None
'''
HOOKS = """
from dovetail.plugin import hookimpl
from odd_things import opened, before_opening, configure_pipeline, before_pass, after_pass, pass_failed
dovetail_api = 1

@hookimpl
def register(registry):
    for kind, *component in {entries!r}:
        getattr(registry, kind)(*component)
"""
ENTRIES = {
    "observer": [("observer", "odd", "odd_things:Observer")],
    "executor": [("executor", "odd", "odd_things:Executor")],
    "conversion": [
        ("conversion", "odd-conversion", "odd_things:Conversion"),
        ("emitter", "odd-emitter", "odd_things:Emitter"),
        ("backend", "odd-aot", "odd_files:aot.backend.yaml"),
    ],
    "store": [("result_store", "odd", "odd_things:Store")],
    "format": [("backend_format", "odd", "odd_things:Format"), ("backend", "listed", "odd_files:listed.oddlist")],
    "command": [("command", "odd-command", "odd_things:COMMAND", "extend", "It is odd.")],
    "option": [("option", "odd", "odd_things:OPTION")],
    "policy": [("option", "odd", "odd_things:OPTION")],
    "backend": [("backend", "odd-npu", "odd_things:Backend")],
    "hook": [],
}
HOST = ("compile", MODEL, "--backend", "host", "--no-try-engines")
RESULT = ("compile", MODEL, "--backend", "cpu-bf16", "-o", "out")
INT8 = ("compile", MODEL, "--backend", "ppl-int8:observer=odd", "--data", DATA, "--no-try-engines")
NPU = ("compile", MODEL, "--backend", "odd-npu")
CASES = {
    "observer": [INT8],
    "observer update": [INT8],
    "observer parameters": [INT8],
    "executor": [RESULT, ("run", "out", "--data", DATA, "--executor", "odd")],
    "executor run": [RESULT, ("run", "out", "--data", DATA, "--executor", "odd")],
    "conversion build": [("compile", MODEL, "--backend", "odd-aot")],
    "store save": [(*HOST, "-o", "made.odd")],
    "store load": [("run", "kept.odd", "--data", DATA)],
    "store load_plan": [("explain", "kept.odd")],
    "store recognize": [(*HOST, "-o", "made.odd")],
    "format name": [("compile", MODEL, "--backend", "listed")],
    "format peek": [("backends",)],
    "format load": [("compile", MODEL, "--backend", "listed")],
    "format check": [("check", "mine.oddlist")],
    "command arguments": [("odd-command",)],
    "command run": [("odd-command",)],
    "option arguments": [(*HOST, "--odd", "1")],
    "option keywords": [(*HOST, "--odd", "1")],
    "option complete": [(*HOST, "--odd", "1")],
    "option recorded": [(*HOST, "--odd", "1")],
    "option requested": [(*HOST, "--odd", "1")],
    "option planned": [("plan", MODEL, "--backend", "host", "--odd", "1")],
    "option begin": [(*HOST, "--odd", "1")],
    "option policies": [(*HOST, "--odd", "1")],
    "policy propose": [(*HOST, "--odd", "1")],
    "policy outcome": [(*HOST, "--odd", "1")],
    "option finish": [(*HOST, "--odd", "1")],
    "option judge": [(*HOST, "--odd", "1")],
    "option publish": [(*HOST, "--odd", "1")],
    "backend": [NPU],
    "backend judge": [NPU],
    "backend verdict": [NPU],
    "backend takes_angles": [NPU],
    "backend lists": [("compile", "calling.onnxtxt", "--backend", "odd-npu")],
    "hook opened": [HOST],
    "hook before_opening": [HOST],
    "hook configure_pipeline": [HOST],
    "hook before_pass": [HOST],
    "hook after_pass": [HOST],
    "hook pass_failed": [("compile", MODEL, "--backend", "host", "--pin", "nothing=host")],
}
AOT = """backend: odd-aot
device: npu
opset: 13..22
precision: {low: float16, high: float32}
policies: fp16
types: {f: [float16, float32]}
ops: {"Conv, Relu, MaxPool, Gemm, Flatten": {types: f}}
place: {strategy: autocast}
emit: {engines: [onnxruntime-cpu], artifacts: [odd-emitter]}
"""
CALLING = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
g (float[4] x) => (float[4] y) { [call] y = own.twice (x) }
<domain: "own", opset_import: ["": 17]> twice (x) => (y) { y = Add (x, x) }
"""
NOTHING = ("None", "a number", "a text", "a print")
WARNED = ("format peek", "option arguments", "hook opened", "hook before_opening", "hook configure_pipeline",
          "hook before_pass", "hook after_pass")  # fmt: skip
"""The plugin is left out with a warning, and the rest works."""
IGNORED = ("observer", "option arguments", "observer update", "executor", "store save", "command arguments", "backend",
           "hook opened", "hook before_opening", "hook configure_pipeline", "hook before_pass", "hook after_pass",
           "hook pass_failed", "backend lists", "backend takes_angles", "option complete", "format check",
           "option planned", "option finish", "option judge", "option publish")  # fmt: skip
"""What these return is not read."""
MAY_BE = {("command run", "None"), ("command run", "a number"), ("command run", "a print"),
          ("option keywords", "None"),
          ("option recorded", "None"), ("option recorded", "a print"),
          *((act, way) for act in ("option begin", "policy propose") for way in ("None", "a print"))}  # fmt: skip


@pytest.mark.generated(one_of=15, others=4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", CASES)
def test_it_is_named_with_its_distribution_and_place(at, way, install, tmp_path, monkeypatch, capsys):
    files = {
        "odd_things.py": CODE.format(way=WAYS[way], at=at),
        "odd_hooks.py": HOOKS.format(entries=ENTRIES[at.partition(" ")[0]]),
        "odd_files/__init__.py": "",
        "odd_files/aot.backend.yaml": AOT,
        "odd_files/listed.oddlist": "listed",
    }
    install("odd-distribution", {"odd": "odd_hooks"}, files)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("kept.odd", "mine.oddlist"):
        Path(name).write_text("listed")
    Path("calling.onnxtxt").write_text(CALLING)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for command in CASES[at]:
                code = _run(command)
    finally:
        for name in [name for name in sys.modules if name.startswith("odd_")]:
            del sys.modules[name]
    printed = capsys.readouterr()
    said = printed.err + " ".join(str(warning.message) for warning in seen)
    said += printed.out if at == "format peek" else ""  # the list has a line for every backend that is at fault
    assert "Traceback" not in said + printed.out and "defect of Dovetail" not in said
    if way in RAISES:
        assert "odd-distribution" in said, said
        assert "odd_things.py:" in said, said
        assert code != 0 or at in WARNED, (code, said)
    elif at not in IGNORED and (at, way) not in MAY_BE:
        assert "odd-distribution" in said, (said, printed.out)
        assert code != 0 or at in WARNED, said
    if way == "a print":
        assert at.startswith("command") or "wrong" not in printed.out


def _run(command):
    try:
        return main(list(command))
    except SystemExit as end:
        return end.code


def test_json_stays_json_where_an_option_prints(install, tmp_path, monkeypatch, capsys):
    files = {
        "odd_things.py": CODE.format(way=WAYS["a print"], at="hook opened"),
        "odd_hooks.py": HOOKS.format(entries=[]),
    }
    install("odd-distribution", {"odd": "odd_hooks"}, files)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert _run((*HOST, "--json")) == 0
    assert json.loads(capsys.readouterr().out)
