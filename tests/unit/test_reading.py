"""Input files are read through `dovetail.files`, so that caches know what a result was made of.

A call that opens, reads or lists files names them by `seen(...)` or `entries(...)`, or its module is listed here with
the reason: it reads what the program itself wrote, what is installed, or what no session's result follows from.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOOR = {"seen", "entries", "open_input", "read_input", "check_input", "open_inside"}
METHODS = {"read_text", "read_bytes", "iterdir", "glob", "rglob", "from_file", "from_pretrained", "memmap", "fromfile",
           "loadtxt", "genfromtxt", "scandir", "listdir", "walk"}  # fmt: skip
MODULES = {"np": {"load"}, "onnx": {"load"}, "os": {"open"}, "io": {"open"}, "zipfile": {"ZipFile"}, "mmap": set()}
OWN = "written by this program, in a temporary folder or as output"
COMMANDS = "a command or a function of its own, whose results no session keeps"
EXCEPTIONS = {
    "dovetail.api": "its own function `open`",
    "dovetail.files": "the door",
    "dovetail.installed": "installed",
    "dovetail.cli.": COMMANDS,
    "dovetail.lazy_imports": "installed",
    "dovetail.plugin.artifacts": OWN,
    "dovetail.plugin.loading.backend_files": "names of files in installed packages",
    "dovetail.plugin.pickling": OWN,
    "dovetail.plugin.temporary": OWN,
    "dovetail_adapters.read_files": "hashes what was recorded",
    "dovetail_adapters.reopening": OWN,
    "dovetail_adapters.result_cache": OWN,
    "dovetail_adapters.result_key": "names of files, each of which counts",
    "dovetail_bpu_int8.vendor.hb_files": OWN,
    "dovetail_bpu_int8.vendor.latency": "installed",
    "dovetail_commands.": COMMANDS,
    "dovetail_cpu_bf16.float32_marks": OWN,
    "dovetail_decoder.": COMMANDS,
    "dovetail_export.": COMMANDS,
    "dovetail_gpu_fp16.engine": "drivers, which the fingerprint of the machine counts",
    "dovetail_host.onnxruntime_cpu": OWN,
    "dovetail_host.reference": "a region, whose files were seen or written by this program",
    "dovetail_onnx.files.": "the door for names of users; the rest reads output and caches",
    "dovetail_onnx.results.committing": OWN,
    "dovetail_onnx.results.provenance": "output and what is installed",
    "dovetail_onnx.results.writing": "files whose paths come from passes, and output",
    "dovetail_onnx.saving": "weights, whose files were seen when the model was opened, and output",
    "dovetail_onnxruntime_ep.context": OWN,
    "dovetail_paddle.translate.transcriber": "installed",
    "dovetail_placement.artifacts.": OWN,
    "dovetail_ppl_int8.ppl_json": OWN,
    "dovetail_quantize.border_samples": OWN,
    "dovetail_quantize.refining.activation_cache": OWN,
    "dovetail_quantize.refining.error_feedback": OWN,
    "dovetail_quantize.refining.record": "output, and files of plans, which the plan's digest decides",
    "dovetail_report.": COMMANDS,
    "dovetail_runtime.data.array_files": "a file that `open_input` opened",
    "dovetail_runtime.foreign_programs": "lists artifacts of a result, to refuse what its manifest lacks",
    "dovetail_runtime.processor": "the processor, which the fingerprint of the machine counts",
    "dovetail_runtime.tool_worker": OWN,
    "dovetail_tensorrt.": "engines and libraries, which their own digests and versions decide",
    "dovetail_testing.": COMMANDS,
    "dovetail_transforms.lowering.schemas": "installed",
    "dovetail_tune.": COMMANDS,
    "dovetail_verify.reducing.": COMMANDS,
    "dovetail_verify.sent_results": OWN,
}  # fmt: skip


def module_of(path):
    return ".".join(path.with_suffix("").parts[path.parts.index("src") + 1 :]).removesuffix(".__init__")


def is_writing(call):
    modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(mode and set(mode) <= set("rwxabt+") and set(mode) & set("wxa") for mode in modes)


def reads_a_file(call):
    """Whether a call opens, reads or lists files."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open" and not is_writing(call)
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    if owner in MODULES and function.attr in MODULES[owner]:
        return True
    if function.attr in METHODS:
        return owner != "ast"
    first = call.args[0] if call.args else None
    is_mode = (
        isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value in ("r", "rb", "rt", "r+b")
    )
    return function.attr == "open" and is_mode


def passes_the_door(call):
    names = (one.func for one in ast.walk(call) if isinstance(one, ast.Call))
    return any(isinstance(name, ast.Name) and name.id in DOOR for name in names)


def readings():
    """Calls that read files past the door, by module."""
    found = {}
    for folder in ("core", "schemas", "plugins", "backends"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if "src" not in relative.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and reads_a_file(node) and not passes_the_door(node):
                    found.setdefault(module_of(relative), []).append(f"{relative}:{node.lineno}: {ast.unparse(node)}")
    return found


@pytest.fixture(scope="module")
def past_the_door():
    return readings()


def exception_of(module):
    return next((name for name in EXCEPTIONS if module == name or name.endswith(".") and module.startswith(name)), None)


def test_files_are_read_through_the_door(past_the_door):
    wrong = [line for module, lines in past_the_door.items() if exception_of(module) is None for line in lines]
    assert not wrong, "write seen(path), see dovetail.files:\n" + "\n".join(wrong)


def test_exceptions_are_needed(past_the_door):
    assert {exception_of(module) for module in past_the_door} - {None} == set(EXCEPTIONS)


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("open(path)", True), ("open(path, 'wb')", False), ("path.open('rb')", True), ("seen(path).open('rb')", False),
        ("np.load(path)", True), ("np.load(seen(path))", False), ("path.read_text()", True), ("api.open(path)", False),
        ("onnx.load(str(path))", True), ("list(folder.iterdir())", True), ("entries(folder)", False),
        ("np.fromfile(path, dtype)", True), ("zipfile.ZipFile(path)", True), ("os.walk(folder)", True),
    ],
)  # fmt: skip
def test_calls_that_read_are_found(line, is_found):
    calls = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)]
    assert any(reads_a_file(call) and not passes_the_door(call) for call in calls) == is_found
