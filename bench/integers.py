"""Compare integer arithmetic at the ends of every type with ONNX: what backends take, and what the host computes.

    python bench/integers.py [--backend cpu-bf16 ...] [--only Add ...] [--json FILE]

Every operator with integers is tried with every integer type: on inputs of the model, between conversions, and beside
floats, with values at the ends of the type. The reference is ONNX Runtime without graph optimizations, or the evaluator
of the onnx package where ONNX Runtime has no kernel; where both run and differ, the line says so. A case that ends its
process counts as a difference. Prints the differences, and how many cases had the operator on the backend.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings

import numpy as np
import onnx
from sweeping import answers, references, summary

TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
NUMBER = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
          "uint32": 12, "uint64": 13}  # fmt: skip
SIDE = 12  # different values of a type
UNARY = {
    "Abs": "Abs({0})", "Neg": "Neg({0})", "Sign": "Sign({0})", "Not": "Not({0})", "BitwiseNot": "BitwiseNot({0})",
    "Relu": "Relu({0})", "Clip": "Clip({0}, low, high)", "Clip below": "Clip({0}, \"\", high)",
    "Identity": "Identity({0})", "Transpose": "Transpose({0})", "Reshape": "Reshape({0}, flat)",
    "Concat": "Concat<axis = 0>({0}, {0})", "Slice": "Slice({0}, first, second)", "Flatten": "Flatten({0})",
    "Expand": "Expand({0}, wider)", "Tile": "Tile({0}, twos)", "Pad": "Pad({0}, pads, high)",
    "Pad edge": 'Pad<mode = "edge">({0}, pads)', "Trilu": "Trilu({0})", "Unsqueeze": "Unsqueeze({0}, first)",
    "Split": "Split<axis = 1, num_outputs = 1>({0})", "Gather": "Gather({0}, places)",
    "GatherElements": "GatherElements({0}, rows)", "GatherND": "GatherND({0}, points)",
    "ScatterElements": "ScatterElements({0}, rows, row)", "ScatterElements add":
    'ScatterElements<reduction = "add">({0}, rows, row)', "ScatterElements mul":
    'ScatterElements<reduction = "mul">({0}, rows, row)', "ScatterElements max":
    'ScatterElements<reduction = "max">({0}, rows, row)', "ScatterElements min":
    'ScatterElements<reduction = "min">({0}, rows, row)', "ScatterND": "ScatterND({0}, points, three)",
    "ScatterND add": 'ScatterND<reduction = "add">({0}, points, three)', "Compress": "Compress<axis = 0>({0}, some)",
    "CumSum": "CumSum({0}, axis)", "CumSum reverse": "CumSum<reverse = 1, exclusive = 1>({0}, axis)",
    "ReduceSum": "ReduceSum({0}, first)", "ReduceSum of all": "ReduceSum<keepdims = 0>({0})",
    "ReduceMax": "ReduceMax({0}, first)", "ReduceMin": "ReduceMin({0}, second)",
    "ReduceProd": "ReduceProd({0}, second)",
    "ReduceMean": "ReduceMean({0}, second)", "ReduceL1": "ReduceL1({0}, second)", "ReduceL2": "ReduceL2({0}, second)",
    "ReduceSumSquare": "ReduceSumSquare({0}, second)", "ArgMax": "ArgMax<axis = 1>({0})",
    "ArgMin": "ArgMin<axis = 1>({0})", "ArgMax last": "ArgMax<axis = 1, select_last_index = 1>({0})",
    "Hardmax": "Hardmax({0})", "NonZero": "NonZero({0})", "Unique": "Unique({0})", "OneHot": "OneHot({0}, depth, ends)",
    "ReverseSequence": "ReverseSequence<batch_axis = 0, time_axis = 1>({0}, lengths)", "Shape": "Shape({0})",
    "Size": "Size({0})", "EyeLike": "EyeLike({0})", "MaxPool":
    "MaxPool<kernel_shape = [2], strides = [2]>(cube)", "CenterCropPad": "CenterCropPad({0}, crop)",
    "Resize": 'Resize<mode = "nearest">(image, "", scales)', "DepthToSpace": "DepthToSpace<blocksize = 2>(deep)",
    "SpaceToDepth": "SpaceToDepth<blocksize = 2>(image)", "TopK": "TopK({0}, two)",
}  # fmt: skip
BINARY = {
    "Add": "Add({0}, {1})", "Sub": "Sub({0}, {1})", "Mul": "Mul({0}, {1})", "Div": "Div({0}, {1})",
    "Mod": "Mod({0}, {1})", "Mod as in C": "Mod<fmod = 1>({0}, {1})", "Max": "Max({0}, {1})", "Min": "Min({0}, {1})",
    "Max of three": "Max({0}, {1}, low)", "And": "And({0}, {1})", "Or": "Or({0}, {1})", "Xor": "Xor({0}, {1})",
    "BitwiseAnd": "BitwiseAnd({0}, {1})", "BitwiseOr": "BitwiseOr({0}, {1})", "BitwiseXor": "BitwiseXor({0}, {1})",
    "BitShift left": 'BitShift<direction = "LEFT">({0}, {1})',
    "BitShift right": 'BitShift<direction = "RIGHT">({0}, {1})',
    "Equal": "Equal({0}, {1})", "Less": "Less({0}, {1})", "Greater": "Greater({0}, {1})", "LessOrEqual":
    "LessOrEqual({0}, {1})", "GreaterOrEqual": "GreaterOrEqual({0}, {1})", "Where": "Where(some2, {0}, {1})",
    "Pow": "Pow({0}, {1})", "PRelu": "PRelu({0}, {1})", "MatMul": "MatMul({0}, {1})", "Gemm": "Gemm({0}, {1})",
    "Einsum": 'Einsum<equation = "ij,jk->ik">({0}, {1})', "Sum": "Sum({0}, {1})", "Mean": "Mean({0}, {1})",
    "MatMulInteger": "MatMulInteger({0}, {1})", "Range": "Range(start, limit, delta)",
}  # fmt: skip
CONSTANTS = {
    "flat": "int64[1] flat = {-1}", "first": "int64[1] first = {0}", "second": "int64[1] second = {1}",
    "wider": "int64[3] wider = {2, 1, 1}", "twos": "int64[2] twos = {2, 2}", "pads": "int64[4] pads = {1, 1, 0, 2}",
    "places": "int64[3] places = {-1, 0, 1}", "axis": "int64 axis = {1}", "two": "int64[1] two = {2}",
    "depth": "int64 depth = {7}", "points": "int64[3,2] points = {0, 1, -1, -1, 0, 2}",
    "crop": "int64[2] crop = {4, 15}",
    "some": "bool[12] some = {1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0}", "scales": "float[4] scales = {1, 1, 2, 2}",
}  # fmt: skip
FORMS = ("own", "then int64", "from int32", "from float")
COLUMNS = "float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}"


def ends(type_: str) -> list[int]:
    """Return different values of a type: its ends, those around zero, and some in the middle."""
    if type_ == "bool":
        return [0, 1] * 6
    kind = np.iinfo(type_)
    low = [kind.min, kind.min + 1, -7, -1] if kind.min else [3, 9, kind.max // 2, kind.max // 2 + 1]
    return [*low, 0, 1, 2, 5, kind.max // 3, kind.max - 7, kind.max - 1, kind.max]


def values(name: str, type_: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two square arrays that together have every pair of values."""
    numbers = np.array([int(number) for number in ends(type_)], dtype=object)
    one, other = np.repeat(numbers, SIDE).reshape(SIDE, SIDE), np.tile(numbers, SIDE).reshape(SIDE, SIDE)
    if name.startswith(("Div", "Mod")):  # what is not defined: by zero, and the least integer by -1
        other = np.where((other == 0) | (other == -1), 3, other)
    elif name == "Pow":
        one, other = np.abs(one) % 6, np.abs(other) % 3
    elif name.startswith("BitShift"):
        other = np.abs(other) % 8
    return one.astype(type_), other.astype(type_)


def literal(array: np.ndarray) -> str:
    return "{" + ", ".join(str(int(number)) for number in array.reshape(-1)) + "}"


def model_of(name: str, type_: str, form: str, to: str = "") -> tuple[onnx.ModelProto, dict[str, np.ndarray]] | None:
    """Return a model of an operator beside a product in floats, and its inputs; None where ONNX has no such node."""
    template = f"Cast<to = {NUMBER[to]}>({{0}})" if to else UNARY.get(name) or BINARY[name]
    left, right = values(name, type_)
    kind = np.iinfo(type_) if type_ != "bool" else None
    low, high = (kind.min + 1, kind.max - 1) if kind else (0, 1)
    given = {
        **CONSTANTS, "low": f"{type_} low = {{{low}}}", "high": f"{type_} high = {{{high}}}",
        "ends": f"{type_}[2] ends = {{{low}, {high}}}", "row": f"{type_}[1,12] row = {literal(right[0])}",
        "three": f"{type_}[3] three = {literal(right[0, -3:])}", "start": f"{type_} start = {{1}}",
        "rows": f"int64[1,12] rows = {{{', '.join(str(at % 2) for at in range(12))}}}",
        "limit": f"{type_} limit = {{11}}", "delta": f"{type_} delta = {{3}}",
        "lengths": f"int64[12] lengths = {{{', '.join(str(at + 1) for at in range(12))}}}",
        "some2": f"bool[12] some2 = {{{', '.join(str(at % 2) for at in range(12))}}}",
        "c144": "int64[3] c144 = {1, 12, 12}", "i144": "int64[4] i144 = {1, 1, 12, 12}",
        "d144": "int64[4] d144 = {1, 4, 6, 6}",
    }  # fmt: skip
    source, body = "i", ""
    if form in ("from int32", "from float"):
        body, source = f"a = Cast<to = {NUMBER[type_]}>(i) ", "a"
    for view, shape in (("cube", "c144"), ("image", "i144"), ("deep", "d144")):
        if f"({view}" in template:
            body += f"{view} = Reshape({source}, {shape}) "
    unary = "{1}" not in template
    call = template.format(source, "j")
    result = "y, k" if name == "TopK" else "y"
    last = ""
    if form == "then int64":
        result, last = result.replace("y", "b"), " y = Cast<to = 7>(b)"
    elif form == "from float":
        result, last = result.replace("y", "b"), " y = Cast<to = 1>(b)"
    text = f"{body}{result} = {call}{last} m = MatMul(x, w) z = Relu(m)"
    tokens = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    held = [constant for word, constant in given.items() if word in tokens]
    taken = {"from int32": "int32", "from float": "float"}.get(form, type_)
    shape = "12,12" if name in ("Einsum", "MatMul", "Gemm", "MatMulInteger") or "Reshape" in body else "N,12"
    inputs = [f"{taken}[{shape}] i", "float[N,4] x"] if "i" in tokens else ["float[N,4] x"]
    if not unary and form in ("own", "then int64"):
        inputs.append(f"{type_}[{shape}] j")
    elif not unary:
        held.append(f"{type_}[12,12] j = {literal(right)}")
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 22]> g ({", ".join(inputs)}) => (y, z) <{", ".join([*held, COLUMNS])}>'
        f" {{ {text} }}"
    )
    number = 0
    for node in proto.graph.node:
        node.name, number = f"{node.op_type.lower()}_{number}", number + 1
    try:
        proto = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        onnx.checker.check_model(proto)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
        return None
    if form == "from float":
        exact = left.astype(np.float32)
        fits = exact.astype(np.float64).astype(object) == left.astype(object)
        given_left = np.where(fits.astype(bool), exact, np.float32(1))
    else:
        given_left = left.astype(taken)
    feeds = {"i": given_left, "j": right, "x": np.ones((2, 4), np.float32)}
    return proto, {value.name: feeds[value.name] for value in proto.graph.input}


def right_answer(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray | None, str]:
    """Return what ONNX Runtime computes without optimizations, or the evaluator of onnx; and whether both differ."""
    found, evaluated = (None if results is None else results[0] for results in references(proto, feeds))
    if found is None:
        return evaluated, "evaluator alone" if evaluated is not None else "neither"
    return found, "" if evaluated is None or same(
        found, evaluated
    ) else f"the evaluator gives {shown(found, evaluated)}"


def same(one: np.ndarray, other: np.ndarray) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    close = np.allclose if one.dtype.kind == "f" else np.array_equal
    return one.shape == other.shape and one.dtype == other.dtype and bool(close(one, other))


def shown(right: np.ndarray, found: np.ndarray) -> str:
    """Return where two results differ first, as text."""
    right, found = np.asarray(right), np.asarray(found)
    if right.shape != found.shape or right.dtype != found.dtype:
        return f"{found.dtype}{list(found.shape)} for {right.dtype}{list(right.shape)}"
    at = np.argwhere(right != found)[0]
    return f"{found[tuple(at)]} for {right[tuple(at)]}, {int((right != found).sum())} of {right.size} differ"


def jobs(only: list[str]) -> list[tuple[str, str, str, str]]:
    """Return operator, type, form, and the type that a Cast goes to."""
    names = [name for name in (*UNARY, *BINARY) if not only or name.split()[0] in only]
    found = [(name, type_, form, "") for name in names for type_ in TYPES for form in FORMS]
    if not only or "Cast" in only:
        found += [
            (f"Cast to {to}", type_, form, to)
            for type_ in TYPES for to in (*TYPES, "float", "float16") for form in FORMS
        ]  # fmt: skip
    return found


def serve(backend: str) -> None:
    """Run the jobs of standard input, one JSON list a line; print an answer for each."""
    import dovetail

    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, type_, form, to = json.loads(line)
        made = model_of(name, type_, form, to)
        answer: dict[str, object] = {}
        if made is not None:
            proto, feeds = made
            right, doubt = right_answer(proto, feeds)
            answer["doubt"] = doubt
            if right is not None:
                try:
                    result = dovetail.compile(proto, backend, verify=False, data=feeds)
                    found = result.run(feeds)["y"]
                    tested = name.split()[0]
                    answer["placed"] = any(
                        node.backend != "host" for node in result.plan.nodes if node.op_type == tested
                    )
                    answer["beside"] = any(
                        node.backend != "host" and node.op_type == "Cast" for node in result.plan.nodes
                    )
                    if not same(right, found):
                        answer["differs"] = shown(right, found)
                except Exception as error:
                    answer["differs"] = f"{type(error).__name__}: {str(error)[:160]}"
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Try all jobs on every backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", nargs="+", default=["cpu-bf16", "cpu-int8", "host"])
    parser.add_argument("--only", nargs="+", default=[], help="operators")
    parser.add_argument("--json", help="file for all answers")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    todo, everything = jobs(options.only), {}
    for backend in options.backend:
        found = everything[backend] = answers(__file__, backend, todo)
        print(summary(backend, found), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(everything, out, indent=1)


if __name__ == "__main__":
    main()
