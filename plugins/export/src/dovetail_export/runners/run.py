"""Run an exported result with NumPy and the packages of its engines alone.

    python run.py INPUTS OUTPUTS [--repeat N] [--threads N]

or, in a program, `Runner(folder).run({"x": array})`. INPUTS and OUTPUTS are files of arrays (x.npz), or folders with
tensors.json, which names the tensors and the file of each. --repeat prints the median time of N more runs; a folder
OUTPUTS then has their seconds in times.json. Arrays of types that NumPy lacks are passed as unsigned
integers of the same width; OUTPUTS.npz has bfloat16 as float32. For steps of other engines, pass a function by the
engine's name that makes a session of a step: `Runner(folder, {"acme-npu": open_program})`; the session is a function
from arrays by name to arrays by name.

From the third call with the same shapes on, the engines run over arrays that are bound once; results are copies.
Steps that do not wait for each other run at the same time, where the first calls have shown that this is faster.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

# The number of each element type in ONNX, and the NumPy type of its arrays here.
TYPES = {
    "float32": (1, "f4"), "uint8": (2, "u1"), "int8": (3, "i1"), "uint16": (4, "u2"), "int16": (5, "i2"),
    "int32": (6, "i4"), "int64": (7, "i8"), "string": (8, "O"), "bool": (9, "?"), "float16": (10, "f2"),
    "float64": (11, "f8"), "uint32": (12, "u4"), "uint64": (13, "u8"), "complex64": (14, "c8"),
    "complex128": (15, "c16"), "bfloat16": (16, "u2"), "float8_e4m3fn": (17, "u1"), "float8_e4m3fnuz": (18, "u1"),
    "float8_e5m2": (19, "u1"), "float8_e5m2fnuz": (20, "u1"),
}  # fmt: skip
FOREIGN = {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
MOST_SHAPES = 8  # combinations of shapes that have bound arrays
LIMITS = -(2**31), 2**31 - 1  # of integers for OpenVINO, which cuts them to 32 bits
LARGEST = 1 << 26  # bytes of the bound arrays of a run


class Runner:
    """Runs an exported result; thread-safe where its engines are.

    Args:
        folder: The folder that `dovetail export` wrote.
        engines: What makes the sessions of engines that this file does not know, by name: a function of the folder, the
            step and the types of all values that returns a function from arrays by name to arrays by name.
        threads: Threads of each engine; 0 for all cores.
        verify: Compare the digests of all files first.
        parallel: Whether steps that do not wait for each other run at the same time: `on`, `off`, or `auto` for the way
            that the first calls show to be faster.

    Raises:
        ValueError: The folder is no export, a file is missing or differs, an engine is unknown, or the CPU lacks
            instructions that the export was made for.
    """

    def __init__(self, folder, engines=None, threads=0, verify=True, parallel="auto"):
        self.folder = Path(folder)
        try:
            self.description = json.loads((self.folder / "deploy.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.folder / 'deploy.json'}: {error}") from None
        if self.description.get("format") != "dovetail-deploy" or self.description.get("version") != 1:
            raise ValueError(f"{self.folder / 'deploy.json'} is no description of version 1")
        self.types = {one["name"]: one["type"] for one in self.description["inputs"]}
        makers = {"onnxruntime": _OnnxRuntime, "openvino": _OpenVino, **(engines or {})}
        self.values = {}
        for constant in self.description["constants"]:
            content = _checked(self.folder, constant["file"], verify).read_bytes()
            self.values[constant["name"]] = _from_bytes(content, constant["type"], constant["shape"])
            self.types[constant["name"]] = constant["type"]
        self.steps = []
        for number, step in enumerate(self.description["steps"]):
            if step["engine"] not in makers:
                raise ValueError(f"step {number} is for {step['engine']}: give Runner a function for it")
            for file in step["files"]:
                _checked(self.folder, file, verify)
            _check_processor(number, step["needs"])
            self.types.update({one["name"]: one["type"] for one in step["outputs"]})
            self.steps.append(makers[step["engine"]](self.folder, {**step, "threads": threads}, self.types))
        self.schedule = _Schedule(self.description["steps"], parallel)
        self.binds = all(isinstance(session, (_OnnxRuntime, _OpenVino)) for session in self.steps)
        self.last, self.bound = None, {}  # the shapes of the last call; runs over bound arrays that are idle, by shapes

    def run(self, inputs):
        """Compute all outputs by name.

        Raises:
            ValueError: An input is missing, unknown, or of another type, shape or range than is declared.
        """
        fed = {one["name"]: _fed(one, inputs) for one in self.description["inputs"]}
        for name in inputs:
            if name not in fed:
                raise ValueError(f"there is no input '{name}'")
        shapes = tuple(array.shape for array in fed.values())
        if results := self._run_bound(shapes, fed):
            return results
        values = {**self.values, **fed}
        self.schedule.run(lambda number: self._run_step(number, values))
        self._bind(shapes, values)
        return {one["name"]: values[one["name"]] for one in self.description["outputs"]}

    def _run_step(self, number, values):
        step = self.description["steps"][number]
        results = self.steps[number]({name: values[name] for name in step["inputs"]})
        for one in step["outputs"]:
            _check_shape(one, results[one["name"]].shape)
            values[one["name"]] = results[one["name"]]

    def _run_bound(self, shapes, fed):
        """Run over arrays that are bound; None if there are none that are idle, or the run fails there."""
        idle = self.bound.get(shapes)
        try:
            arrays, calls = idle.pop() if idle else (None, None)
        except IndexError:  # another thread was faster
            return None
        if arrays is None:
            return None
        for name, array in fed.items():
            arrays[name][...] = array
        try:
            self.schedule.run(lambda number: calls[number]())
        except Exception:  # the usual way finds out why; shapes may depend on values
            self.binds = False
            return None
        results = {one["name"]: arrays[one["name"]].copy() for one in self.description["outputs"]}
        idle.append((arrays, calls))
        return results

    def _bind(self, shapes, values):
        """Bind arrays like those of a run, if the run before it had the same shapes."""
        if not self.binds or shapes != self.last or len(self.bound.get(shapes, ())) >= (os.cpu_count() or 1):
            self.last = shapes
            return
        size = sum(array.nbytes for array in values.values())
        if size > LARGEST or not all(array.size and array.dtype != object for array in values.values()):
            return
        arrays = {name: np.array(array, order="C") for name, array in values.items()}
        calls = []
        for step, session in zip(self.description["steps"], self.steps):
            outputs = [one["name"] for one in step["outputs"]]
            try:
                calls.append(session.bind({n: arrays[n] for n in step["inputs"]}, {n: arrays[n] for n in outputs}))
            except Exception:
                self.binds = False
                return
        if shapes not in self.bound and len(self.bound) >= MOST_SHAPES:
            self.bound.pop(next(iter(self.bound), None), None)
        self.bound.setdefault(shapes, []).append((arrays, calls))


class _Schedule:
    """Runs steps in an order in which each finds what it reads, and at the same time where that is faster."""

    RUNS = 3  # of each way before the faster one is known; the first one warms up

    def __init__(self, steps, parallel):
        makers, levels = {}, []
        self.waits_for, self.releases = [], [[] for _ in steps]
        for number, step in enumerate(steps):
            before = {makers[name] for name in step["inputs"] if name in makers}
            levels.append(1 + max((levels[one] for one in before), default=-1))
            self.waits_for.append(len(before))
            for one in before:
                self.releases[one].append(number)
            makers.update({one["name"]: number for one in step["outputs"]})
        self.width = max(Counter(levels).values(), default=1)
        self.parallel = False if self.width == 1 else {"on": True, "off": False, "auto": None}[parallel]
        self.seconds = {False: [], True: []}
        self.threads = ThreadPoolExecutor(self.width - 1) if self.parallel is not False else None

    def run(self, call):
        """Call a function with the number of each step.

        Raises:
            Exception: What the first step that fails raises.
        """
        parallel = self.parallel
        if parallel is None:
            parallel, begin = len(self.seconds[False]) >= self.RUNS, time.perf_counter()
        if parallel:
            _Together(self, call).run(self.threads)
        else:
            for number in range(len(self.waits_for)):
                call(number)
        if self.parallel is None:
            self.seconds[parallel].append(time.perf_counter() - begin)
            if min(map(len, self.seconds.values())) >= self.RUNS:
                self.parallel = min(self.seconds[True][1:]) < min(self.seconds[False][1:])


class _Together:
    """One run of steps by several threads. After a failure, only steps before it start: one of them may fail, too."""

    def __init__(self, schedule, call):
        self.schedule, self.call = schedule, call
        self.waits_for = list(schedule.waits_for)
        self.ready = [number for number, count in enumerate(self.waits_for) if not count]  # a heap
        self.failures, self.running, self.changed = {}, 0, threading.Condition()

    def run(self, threads):
        others = [threads.submit(self.work) for _ in range(self.schedule.width - 1)]
        self.work()
        for other in others:
            if not other.cancel():
                other.result()
        if self.failures:
            raise self.failures[min(self.failures)]

    def work(self):
        """Run one step after the other, until nothing is left that may start."""
        while True:
            with self.changed:
                while not self.may_start() and self.running:
                    self.changed.wait()
                if not self.may_start():
                    return
                number = heapq.heappop(self.ready)
                self.running += 1
            failure = None
            try:
                self.call(number)
            except BaseException as error:
                failure = error
            with self.changed:
                self.running -= 1
                if failure is not None:
                    self.failures[number] = failure
                else:
                    self.release(number)
                self.changed.notify_all()

    def may_start(self):
        return bool(self.ready) and self.ready[0] < min(self.failures, default=len(self.waits_for))

    def release(self, number):
        for following in self.schedule.releases[number]:
            self.waits_for[following] -= 1
            if not self.waits_for[following]:
                heapq.heappush(self.ready, following)


def _checked(folder, file, verify):
    path = folder / file["path"]
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    if path.stat().st_size != file["bytes"]:
        raise ValueError(f"{path} has {path.stat().st_size} bytes in place of {file['bytes']}")
    if verify:
        digest = hashlib.sha256()
        with path.open("rb") as content:
            while chunk := content.read(1 << 22):
                digest.update(chunk)
        if digest.hexdigest() != file["sha256"]:
            raise ValueError(f"{path} was changed: its digest differs")
    return path


def _from_bytes(content, type_, shape):
    if type_ == "string":
        return np.array(json.loads(content), object).reshape(shape)
    return np.frombuffer(content, TYPES[type_][1]).reshape(shape)


def _check_processor(number, needs):
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), None)
    for group in needs:
        if flags is not None and not set(group) & set(flags):
            raise ValueError(f"step {number} is for a CPU with {' or '.join(group)}: export the result on this one")


def _fed(declared, inputs):
    name = declared["name"]
    if name not in inputs:
        raise ValueError(f"input '{name}' is missing")
    dtype = np.dtype(TYPES[declared["type"]][1])
    array = np.asarray(inputs[name])
    if declared["type"] == "string":
        array = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        array = array.astype(object)
    elif array.dtype != dtype:
        raise ValueError(f"input '{name}' is {declared['type']}, the array given is {array.dtype}")
    _check_shape(declared, array.shape)
    if "range" in declared and array.size:
        low, high = declared["range"]
        if array.min() < low or array.max() > high:
            raise ValueError(f"input '{name}' holds {array.min()} to {array.max()}, and takes {low} to {high}")
    return array


def _check_shape(declared, shape):
    wanted = declared["shape"]
    if wanted is not None and (
        len(wanted) != len(shape) or any(want not in (None, got) for want, got in zip(wanted, shape))
    ):
        raise ValueError(f"'{declared['name']}' has the shape {list(shape)} in place of {wanted}")


class _OnnxRuntime:
    """A session of ONNX Runtime."""

    def __init__(self, folder, step, types):
        import onnxruntime as ort

        self.ort, self.types, settings = ort, types, step["settings"]
        options = ort.SessionOptions()
        options.intra_op_num_threads = step["threads"]
        for key, text in settings["config_entries"].items():
            options.add_session_config_entry(key, text)
        self.session = ort.InferenceSession(
            str(folder / step["files"][0]["path"]),
            options,
            providers=settings["providers"],
            disabled_optimizers=settings["disabled_optimizers"] or None,
        )
        self.names = [value.name for value in self.session.get_outputs()]
        self.foreign = {name for name in (*step["inputs"], *self.names) if types[name] in FOREIGN}

    def __call__(self, arrays):
        if not self.foreign:
            return dict(zip(self.names, self.session.run(self.names, arrays)))
        given = {name: _ort_value(self.ort, array, self.types[name]) for name, array in arrays.items()}
        return {
            name: _array(value, self.types[name]) if name in self.foreign else value.numpy()
            for name, value in zip(self.names, self.session.run_with_ort_values(self.names, given))
        }

    def bind(self, inputs, outputs):
        binding = self.session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, _ort_value(self.ort, array, self.types[name]))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, _ort_value(self.ort, array, self.types[name]))
        return lambda: self.session.run_with_iobinding(binding)


def _ort_value(ort, array, type_):
    array = np.ascontiguousarray(array).reshape(array.shape)
    if type_ in FOREIGN:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TYPES[type_][0])
    return ort.OrtValue.ortvalue_from_numpy(array)


def _array(value, type_):
    import ctypes

    dtype, shape = np.dtype(TYPES[type_][1]), value.shape()
    size = int(np.prod(shape)) * dtype.itemsize
    content = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(content), dtype).reshape(shape)


class _OpenVino:
    """A graph that OpenVINO has compiled."""

    def __init__(self, folder, step, types):
        import openvino as ov

        self.ov, self.types, settings = ov, types, step["settings"]
        configuration = dict(settings["configuration"])
        if step["threads"]:
            configuration["INFERENCE_NUM_THREADS"] = step["threads"]
        path = str(folder / step["files"][0]["path"])
        self.compiled = ov.Core().compile_model(path, settings["device"], configuration)
        self.inputs, self.outputs, self.passed = settings["inputs"], settings["outputs"], dict(settings["passed"])
        self.refuses_empty_inputs, self.requests = settings["refuses_empty_inputs"], []

    def __call__(self, arrays):
        tensors = [_tensor(self.ov, _limited(arrays[name]), self.types[name]) for name in self.inputs]
        if self.refuses_empty_inputs and not all(tensor.get_size() for tensor in tensors):
            raise ValueError("an input is empty: attention without keys is computed by Dovetail alone")
        try:
            request = self.requests.pop()
        except IndexError:
            request = self.compiled.create_infer_request()
        for index, tensor in enumerate(tensors):
            request.set_input_tensor(index, tensor)
        request.infer(share_outputs=True)
        results = {}
        for index, name in enumerate(self.outputs):
            tensor = tensors[self.passed[index]] if index in self.passed else request.get_output_tensor(index)
            results[name] = self.viewed(tensor, name).copy()
        self.requests.append(request)
        return results

    def viewed(self, tensor, name):
        return tensor.data.view("u2") if self.types.get(name) == "bfloat16" else tensor.data

    def bind(self, inputs, outputs):
        request = self.compiled.create_infer_request()
        given = [inputs[name] for name in self.inputs]
        limited = [np.empty_like(array) if array.dtype == np.int64 else array for array in given]
        for index, array in enumerate(limited):
            request.set_input_tensor(index, _tensor(self.ov, array, self.types[self.inputs[index]]))
        copied = []
        for index, name in enumerate(self.outputs):
            is_static = self.compiled.outputs[index].get_partial_shape().is_static
            if index not in self.passed and is_static and outputs[name].ndim:
                request.set_output_tensor(index, _tensor(self.ov, outputs[name], self.types[name]))
            else:
                copied.append((index, name))

        def call():
            for array, limit in zip(given, limited):
                if array is not limit:
                    np.clip(array, *LIMITS, out=limit)
            request.infer(share_outputs=True)
            for index, name in copied:
                is_passed = index in self.passed
                made = limited[self.passed[index]] if is_passed else self.viewed(request.get_output_tensor(index), name)
                if made.shape != outputs[name].shape:
                    raise ValueError(f"'{name}' has the shape {list(made.shape)}")
                outputs[name][...] = made

        return call


def _limited(array):
    return np.clip(array, *LIMITS) if array.dtype == np.int64 and array.size else array


def _tensor(ov, array, type_):
    array = np.array(array, order="C", copy=None if array.flags.carray else True)
    if type_ == "bfloat16":
        return ov.Tensor(array, list(array.shape), ov.Type.bf16)
    return ov.Tensor(array, shared_memory=array.size > 0)


def _float32(array, type_):
    return (array.astype("u4") << 16).view("f4") if type_ == "bfloat16" else array


def read_tensors(folder):
    """Read a folder of tensors.

    Returns:
        Arrays by name; texts as objects, types that NumPy lacks as unsigned integers.

    Raises:
        ValueError: It holds no tensors, or a file does not fit to its type and shape. Errors of reading pass.
    """
    index = Path(folder) / "tensors.json"
    description = json.loads(index.read_text(encoding="utf-8"))
    arrays = {}
    try:
        if description["format"] != "dovetail-tensors" or description["version"] != 1:
            raise ValueError(f"{index} is no list of tensors of version 1")
        for one in description["tensors"]:
            content = (Path(folder) / one["file"]).read_bytes()
            arrays[one["name"]] = _from_bytes(content, one["type"], one["shape"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{index}: {error}") from None
    return arrays


def write_tensors(folder, arrays, types):
    """Write a folder of tensors.

    Args:
        folder: The folder; it is made if it is missing.
        arrays: Arrays by name.
        types: The type of each, as `deploy.json` names it.
    """
    folder, entries = Path(folder), []
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, array) in enumerate(arrays.items()):
        strings = types[name] == "string"
        file = f"{number}.{'json' if strings else 'bin'}"
        (folder / file).write_bytes(json.dumps(array.ravel().tolist()).encode() if strings else array.tobytes())
        entries.append({"name": name, "type": types[name], "shape": list(array.shape), "file": file})
    index = {"format": "dovetail-tensors", "version": 1, "tensors": entries}
    (folder / "tensors.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_times(folder, seconds):
    """Write the seconds of runs into a folder of tensors, as times.json."""
    times = {"format": "dovetail-times", "version": 1, "seconds": seconds}
    (Path(folder) / "times.json").write_text(json.dumps(times) + "\n", encoding="utf-8")


def main(arguments):
    """Run the result next to this file."""
    numbers, paths = {"--repeat": 0, "--threads": 0}, []
    words = iter(arguments)
    for word in words:
        if word in numbers:
            text = next(words, "")
            if not text.isdecimal():
                print(f"error: {word} {text}: a number from 0 is expected", file=sys.stderr)
                return 2
            numbers[word] = int(text)
        else:
            paths.append(word)
    if len(paths) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        runner = Runner(Path(__file__).parent, threads=numbers["--threads"])
        _run(runner, *paths, numbers["--repeat"])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _run(runner, source, target, repeat):
    """Run the result on what `source` holds, write the outputs to `target`, and measure further runs."""
    inputs = _read(Path(source))
    outputs = runner.run(inputs)
    in_folder = not target.endswith(".npz")
    if in_folder:
        write_tensors(target, outputs, runner.types)
    else:
        np.savez(target, **{name: _float32(array, runner.types[name]) for name, array in outputs.items()})
    seconds = []
    for _ in range(repeat):
        begun = time.perf_counter()
        runner.run(inputs)
        seconds.append(time.perf_counter() - begun)
    if seconds:
        print(f"{statistics.median(seconds) * 1000:.3f} ms, median of {repeat}")
        if in_folder:
            write_times(target, seconds)


def _read(path):
    if path.is_dir():
        return read_tensors(path)
    with np.load(path, allow_pickle=False) as given:
        return dict(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
