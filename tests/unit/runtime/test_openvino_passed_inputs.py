"""Outputs of a region that are inputs once OpenVINO has removed what changes nothing.

OpenVINO computes such outputs in the memory of earlier inputs, which ends the process in most calls, so that every
test runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

NOTHING = {
    "a Cast to the same type": "y = Cast<to = {own}>(x)",
    "two Casts": "a = Cast<to = {own}>(x) y = Cast<to = {own}>(a)",
    "a Cast that is read, too": "y = Cast<to = {own}>(x) b = Abs(y)",
    "one value that is two outputs": "y = Cast<to = {own}>(x) b = Cast<to = {own}>(x)",
    "an input that is converted and passed": "y = Cast<to = {own}>(x) b = Identity(x)",
    "a Cast to the next wider type and back": "a = Cast<to = {wider}>(x) y = Cast<to = {own}>(a)",
    "a Cast to float16 and back": "a = Cast<to = 10>(x) y = Cast<to = {own}>(a)",
    "a Cast to bfloat16 and back": "a = Cast<to = 16>(x) y = Cast<to = {own}>(a)",
    "an Identity": "y = Identity(x)",
    "a Dropout": "y = Dropout(x) b = Abs(x)",
    "a Dropout of a Cast": "a = Cast<to = {own}>(x) y = Dropout(a)",
    "a Reshape to the same": "y = Reshape(x, same)",
    "a Reshape of a Cast": "a = Cast<to = {own}>(x) y = Reshape(a, same)",
    "two Reshapes": "a = Reshape(x, cube) y = Reshape(a, same)",
    "a Cast between Reshapes": "a = Reshape(x, cube) b = Cast<to = {own}>(a) y = Reshape(b, same)",
    "a Transpose that keeps the order": "y = Transpose<perm = [0, 1]>(x)",
    "two Transposes": "a = Transpose(x) y = Transpose(a)",
    "a Slice of all": "y = Slice(x, first, endless, first)",
    "an Expand": "y = Expand(x, row)",
    "a Concat of one": "y = Concat<axis = 1>(x)",
    "a Squeeze of an Unsqueeze": "a = Unsqueeze(x, last) y = Squeeze(a, last)",
    "a Flatten": "y = Flatten(x)",
    "a Pad by nothing": "y = Pad(x, nothing)",
    "a Split in one": "y = Split<axis = 1, num_outputs = 1>(x)",
    "a Split and a Concat": "a, b = Split<axis = 1, num_outputs = 2>(x) y = Concat<axis = 1>(a, b)",
    "a Tile by one": "y = Tile(x, once)",
    "a Gather of all": "y = Gather<axis = 1>(x, all)",
    "the sum with zero": "y = Add(x, zero)",
    "the product with one": "y = Mul(x, one)",
    "the power of one": "y = Pow(x, one)",
    "a Clip without bounds": "y = Clip(x)",
    "a choice that is always the same": "y = Where(yes, x, zero)",
    "a reduction of no axes": "y = ReduceSum<noop_with_empty_axes = 1>(x)",
    "the Max of one": "y = Max(x)",
    "the Sum of one": "y = Sum(x)",
    "a loop that passes it on": "y = Loop(trips, yes, x) <body = l (int64 i, bool c, {type}[M,8] v) => (bool d,"
    " {type}[M,8] w) {{ d = Identity(c) w = Cast<to = {own}>(v) }}>",
}
"""Graphs whose `y` is `x`. Braces are filled with the type, its number in ONNX, and that of the next wider one."""
TYPES = {"float": (1, 11), "int32": (6, 7), "float16": (10, 1), "bool": (9, 2), "uint8": (2, 5), "int64": (7, 11)}
CONSTANTS = {
    "same": "int64[2] same = {0, 8}", "cube": "int64[3] cube = {0, 2, 4}", "first": "int64[1] first = {0}",
    "last": "int64[1] last = {1}", "endless": "int64[1] endless = {4611686018427387904}",
    "row": "int64[2] row = {1, 8}",
    "nothing": "int64[4] nothing = {0, 0, 0, 0}", "once": "int64[2] once = {1, 1}", "trips": "int64 trips = {3}",
    "all": "int64[8] all = {0, 1, 2, 3, 4, 5, 6, 7}", "yes": "bool yes = {1}", "zero": "%s zero = {0}",
    "one": "%s one = {1}",
}  # fmt: skip
FEW = ["a Cast to the same type", "a Cast to float16 and back", "a Dropout", "two Reshapes", "an Identity"]
EXTENTS = ("N", "5", "4096")


def model_of(name: str, type_: str, extent: str, beside: bool) -> onnx.ModelProto:
    """Return a model of a graph, with or without another operator beside it."""
    own, wider = TYPES[type_]
    body = NOTHING[name].format(type=type_, own=own, wider=wider)
    tokens = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    constants = [text.replace("%s", type_) for word, text in CONSTANTS.items() if word in tokens]
    if type_ == "float16":  # literals are the bits of the number
        constants = [text.replace("one = {1}", "one = {15360}") for text in constants]
    outputs = ["y", *(["b"] if " b = " in body and "b, " not in body else [])]
    if "(b)" in body or "(a, b)" in body:
        outputs = ["y"]
    other, beside_x = (" z = Softmax(q)", f", float[{extent},4] q") if beside else ("", "")
    text = (
        f'<ir_version: 10, opset_import: ["": 22]> g ({type_}[{extent},8] x{beside_x})'
        f" => ({', '.join([*outputs, *(['z'] if beside else [])])})"
        f" <{', '.join(constants)}> {{ {body}{other} }}"
    ).replace(" <> ", " ")
    return onnx.parser.parse_model(text)


def is_valid(model: onnx.ModelProto) -> bool:
    """Check whether the operators of a graph take its type."""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def numbers(rng: np.random.Generator, type_: str, rows: int) -> np.ndarray:
    if type_ == "bool":
        return rng.random((rows, 8)) < 0.5
    if type_.startswith("float"):
        held = rng.integers(-100, 100, (rows, 8)) / 8  # what the narrowest type holds
        return held.astype({"float": np.float32, "float16": np.float16}[type_])
    kind = np.iinfo(np.int32 if type_ == "int64" else type_)
    return rng.integers(kind.min, kind.max, (rows, 8), endpoint=True).astype(type_)


def wrong_calls(run, type_: str, extent: str, beside: bool, calls: int) -> int:
    """Return how many of some calls, with two numbers of rows in turns and any others, do not return `x`."""
    rng, wrong = np.random.default_rng(0), 0
    for call in range(calls):
        rows = int(extent) if extent.isdigit() else (2, 1, 5, 2, 60, 1)[call % 6] if call % 2 else int(rng.integers(70))
        x = numbers(rng, type_, rows)
        feeds = {"x": x.copy(), **({"q": np.ones((rows, 4), np.float32)} if beside else {})}
        found = run(feeds)
        del feeds
        wrong += not np.array_equal(found, x)
    return wrong


def check(
    backend: str, start: str, names: list[str], types: list[str], calls: int, extents: tuple[str, ...] = EXTENTS
) -> None:
    """Print every case with wrong calls, and how many cases had a node on the backend.

    All graphs with all types take an hour and more:

        python -c "from tests.unit.runtime import test_openvino_passed_inputs as t
        t.check('cpu-bf16', 'compiled', list(t.NOTHING), list(t.TYPES), 300)"
    """
    import dovetail

    placed = 0
    for name in names:
        for type_ in types:
            for extent in extents:
                for beside in (False, True):
                    model = model_of(name, type_, extent, beside)
                    if not is_valid(model) or "and back" in name and "float16" in name and type_ != "float":
                        continue
                    print("case", name, type_, extent, beside, flush=True)
                    data = {"data": data_of(type_, extent, beside)} if backend == "cpu-int8 with data" else {}
                    target = backend.partition(" ")[0]
                    if start == "compiled":
                        compiled = dovetail.compile(model, target, verify=False, **data)
                        placed += compiled.summary().startswith(target)
                        run = lambda feeds, of=compiled: of.run(feeds)["y"]  # noqa: E731
                    else:
                        content = model.SerializeToString()
                        session = dovetail.InferenceSession(content, backend=target, check_prepare=False)
                        if start == "opened again":
                            session = dovetail.InferenceSession(content, backend=target, check_prepare=False)
                        placed += 1
                        run = lambda feeds, of=session: of.run(["y"], feeds)[0]  # noqa: E731
                    wrong = wrong_calls(run, type_, extent, beside, calls)
                    if wrong:
                        print("WRONG", wrong, "of", calls, flush=True)
    print("placed", placed, flush=True)


def data_of(type_: str, extent: str, beside: bool) -> dict[str, np.ndarray]:
    rng, rows = np.random.default_rng(1), int(extent) if extent.isdigit() else 64
    return {"x": numbers(rng, type_, rows), **({"q": np.ones((rows, 4), np.float32)} if beside else {})}


def checked_alone(tmp_path, *arguments: object) -> str:
    """Check cases in a process of its own; return what it prints, which ends with the case at which it died."""
    code = f"from tests.unit.runtime import test_openvino_passed_inputs as t; t.check(*{arguments!r})"
    environment = {**os.environ, "DOVETAIL_RESULT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and not done.stdout.endswith("placed 0\n"), (
        f"{lines[-1:]} ended with {done.returncode}: {done.stderr[-500:]}"
    )
    return "\n".join(f"{lines[at - 1]}: {line}" for at, line in enumerate(lines) if line.startswith("WRONG"))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu-bf16", "cpu-int8"])
def test_an_input_that_reaches_an_output_unchanged_comes_out_as_it_is(backend, tmp_path):
    """Calls with other batches, after the arrays of the calls before them are freed; large ones of a fixed extent."""
    assert checked_alone(tmp_path, backend, "compiled", FEW, ["float"], 30) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "start", "names", "types", "extents"),
    [
        ("cpu-bf16", "compiled", list(NOTHING), ["float", "int32"], ("N",)),
        ("cpu-int8 with data", "compiled", FEW, ["float"], EXTENTS),
        ("cpu-int8", "opened again", FEW, ["float", "int64"], ("N", "4096")),
        ("cpu-bf16", "opened", FEW, ["float", "uint8"], ("N",)),
    ],
    ids=["every operator", "with data", "opened again", "opened"],
)
def test_whatever_changes_nothing(backend, start, names, types, extents, tmp_path):
    """Every operator that may change nothing; also in sessions, and in those that start from kept files."""
    assert checked_alone(tmp_path, backend, start, names, types, 20, extents) == ""
