"""Tools of vendors in processes of their own: whatever they do costs one call, and is said in their own words."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from dovetail.plugin import EngineError, Tool, ToolEndedError

WORKER = '''
import os, sys, time

RUNTIME = os.environ.get("ACME_RUNTIME", "")
loaded = []


def compile(model, scales, name="net"):
    """Returns what it got, and what its environment says."""
    yield "reading " + name
    print("a line on standard output", flush=True)
    yield "compiling"
    doubled = [scale * 2 for scale in scales]
    return {"program": model[::-1], "doubled": doubled, "runtime": RUNTIME, "nested": {"none": None}}


def load(program):
    loaded.append(program)
    if program == b"bad":
        raise ValueError("no program")
    return Program(program)


class Program:
    def __init__(self, code):
        self.code = code


def run_program(program, x):
    return {"y": x + len(program.code), "loaded": loaded, "pid": os.getpid()}


def run(x):
    return {"y": x + 1, "pid": os.getpid()}


def refuse():
    error = ValueError("Gelu is not supported\\n  at Importer.cs:12")
    error.nodes = ["gelu_1", "gelu_2"]
    raise error


class License(Exception):
    pass


def own():
    raise License("accept the license: acme --accept")


def wrapped():
    raise ValueError("Traceback (most recent call last):\\n  File 'a.py', line 1\\nKeyError: 'silu_4'\\n")


def crash():
    print("Unhandled exception. System.NotSupportedException: Not supported: Mish", file=sys.stderr, flush=True)
    print("   at Nncase.Importer", file=sys.stderr, flush=True)
    os.abort()


def leave():
    os._exit(3)


def hang():
    yield "begun"
    print("building ...", flush=True)
    time.sleep(600)


def sequence():
    for number in range(3):
        time.sleep(1.5)
        yield str(number)
    return "done"


def where():
    known = {"executable": sys.executable, "prefix": sys.prefix, "dovetail": "dovetail" in sys.modules}
    return {**known, "path": sys.path, "path of children": os.environ.get("PYTHONPATH", "")}


def unsendable():
    return object()


def advised():
    from dovetail.errors import DovetailError

    raise DovetailError("net.onnx: no inputs", "give it some")


def without_memory():
    raise MemoryError


def complain():
    print("Error: a warning that looks worse than it is", file=sys.stderr, flush=True)


def leave_a_file(descriptor=None):
    import tempfile

    held = descriptor is not None and os.fstat(descriptor).st_size
    return {"file": tempfile.NamedTemporaryFile(delete=False).name, "pid": os.getpid(), "held": held}
'''


@pytest.fixture
def worker(tmp_path):
    path = tmp_path / "acme_worker.py"
    path.write_text(WORKER)
    return str(path)


@pytest.fixture
def tool(worker):
    made = []

    def start(**settings):
        made.append(Tool.start(worker, title="acme-compiler", **settings))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_call_passes_arrays_bytes_and_plain_data_both_ways(tool):
    lines = []
    acme = tool(variables={"ACME_RUNTIME": "7"}, progress=lines.append)
    scales = [np.float32(0.5), np.arange(6, dtype=np.float16).reshape(2, 3)]
    found = acme.ask("compile", model=b"\x00\xff\n", scales=scales)
    assert (found["program"], found["runtime"], found["nested"]) == (b"\n\xff\x00", "7", {"none": None})
    assert found["doubled"][0] == 1.0
    np.testing.assert_array_equal(found["doubled"][1], scales[1] * 2)
    assert found["doubled"][1].dtype == np.float16
    assert lines == ["reading net", "compiling"]


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint16", "bool", "int64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 1, 3)])
def test_arrays_keep_type_and_shape(tool, dtype, shape):
    import ml_dtypes  # noqa: F401

    x = np.zeros(shape, np.dtype(dtype))
    y = tool().ask("run", x=x)["y"]
    assert (y.dtype, y.shape) == ((x + 1).dtype, shape)


def test_an_error_of_the_tool_names_its_nodes_and_leaves_it_running(tool):
    acme = tool()
    with pytest.raises(EngineError) as caught:
        acme.ask("refuse")
    assert caught.value.message == "acme-compiler: ValueError: Gelu is not supported"
    assert (caught.value.node, caught.value.nodes) == ("gelu_1", ("gelu_1", "gelu_2"))
    acme.ask("run", x=np.zeros(1))
    assert acme.starts == 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("crash", "ended with signal SIGABRT: Unhandled exception. System.NotSupportedException: Not supported: Mish"),
        ("leave", "ended with exit code 3"),
        ("own", "acme-compiler: accept the license: acme --accept"),
        ("wrapped", "ValueError: KeyError: 'silu_4'"),
        ("unknown", "AttributeError: "),
        ("unsendable", "TypeError: object is neither plain data nor an array of numbers"),
        ("without_memory", "acme-compiler: there is not enough memory"),
    ],
)
def test_what_ends_a_call_is_said_in_the_last_words_and_the_next_call_works(tool, function, says):
    acme = tool(hint="pip install acme")
    with pytest.raises(EngineError) as caught:
        acme.ask(function)
    assert caught.value.message.startswith("acme-compiler") and says in caught.value.message
    assert acme.ask("run", x=np.zeros(1))["y"] == 1


def test_a_tool_that_hangs_is_ended(tool):
    acme, begun = tool(timeout=3.0), time.monotonic()
    with pytest.raises(EngineError, match="gave no answer within 3 s, and was ended; it last said: building ..."):
        acme.ask("hang")
    assert time.monotonic() - begun < 60
    assert acme.ask("sequence") == "done", "a line of progress begins the time again"


def test_a_call_has_a_time_limit_whatever_progress_it_makes(tool):
    acme = tool()
    acme.ask("where")
    with pytest.raises(ToolEndedError, match="acme-compiler took longer than 2 s, and was ended") as caught:
        acme.ask("sequence", 2.0)
    assert caught.value.is_late and acme.ask("compile", 60.0, model=b"ab", scales=[])["program"] == b"ba"


def test_an_error_of_dovetail_keeps_its_message_and_its_hint(tool):
    with pytest.raises(EngineError) as caught:
        tool().ask("advised")
    assert (caught.value.message, caught.value.hint) == ("net.onnx: no inputs", "give it some")


def test_the_last_words_are_those_of_the_call(tool):
    acme = tool()
    acme.ask("complain")
    with pytest.raises(ToolEndedError) as caught:
        acme.ask("leave")
    assert caught.value.message == "acme-compiler ended with exit code 3" and not caught.value.is_late


def test_a_process_that_may_not_be_replaced_is_not(tool):
    """What its earlier calls left in it is gone, which every later call says."""
    acme = tool(restarts=False)
    os.kill(acme.ask("leave_a_file")["pid"], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(ToolEndedError, match="acme-compiler ended with signal SIGKILL"):
            acme.ask("where")
    acme = tool(restarts=False)
    acme.ask("where")
    acme.close()
    with pytest.raises(ToolEndedError, match="acme-compiler was closed"):
        acme.ask("where")


def test_what_a_process_leaves_in_its_temporary_folder_is_removed(tool):
    """Also if it is killed; what an engine writes there may be as large as the model."""
    acme = tool()
    left = [acme.ask("leave_a_file")]
    assert os.path.exists(left[0]["file"])
    with pytest.raises(ToolEndedError):
        acme.ask("crash")
    left.append(acme.ask("leave_a_file"))
    assert left[1]["pid"] != left[0]["pid"] and os.path.exists(left[1]["file"])
    acme.close()
    assert not any(os.path.exists(one["file"]) for one in left)


def test_a_process_keeps_what_it_inherits(tool, tmp_path):
    (tmp_path / "lock").write_text("four")
    with (tmp_path / "lock").open() as lock:
        assert tool(inherited=(lock.fileno(),)).ask("leave_a_file", descriptor=lock.fileno())["held"] == 4


def test_one_process_has_several_things_open_and_opens_them_again_if_it_ended(tool):
    acme = tool()
    one, two = (acme.opened("load", program=code) for code in (b"1", b"22"))
    first = [each.ask("run_program", x=np.zeros(1)) for each in (one, two, one)]
    assert [float(found["y"][0]) for found in first] == [1, 2, 1]
    assert len({found["pid"] for found in first}) == 1 and acme.starts == 1
    assert first[-1]["loaded"] == [b"1", b"22"], "each is opened once"
    with pytest.raises(EngineError):
        acme.ask("leave")
    again = [each.ask("run_program", x=np.zeros(1)) for each in (two, one)]
    assert [float(found["y"][0]) for found in again] == [2, 1] and acme.starts == 2
    assert again[-1]["loaded"] == [b"22", b"1"]


def test_what_is_closed_is_forgotten_and_the_process_stays(tool):
    acme = tool()
    one, two = (acme.opened("load", program=code) for code in (b"1", b"22"))
    for each in (one, two):
        each.ask("run_program", x=np.zeros(1))
    one.close(), one.close()
    found = two.ask("run_program", x=np.zeros(1))
    assert found["pid"] == acme.ask("run", x=np.zeros(1))["pid"]
    assert one.ask("run_program", x=np.zeros(1))["loaded"] == [b"1", b"22", b"1"], "a later call opens it again"
    acme.close()
    one.close()
    assert acme.starts == 1


def test_what_does_not_open_is_an_error_of_every_call(tool):
    bad = tool().opened("load", program=b"bad")
    for _ in range(2):
        with pytest.raises(EngineError, match="acme-compiler: ValueError: no program"):
            bad.ask("run_program", x=np.zeros(1))


def test_a_forked_process_does_not_use_the_tool_of_the_other_one(tool):
    acme = tool()
    own = acme.ask("run", x=np.zeros(1))["pid"]
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writable, str(acme.ask("run", x=np.zeros(1))["pid"]).encode())
            acme.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(readable, 20)) != own == acme.ask("run", x=np.zeros(1))["pid"]


def test_the_process_ends_with_the_tool(tool):
    acme = tool()
    pid = acme.ask("run", x=np.zeros(1))["pid"]
    acme.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_tool_of_another_environment_finds_nothing_of_this_one(tool, tmp_path):
    """An environment without NumPy and without Dovetail."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    acme = tool(python=tmp_path / "env")
    found = acme.ask("where")
    assert found["prefix"] == str(tmp_path / "env")
    assert not any("site-packages" in entry and str(tmp_path) not in entry for entry in found["path"])
    assert not found["dovetail"] and not found["path of children"]
    assert acme.ask("compile", model=b"ab", scales=[1])["program"] == b"ba"


def test_a_missing_library_says_what_to_install(tool, tmp_path):
    path = tmp_path / "lacking.py"
    path.write_text("import acme_that_nobody_has\n")
    acme = Tool.start(str(path), title="acme-compiler", hint="pip install acme")
    with pytest.raises(EngineError) as caught:
        acme.ask("compile")
    assert "No module named 'acme_that_nobody_has'" in caught.value.message
    assert caught.value.hint == "pip install acme"


@pytest.mark.parametrize("python", ["nowhere", "a_file"])
def test_an_environment_that_is_none_is_named(worker, tmp_path, python):
    (tmp_path / "a_file").write_text("no program")
    with pytest.raises(EngineError, match=python):
        Tool.start(worker, python=tmp_path / python).ask("where")


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(EngineError, match="there is no module 'acme_that_nobody_has'"):
        Tool.start("acme_that_nobody_has")


def test_modules_of_the_current_folder_are_not_imported(worker, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('planted')")
    (tmp_path / "numpy.py").write_text("raise SystemExit('planted')")
    script = f"""
    from dovetail.plugin import Tool
    print(Tool.start({json.dumps(worker)}).ask("compile", model=b"ab", scales=[])["program"])
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "b'ba'\n", done.stderr
