"""Run an exported result with NumPy and the packages of its engines alone.

    python run.py INPUTS OUTPUTS [--repeat N] [--threads N]

or, in a program, `Runner(folder).run({"x": array})`. INPUTS and OUTPUTS are files of arrays (x.npz), or folders with
tensors.json, which names the tensors and the file of each. --repeat prints the median time of N more runs; a folder
OUTPUTS then has their seconds in times.json. Arrays of types that NumPy lacks are passed as unsigned
integers of the same width; OUTPUTS.npz has bfloat16 as float32. For steps of other engines, pass a function by the
engine's name that makes a session of a step: `Runner(folder, {"acme-npu": open_program})`; the session is a function
from arrays by name to arrays by name.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
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


class Runner:
    """Runs an exported result; thread-safe where its engines are.

    Args:
        folder: The folder that `dovetail export` wrote.
        engines: What makes the sessions of engines that this file does not know, by name: a function of the folder, the
            step and the types of all values that returns a function from arrays by name to arrays by name.
        threads: Threads of each engine; 0 for all cores.
        verify: Compare the digests of all files first.

    Raises:
        ValueError: The folder is no export, a file is missing or differs, an engine is unknown, or the CPU lacks
            instructions that the export was made for.
    """

    def __init__(self, folder, engines=None, threads=0, verify=True):
        self.folder = Path(folder)
        try:
            self.description = json.loads((self.folder / "deploy.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.folder / 'deploy.json'}: {error}") from None
        if self.description.get("format") != "dovetail-deploy" or self.description.get("version") != 1:
            raise ValueError(f"{self.folder / 'deploy.json'} is no description of version 1")
        self.types = {one["name"]: one["type"] for one in self.description["inputs"]}
        makers = {"onnxruntime": _onnxruntime, "openvino": _openvino, **(engines or {})}
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

    def run(self, inputs):
        """Compute all outputs by name.

        Raises:
            ValueError: An input is missing, unknown, or of another type, shape or range than is declared.
        """
        values = dict(self.values)
        for one in self.description["inputs"]:
            values[one["name"]] = _fed(one, inputs)
        for name in inputs:
            if name not in values:
                raise ValueError(f"there is no input '{name}'")
        for step, session in zip(self.description["steps"], self.steps):
            results = session({name: values[name] for name in step["inputs"]})
            for one in step["outputs"]:
                _check_shape(one, results[one["name"]].shape)
                values[one["name"]] = results[one["name"]]
        return {one["name"]: values[one["name"]] for one in self.description["outputs"]}


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


def _onnxruntime(folder, step, types):
    """Make a session of ONNX Runtime."""
    import onnxruntime as ort

    options, settings = ort.SessionOptions(), step["settings"]
    options.intra_op_num_threads = step["threads"]
    for key, text in settings["config_entries"].items():
        options.add_session_config_entry(key, text)
    session = ort.InferenceSession(
        str(folder / step["files"][0]["path"]),
        options,
        providers=settings["providers"],
        disabled_optimizers=settings["disabled_optimizers"] or None,
    )
    names = [value.name for value in session.get_outputs()]
    foreign = {name for name in (*step["inputs"], *names) if types[name] in FOREIGN}

    def run(arrays):
        if not foreign:
            return dict(zip(names, session.run(names, arrays)))
        given = {name: _ort_value(ort, array, types[name]) for name, array in arrays.items()}
        return {
            name: _array(value, types[name]) if name in foreign else value.numpy()
            for name, value in zip(names, session.run_with_ort_values(names, given))
        }

    return run


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


def _openvino(folder, step, types):
    """Compile a graph with OpenVINO."""
    import openvino as ov

    settings = step["settings"]
    configuration = dict(settings["configuration"])
    if step["threads"]:
        configuration["INFERENCE_NUM_THREADS"] = step["threads"]
    path = str(folder / step["files"][0]["path"])
    compiled = ov.Core().compile_model(path, settings["device"], configuration)
    passed, requests = dict(settings["passed"]), []

    def run(arrays):
        tensors = [_tensor(ov, arrays[name], types[name]) for name in settings["inputs"]]
        if settings["refuses_empty_inputs"] and not all(tensor.get_size() for tensor in tensors):
            raise ValueError("an input is empty: attention without keys is computed by Dovetail alone")
        request = requests.pop() if requests else compiled.create_infer_request()
        for index, tensor in enumerate(tensors):
            request.set_input_tensor(index, tensor)
        request.infer()
        results = {}
        for index, name in enumerate(settings["outputs"]):
            tensor = tensors[passed[index]] if index in passed else request.get_output_tensor(index)
            found = tensor.data.copy()
            results[name] = found.view("u2") if types.get(name) == "bfloat16" else found
        requests.append(request)
        return results

    return run


def _tensor(ov, array, type_):
    if array.dtype == np.int64 and array.size:
        array = np.clip(array, -(2**31), 2**31 - 1)  # OpenVINO cuts integers to 32 bits
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
