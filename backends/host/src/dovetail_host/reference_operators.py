"""Replacements for operators that the evaluator of the onnx package computes wrongly or only in part.

The evaluator (1.23) concatenates the scan outputs of a Loop instead of stacking them, skips a Loop without a condition,
returns wrong indices of a MaxPool, rejects a Scan that runs backwards or along another axis, and ignores that a Resize
by `pytorch_half_pixel` returns the first element if the result has only one. It looks up replacements by class name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from onnx import helper
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_resize

from dovetail_host import reference_arithmetic

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator


class _WithBody(OpRun):
    """An operator that runs the graph `body` repeatedly."""

    op_domain = ""
    body: ReferenceEvaluator
    _run_body: Callable[..., list[Any]]

    def need_context(self) -> bool:
        """Return true, because the body may read any value computed so far."""
        return True

    def _turn(self, values: Mapping[str, object], attributes: object, options: Mapping[str, object]) -> list:
        given = {key: value for key, value in options.items() if key == "bindings" and value is not None}
        return self._run_body(dict(values), attributes=attributes, **given)

    def _stacked(self, index: int, results: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
        """Stack the results of all iterations along a new axis; without iterations, an empty array of declared type."""
        if results:
            return np.stack(results, axis=axis)
        declared = cast("list[Any]", self.body.output_types_)[index].tensor_type
        extents = [dim.dim_value for dim in declared.shape.dim]
        if not declared.HasField("shape") or not declared.elem_type:
            name = self.body.output_names[index]
            raise ValueError(f"no turn was taken, and the body declares no type and rank for '{name}'")
        extents.insert(axis if axis >= 0 else len(extents) + 1 + axis, 0)
        return np.empty(extents, helper.tensor_dtype_to_np_dtype(declared.elem_type))


class Loop(_WithBody):
    """Iterates a body while a condition holds, up to an optional trip count."""

    def _run(self, limit, condition, *states, context=None, attributes=None, body=None, **options):
        names_in, names_out = self.body.input_names, self.body.output_names
        states, scans = list(states), [[] for _ in names_out[1 + len(states) :]]
        values = dict(context or {})
        turn = 0
        while (limit is None or turn < int(limit)) and (condition is None or bool(condition)):
            passed_on = np.array(True) if condition is None else condition
            values.update(zip(names_in, (np.array(turn, np.int64), passed_on, *states)))
            results = self._turn(values, attributes, options)
            condition = results[0]
            states = results[1 : 1 + len(states)]
            for scan, result in zip(scans, results[1 + len(states) :]):
                scan.append(np.asarray(result))
            turn += 1
        first = 1 + len(states)
        return (*states, *(self._stacked(first + i, scan) for i, scan in enumerate(scans)))


class Scan(_WithBody):
    """Iterates a body over slices of its inputs, in either direction and along any axis."""

    def _run(self, *args, context=None, attributes=None, body=None, **options):
        if self.run_params["opsets"].get("", 9) < 9:
            raise NotImplementedError("Scan of opset 8, which has a batch axis, is not supported")
        number = len(args) - self.num_scan_inputs
        names_in, names_out = self.body.input_names, self.body.output_names
        states = list(args[:number])
        ways_in = self._listed("scan_input_directions", self.num_scan_inputs)
        axes_in = self._listed("scan_input_axes", self.num_scan_inputs)
        sources = [
            np.moveaxis(array, axis, 0)[:: -1 if way else 1]
            for array, axis, way in zip(args[number:], axes_in, ways_in)
        ]
        scans = [[] for _ in names_out[number:]]
        values = dict(context or {})
        for turn in range(len(sources[0])):
            values.update(zip(names_in, (*states, *(source[turn] for source in sources))))
            results = self._turn(values, attributes, options)
            states = results[:number]
            for scan, result in zip(scans, results[number:]):
                scan.append(np.asarray(result))
        ways_out = self._listed("scan_output_directions", len(scans))
        axes_out = self._listed("scan_output_axes", len(scans))
        made = [
            self._stacked(number + i, scan[:: -1 if way else 1], axis)
            for i, (scan, way, axis) in enumerate(zip(scans, ways_out, axes_out))
        ]
        return (*states, *made)

    def _listed(self, name: str, count: int) -> list[int]:
        return list(getattr(self, name, None) or [0] * count)


class Resize(op_resize.Resize):
    """Resize with correct `pytorch_half_pixel`, which takes the first element if the resized axis has one element.

    The evaluator compares the extent before rounding it down: half of three is one and a half there.
    """

    op_domain = ""

    def _run(self, X, roi=None, scales=None, sizes=None, **options):
        wanted = sizes if sizes is not None and len(sizes) else scales
        special = options.get("coordinate_transformation_mode") == "pytorch_half_pixel" and not options.get("antialias")
        if not special or wanted is None or (options.get("keep_aspect_ratio_policy") or "stretch") != "stretch":
            return super()._run(X, roi, scales, sizes, **options)
        given = np.array(wanted)
        for index, axis in enumerate(options.get("axes") or range(X.ndim)):
            extent = given[index] if wanted is sizes else math.floor(X.shape[axis] * given[index])
            if extent == 1:
                X, given[index] = np.take(X, [0], axis), 1
        asked = (None, given) if wanted is sizes else (given, None)
        return super()._run(X, roi, *asked, **options)


class MaxPool(OpRun):
    """The largest element of every window, and its index in the flattened input."""

    op_domain = ""

    def _run(self, x, **options):
        spatial = x.shape[2:]
        count = len(spatial)
        kernel = list(options["kernel_shape"])
        strides = list(options.get("strides") or [1] * count)
        dilations = list(options.get("dilations") or [1] * count)
        reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations)]
        pads = _padding(options, spatial, reach, strides)
        counts = [
            _positions(*axis, ceil=bool(options.get("ceil_mode")))
            for axis in zip(spatial, pads[:count], pads[count:], reach, strides)
        ]
        positions = np.arange(x.size).reshape(x.shape)
        if options.get("storage_order"):
            planes = np.arange(int(np.prod(spatial))).reshape(spatial[::-1]).transpose()
            positions = positions.reshape(*x.shape[:2], -1)[..., :1].reshape(*x.shape[:2], *[1] * count) + planes
        best = found = None
        for offsets in itertools.product(*(range(size) for size in kernel)):
            # Coordinates of the element at these offsets in every window; those outside of the input do not count.
            at = [
                np.arange(number) * stride - begin + offset * step
                for number, stride, begin, offset, step in zip(counts, strides, pads, offsets, dilations)
            ]
            inside = np.ones(counts, bool)
            for axis, (places, extent) in enumerate(zip(at, spatial)):
                inside &= ((places >= 0) & (places < extent)).reshape([-1 if i == axis else 1 for i in range(count)])
            window = np.ix_(*(np.clip(places, 0, extent - 1) for places, extent in zip(at, spatial)))
            values, where = x[(slice(None), slice(None), *window)], positions[(slice(None), slice(None), *window)]
            inside = np.broadcast_to(inside, values.shape)
            if best is None:
                best, found, known = values.copy(), np.where(inside, where, -1), inside.copy()
                continue
            larger = inside & (~known | (values > best))
            best, found, known = np.where(larger, values, best), np.where(larger, where, found), known | inside
        least = np.array(-np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min).astype(x.dtype)
        best = np.where(known, best, least)
        return (best,) if len(self.output) == 1 or not self.output[1] else (best, found.astype(np.int64))


def _padding(options: Mapping[str, Any], spatial, reach, strides) -> list[int]:
    """Return the begin and end padding of all spatial axes."""
    automatic = options.get("auto_pad") or "NOTSET"
    if automatic == "NOTSET":
        return list(options.get("pads") or [0] * (2 * len(spatial)))
    if automatic == "VALID":
        return [0] * (2 * len(spatial))
    totals = [
        max((-(-extent // stride) - 1) * stride + window - extent, 0)
        for extent, stride, window in zip(spatial, strides, reach)
    ]
    smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return smaller + larger if automatic == "SAME_UPPER" else larger + smaller


def _positions(extent: int, begin: int, end: int, window: int, stride: int, ceil: bool) -> int:
    """Return the number of windows along one axis; no window begins in the end padding."""
    free = extent + begin + end - window
    number = (-(-free // stride) if ceil else free // stride) + 1
    return number - 1 if ceil and (number - 1) * stride >= extent + begin else number


REPLACEMENTS: list[type[OpRun]] = [
    Loop,
    MaxPool,
    Resize,
    Scan,
    *(getattr(reference_arithmetic, name) for name in reference_arithmetic.__all__),
]
"""Replacements in the form of the evaluator's `new_ops`."""
