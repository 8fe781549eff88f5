"""Data in every form that Python users and ONNX's tools have it."""

import ast

import numpy as np
import onnx
import pytest
from dovetail.errors import DovetailError
from dovetail_onnx.opening import open_text
from dovetail_runtime.data.array_files import InputNames, read_arrays
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.kept import KeptBatches
from dovetail_runtime.data.sources import as_data, data_digest

ONE = open_text('<ir_version: 10, opset_import: ["": 22]> g (float[N,2] x) => (float[N,2] y) { y = Relu (x) }', "one")
TWO = open_text(
    '<ir_version: 10, opset_import: ["": 22]> g (float[N,2] x, float[N,2] b) => (float[N,2] y) { y = Add (x, b) }',
    "two",
)
WIDE = open_text(
    '<ir_version: 10, opset_import: ["": 22]> g (float[N,100] x) => (float[N,100] y) { y = Relu (x) }', "wide"
)
A = np.arange(6, dtype=np.float32).reshape(3, 2)


def generator():
    yield {"x": A}
    yield {"x": A + 1}


def folder(path, **arrays):
    path.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def protos(path, *arrays, names=("", "")):
    path.mkdir(parents=True, exist_ok=True)
    for index, array in enumerate(arrays):
        onnx.save_tensor(onnx.numpy_helper.from_array(array, names[index]), path / f"input_{index}.pb")
    onnx.save_tensor(onnx.numpy_helper.from_array(A, ""), path / "output_0.pb")
    return path


ONE_INPUT = {
    "an array": (lambda _: A, [A]),
    "a mapping": (lambda _: {"x": A}, [A]),
    "lists": (lambda _: {"x": A.tolist()}, [A]),
    "a list of mappings": (lambda _: [{"x": A}, {"x": A + 1}], [A, A + 1]),
    "a list of arrays": (lambda _: [A, A + 1], [A, A + 1]),
    "an iterator": (lambda _: generator(), [A, A + 1]),
    "a function that returns one": (lambda _: generator, [A, A + 1]),
    "an .npz file": (lambda path: np.savez(path / "d.npz", x=A) or path / "d.npz", [A]),
    "an .npy file": (lambda path: np.save(path / "any.npy", A) or path / "any.npy", [A]),
    "a folder of .npy files": (lambda path: folder(path / "d", first=A, second=A + 1), [A, A + 1]),
    "a tensor proto": (lambda path: protos(path / "d", A) / "input_0.pb", [A]),
    "a folder of test data": (lambda path: protos(path / "d", A), [A]),
    "folders of test data": (lambda path: protos(path / "d/test_data_set_0", A).parent, [A]),
}


@pytest.mark.parametrize("form", ONE_INPUT)
def test_data_for_one_input(form, tmp_path):
    make, wanted = ONE_INPUT[form]
    data = as_data(make(tmp_path))
    for _ in range(2):  # calibration and verification read it in turn
        found = [feeds["x"] for feeds, _ in batches(ONE, data)]
        assert len(found) == len(wanted)
        for array, other in zip(found, wanted):
            np.testing.assert_array_equal(array, other)
            assert array.dtype == np.float32


@pytest.mark.parametrize("wrapped", [lambda a: {"x": a}, lambda a: a, lambda a: (a,)])
def test_an_iterator_that_does_not_fit_in_memory_is_kept_in_a_file(wrapped):
    import tracemalloc

    list(
        batches(WIDE, wrapped(np.zeros((1000, 100), np.float32)))
    )  # what tries whether to cut is loaded, and is no data
    tracemalloc.start()
    data = KeptBatches((wrapped(np.full((1000, 100), number, np.float32)) for number in range(40)), in_memory=1 << 20)
    for _ in range(2):
        found = [float(feeds["x"][0, 0]) for feeds, _ in batches(WIDE, data) if len(feeds["x"]) == 64]
        assert sorted(set(found)) == list(range(40))
    first, second = iter(data), iter(data)  # two readers in turn
    for _ in range(40):
        assert repr(next(first)) == repr(next(second))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * 400_000 / 3


TWO_INPUTS = {
    "tuples in the order of the inputs": lambda _: [(A, A + 1)],
    "a folder of .npy files by input name": lambda path: folder(path / "d", x=A, b=A + 1),
    "test data by number": lambda path: protos(path / "d", A, A + 1),
    "test data by name": lambda path: protos(path / "d", A + 1, A, names=("b", "x")),
}


@pytest.mark.parametrize("form", TWO_INPUTS)
def test_data_for_two_inputs(form, tmp_path):
    ((feeds, _),) = batches(TWO, as_data(TWO_INPUTS[form](tmp_path)))
    np.testing.assert_array_equal(feeds["x"], A)
    np.testing.assert_array_equal(feeds["b"], A + 1)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (A, "the data is ndarray, the model's inputs are x, b"),
        ([A], "batch 0 of the data is ndarray"),
        ([(A,)], "batch 0 of the data is tuple"),
        (3, "data cannot be int"),
        (lambda: 3, "the function that gives data returned int"),
        (lambda x: x, "cannot be called without arguments"),
        ("nowhere.npz", "nowhere.npz does not exist"),
        ({"x": A[:0], "b": A[:0]}, "the array for input 'x' holds no sample"),
    ],
)
def test_data_that_is_none(data, says):
    with pytest.raises(DovetailError) as refused:
        list(batches(TWO, data))
    assert says in refused.value.message


@pytest.mark.parametrize(("name", "says"), [("d.npy", "is not an .npy file"), ("d.pb", "is not a TensorProto")])
def test_damaged_files(name, says, tmp_path):
    (tmp_path / name).write_bytes(b"\xff\xff\xff\xffdamaged")
    with pytest.raises(DovetailError) as refused:
        list(batches(ONE, tmp_path / name))
    assert says in refused.value.message


def test_no_batch_is_no_verification():
    from dovetail_verify.compare import verify

    with pytest.raises(DovetailError, match="the data holds no batch, so nothing was verified"):
        verify(ONE, lambda feeds: feeds, lambda feeds: feeds, [])


def test_the_digest_of_data_tells_contents_apart(tmp_path):
    np.savez(tmp_path / "a.npz", x=A)
    np.savez(tmp_path / "b.npz", x=A + 1)
    digests = [data_digest(tmp_path / "a.npz"), data_digest(tmp_path / "b.npz"), data_digest(A), data_digest(A + 1),
               data_digest({"x": A}), data_digest([{"x": A}, {"x": A}]), data_digest(as_data(generator()))]  # fmt: skip
    assert len(set(digests)) == len(digests) and "" not in digests
    assert data_digest({"x": A}) == data_digest({"x": A.copy()})


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_header_that_python_fails_to_parse_while_another_thread_parses_is_parsed_again(tmp_path, monkeypatch, ending):
    """A defect of CPython 3.11 and 3.12 (gh-106905), at random where samples are read in parallel."""
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    (np.save if ending == ".npy" else lambda path, array: np.savez(path, x=array))(tmp_path / f"x{ending}", expected)
    failures = iter([SystemError("AST constructor recursion depth mismatch"), None, None])

    def parse(text, parse=ast.literal_eval):
        if failure := next(failures):
            raise failure
        return parse(text)

    monkeypatch.setattr(ast, "literal_eval", parse)
    found = read_arrays(tmp_path / f"x{ending}", InputNames(("x",)))
    assert np.array_equal(found["x"], expected)
