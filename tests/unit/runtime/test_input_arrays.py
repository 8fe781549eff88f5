"""Arrays of every kind give the same results on the same engine: read-only, strided, swapped, unaligned, empty."""

import warnings

import dovetail
import ml_dtypes
import numpy as np
import onnx
import pytest

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
TYPES = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int64": np.int64, "int8": np.int8}
NET = """g ({type}[N, 8] x) => (float[N, 8] y) <float[8] w = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{
    c = Cast<to = 1>(x) m = Mul(c, w) y = Sigmoid(m) }}"""


def memory_map(array, folder):
    array.tofile(folder / "array")
    return np.memmap(folder / "array", array.dtype, "r", shape=array.shape)


def read_only(array, _):
    array.flags.writeable = False
    return array


def unaligned(array, _):
    made = np.frombuffer(bytearray(1 + array.nbytes), array.dtype, offset=1).reshape(array.shape)
    made[...] = array
    return made


def strided(array, _):
    made = np.zeros((array.shape[0], 2 * array.shape[1]), array.dtype)[:, ::2]
    made[...] = array
    return made


KINDS = {
    "read-only": read_only,
    "from a buffer": lambda array, _: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
    "a memory map": memory_map,
    "broadcast": lambda array, _: np.broadcast_to(array[:1], array.shape),
    "by columns": lambda array, _: np.asfortranarray(array),
    "backwards": lambda array, _: array[::-1],
    "strided": strided,
    "unaligned": unaligned,
    "in another byte order": lambda array, _: array.astype(array.dtype.newbyteorder(">")),
    "empty": lambda array, _: array[:0],
    "empty and read-only": lambda array, _: read_only(array[:0], _),
}


@pytest.mark.generated(one_of=3)
@pytest.mark.parametrize("backend", ["cpu-bf16", "host", "cpu-bf16,cpu-int8"])
@pytest.mark.parametrize("type_", TYPES)
def test_every_kind_of_array_gives_the_same(backend, type_, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_RESULT_CACHE", str(tmp_path / "cache"))
    onnx.save(onnx.parser.parse_model(f"{HEAD} {NET.format(type=type_)}"), tmp_path / "net.onnx")
    first, again = (dovetail.InferenceSession(tmp_path / "net.onnx", backend=backend.split(",")) for _ in range(2))
    engines = {runner.engine for runner in first.compiled.regions}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, make in KINDS.items():
            if type_ == "bfloat16" and "order" in kind:  # NumPy has no other order of it
                continue
            given = make(np.linspace(-4, 4, 24).reshape(3, 8).astype(TYPES[type_]), tmp_path)
            plain = np.array(given, given.dtype.newbyteorder("="), order="C")
            for run in (first.compiled.run, lambda feeds: {"y": again.run(None, feeds)[0]}):
                expected, found = run({"x": plain})["y"], run({"x": given})["y"]
                assert (found.shape, found.tobytes()) == (expected.shape, expected.tobytes()), kind
    assert {runner.engine for runner in first.compiled.regions} == engines, "none was replaced"
