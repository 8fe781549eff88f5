"""Operators that ONNX has as well."""

import itertools

import numpy as np

from ..decomposing import Case
from . import numbers, whole


def former():
    for upper, k in itertools.product((0, 1), (None, 0, 1, -2)):
        inputs = {"X": numbers(2, 3, 4), "k": None if k is None else np.array(k)}
        yield Case(f"{upper} {k}", "Trilu", inputs, {"upper": upper})
    for mode, pads, value in itertools.product(
        ("constant", "reflect", "edge"), ([0, 1, 2, 1], [[1, 0, 0, 2]]), (False, True)
    ):
        if value and mode != "constant":
            continue
        inputs = {
            "data": numbers(3, 4),
            "pads": np.array(pads),
            "value": np.array([0.5], np.float32) if value else None,
        }
        yield Case(f"{mode} {pads} {value}", "Pad", inputs, {"mode": mode}, constants=["pads"])
    for axis in (0, 1, -1):
        yield Case(f"{axis}", "ExpandDims", {"X": numbers(3, 4), "axis": np.array(axis, np.int32)}, constants=["axis"])
    for shape, kind in itertools.product(((), (1,)), (np.float32, np.int64)):
        inputs = {"start": np.full(shape, 1, kind), "limit": np.full(shape, 6, kind), "delta": np.full(shape, 2, kind)}
        yield Case(f"{shape} {kind.__name__}", "Range", inputs)
        yield Case(f"{shape} {kind.__name__} by one", "Range", inputs | {"delta": None})
    for kind in (np.int32, np.int64):
        inputs = {"data": numbers(3, 4, 5), "indices": whole(0, 3, 2, 2, dtype=kind)}
        yield Case(kind.__name__, "GatherND", inputs)


CASES = [*former()]
