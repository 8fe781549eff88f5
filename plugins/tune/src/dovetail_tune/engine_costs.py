"""Costs of an engine on this machine: the rates of operators, and of every kind of border, each timed alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.errors import DovetailError
from dovetail.ir import name_of, shape_of

if TYPE_CHECKING:
    import numpy as np
    from dovetail.plugin import Engine, Session
    from dovetail_runtime.engines import GuardedEngine, GuardedSession

    AnyEngine: TypeAlias = Engine | GuardedEngine


_ELEMENTS = 1 << 22  # 16 MiB of float32, more than a core's caches hold
_EXTENT = 512  # extents of the matrices in a product
_CHAIN = 200
# Operators that are not limited by memory bandwidth.
_SLOW = ("Erf", "Exp", "LayerNormalization", "Pow", "Sigmoid", "Softmax", "Tanh")
_HEAD = '<ir_version: 10, opset_import: ["": 22]> g '
_FLOATS = {"float64": "double", "float32": "float", "float16": "float16", "bfloat16": "bfloat16"}
_TEXT = {**_FLOATS, "int8": "int8", "uint8": "uint8"}
_ZEROS = {"int8": 0, "uint8": 128}
_SECONDS = 0.3  # minimum time per figure

Costs = dict[str, Any]


def measure_costs(
    engine: AnyEngine, low: str, high: str = "float32", progress: Callable[[str, int, int], None] | None = None
) -> Costs:
    """Measure a cost table of `engine` on this machine, as plain data.

    Measures bytes and operations per nanosecond in both types, the rates of compute-bound operators, the bytes that
    conversions move (Cast, QuantizeLinear, DequantizeLinear, and a Transpose between layouts), the overhead of one more
    small operator and that of one call of the engine in nanoseconds. Every figure is the fastest of many runs. An
    operator that the engine rejects in a type is left out. Integers are computed between QuantizeLinear and
    DequantizeLinear, as in a quantized model.

    Args:
        engine: An engine that can run here.
        low, high: The types to measure; both may be the same. `low` may be a type of 8-bit integers.
        progress: Called with (what, done, total).

    Raises:
        DovetailError: The engine cannot run even an addition in one of the types.
    """
    table: Costs = {
        "engine": engine.name,
        "start": 0,
        "bytes": {},
        "operations": {},
        "casts": 0,
        "borders": {},
        "operators": {},
    }
    steps = list(_steps(engine, low, high))
    for index, (place, kind, work, figure) in enumerate(steps):
        if progress:
            progress("measuring", index, len(steps))
        try:
            value = figure(work())
        except DovetailError:
            if place[0] not in ("operators", "borders"):
                raise
            continue
        target: Costs = table
        for key in place[:-1]:
            target = target.setdefault(key, {})
        if kind:
            target.setdefault(place[-1], {})[kind] = value
        else:
            target[place[-1]] = value
    for rates in (table["bytes"], table["operations"], *table["operators"].values()):
        rates["other"] = rates.get(high) or next(iter(rates.values()))
    return table


def _steps(engine: AnyEngine, low: str, high: str) -> Iterator[tuple]:
    """Yield the key of each figure, its type, its timing function, and its formula from nanoseconds."""
    rows, columns = _ELEMENTS // 1024, 1024
    for kind in dict.fromkeys((high, low)):
        width = _width(kind)
        wide = f"{_TEXT[kind]}[{rows},{columns}]"

        def moved(nanoseconds: float, width: int = width, values: int = 2) -> float:
            return _rounded(values * _ELEMENTS * width / nanoseconds)

        text = _binary("Add", kind, f"[{rows},{columns}]")
        yield ("bytes",), kind, _timing(engine, text, kind), lambda ns, moved=moved: moved(ns, values=3)
        for operator in _SLOW if kind in _FLOATS else ():
            more = {"Pow": ", x", "LayerNormalization": ", s"}.get(operator, "")
            scale = f", {_TEXT[kind]}[{columns}] s" if operator == "LayerNormalization" else ""
            text = f"({wide} x{scale}) => ({wide} z) {{ z = {operator} (x{more}) }}"
            yield ("operators", operator), kind, _timing(engine, text, kind), moved
        text = _binary("MatMul", kind, f"[{_EXTENT},{_EXTENT}]")
        yield ("operations",), kind, _timing(engine, text, kind), lambda ns: _rounded(2 * _EXTENT**3 / ns)
    narrow = low if low in _FLOATS and low != high else "float16"
    here, there = (f"{_TEXT[kind]}[{rows},{columns}]" for kind in (high, narrow))
    text = f"({here} x) => ({there} z) {{ z = Cast <to = {_number(narrow)}> (x) }}"
    both = _width(high) + _width(narrow)
    yield ("casts",), "", _timing(engine, text, high), lambda ns: _rounded(_ELEMENTS * both / ns)
    quantized, scale = f"int8[{rows},{columns}]", f"<{_TEXT[high]} s = {{0.01}}, int8 z = {{0}}>"
    borders = {
        "quantize": (f"({here} x) => ({quantized} y) {scale} {{ y = QuantizeLinear (x, s, z) }}", 1),
        "dequantize": (
            f"({here} x) => ({here} y) {scale} {{ q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z) }}", 1
        ),
    }  # fmt: skip
    for name, (text, width) in borders.items():
        # The second one converts in both directions, as an engine's kernel for either reads and writes the same bytes.
        times = 2 if name == "dequantize" else 1
        moved_bytes = times * _ELEMENTS * (_width(high) + width)
        yield ("borders", name), "", _timing(engine, text, high), lambda ns, moved=moved_bytes: _rounded(moved / ns)
    image = f"{_TEXT[high]}[1,{rows // 64},64,{columns}]"
    turned = f"{_TEXT[high]}[1,64,{columns},{rows // 64}]"
    text = f"({image} x) => ({turned} y) {{ y = Transpose <perm = [0, 2, 3, 1]> (x) }}"
    moved_bytes = 2 * _ELEMENTS * _width(high)
    yield ("borders", "transpose"), "", _timing(engine, text, high), lambda ns: _rounded(moved_bytes / ns)
    small = f"{_TEXT[high]}[8]"
    text = f"({small} x) => ({small} y) {{ y = Neg (x) }}"
    yield ("borders", "call"), "", _timing(engine, text, high), _rounded
    chain = " ".join(f"v{i + 1} = Neg (v{i})" for i in range(_CHAIN))
    text = f"({small} v0) => ({small} v{_CHAIN}) {{ {chain} }}"
    yield ("start",), "", _timing(engine, text, high), lambda ns: _rounded(ns / _CHAIN)


def _binary(operator: str, kind: str, extents: str) -> str:
    """Return a graph of one operator with two inputs; integers are dequantized before and quantized behind it."""
    type_ = _TEXT[kind] + extents
    if kind in _FLOATS:
        return f"({type_} x, {type_} y) => ({type_} z) {{ z = {operator} (x, y) }}"
    return (
        f"({type_} x, {type_} y) => ({type_} z) <float s = {{0.01}}, {kind} o = {{{_ZEROS[kind]}}}> {{"
        f" a = DequantizeLinear (x, s, o) b = DequantizeLinear (y, s, o) c = {operator} (a, b)"
        f" z = QuantizeLinear (c, s, o) }}"
    )


def _timing(engine: AnyEngine, text: str, kind: str) -> Callable[[], float]:
    def fastest() -> float:
        """Return the nanoseconds of the fastest run."""
        session, feeds = _session(engine, text, kind)
        session.run(feeds)
        found: list[int] = []
        started = time.perf_counter()
        while len(found) < 5 or time.perf_counter() - started < _SECONDS:
            start = time.perf_counter_ns()
            session.run(feeds)
            found.append(time.perf_counter_ns() - start)
        return max(min(found), 1)

    return fastest


def _session(engine: AnyEngine, text: str, kind: str) -> tuple[Session | GuardedSession, Mapping[str, np.ndarray]]:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model, from_name
    from dovetail.plugin import RegionModel

    model = Model(ir.from_onnx_text(_HEAD + text))
    for number, node in enumerate(model.graph):
        node.name = f"n{number}"
    generator = np.random.default_rng(0)
    feeds = {
        name_of(value): generator.uniform(0.5, 1, shape_of(value).numpy()).astype(from_name(kind).numpy())
        for value in model.graph.inputs
    }
    return engine.load(RegionModel(model), {}), feeds


def _width(kind: str) -> int:
    from dovetail.ir import from_name

    return from_name(kind).bitwidth // 8


def _number(kind: str) -> int:
    from dovetail.ir import from_name

    return int(from_name(kind).value)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
