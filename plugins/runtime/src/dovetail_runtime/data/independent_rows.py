"""Where data may be cut: inputs with samples along an open first axis, and rows that may be run in pieces."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir import dtype_of, float_name, name_of
from dovetail.planning import HOST
from dovetail.plugin import load_plugins

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model


Feeds = Mapping[str, "np.ndarray"]
Run = Callable[[Feeds], Mapping[str, object]]
"""Runs a model on inputs by name."""

_KEPT = "dovetail_runtime.independent_rows"
_CUT_AT = 27 / 64  # no multiple of a usual stride, and the pieces differ in length
_SHORT = 1e-4  # of the largest element: what sums in another order differ by, in float32
_SHORT_IN_16_BITS = 1e-2
_WINDOWS = ("Conv", "Pool")
_UNKNOWN = 10**9


def why_rows_stay_together(model: Model, feeds: Feeds, cut: Collection[str], rows: int, run: Run | None = None) -> str:
    """Why the inputs `cut` must not be cut along their first axis; empty if cutting was found to change nothing.

    The first `rows` rows run whole and in two pieces, then as many random ones, since data that begins with silence
    would hide that rows affect each other. Every output must be the same or joined of those of the pieces.

    Args:
        model: The model.
        feeds: All of the data of one batch.
        cut: Inputs of one length, along which may be cut.
        rows: How many rows one run takes.
        run: Runs the model; by default an engine of the host does.
    """
    if crossing := _window_across(model, cut, int(rows * _CUT_AT)):
        return crossing
    probe = {name: array[:rows] if name in cut else array for name, array in feeds.items()}
    # Several steps of a compilation ask the same of one graph. What is kept there is no part of the model.
    kept: dict[str, str] = model.graph.meta.setdefault(_KEPT, {})
    key = _digest(probe, cut)
    if key not in kept:
        try:
            run = run or _host(model)
            kept[key] = _difference(run, probe, cut) or _difference(run, _random(probe, cut), cut)
        except DovetailError as error:
            kept[key] = f"a part of the data does not run by itself: {error.message}"
    return kept[key]


def _host(model: Model) -> Run:
    from dovetail.passes import BackendChoice, load_chosen
    from dovetail_transforms.regions.regions import slices

    from dovetail_runtime.engines import engines_of
    from dovetail_runtime.executor import Executor

    model = model.runnable()
    registry = load_plugins().registry
    engines = engines_of([load_chosen(registry, BackendChoice(HOST))], registry)
    executor = Executor(model, engines, {"optimize": "none"}, regions=slices(model.graph))
    return lambda feeds: executor.run(fitted(model, feeds))


def _difference(run: Run, probe: Feeds, cut: Collection[str]) -> str:
    """What differs between a run and two of its pieces."""
    from dovetail_runtime.feeds import arrays_of

    length = len(probe[next(iter(cut))])
    at = max(int(length * _CUT_AT), 1)
    pieces = [{name: array[part] if name in cut else array for name, array in probe.items()}
              for part in (slice(None), slice(0, at), slice(at, None))]  # fmt: skip
    found = [{inner: array for name, value in run(feeds).items() for inner, array in arrays_of(name, value).items()}
             for feeds in pieces]  # fmt: skip
    whole, *parts = found
    if any(part.keys() != whole.keys() for part in parts):
        return "parts of the data have other outputs"
    for name, array in whole.items():
        if not _consists_of(array, [part[name] for part in parts]):
            return f"output '{name}' changes where rows are run apart"
    return ""


def _consists_of(whole: np.ndarray, parts: list[np.ndarray]) -> bool:
    """Whether an output is that of both pieces joined along an axis, or the same in all."""
    import numpy as np

    if any(part.ndim != whole.ndim for part in parts):
        return False
    if all(_alike(whole, part) for part in parts):
        return True
    for axis in range(whole.ndim):
        shapes = [part.shape[:axis] + part.shape[axis + 1 :] for part in (whole, *parts)]
        if all(first == second for first, second in pairwise(shapes)) and _alike(whole, np.concatenate(parts, axis)):
            return True
    return False


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    import numpy as np

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind not in "fcV" or not one.size:
        return bool(np.array_equal(one, other))
    first, second = (array.astype("complex128" if array.dtype.kind == "c" else "float64") for array in (one, other))
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)) or not np.array_equal(
        first[~finite], second[~finite], equal_nan=True
    ):
        return False
    largest = float(np.abs(first[finite]).max(initial=0.0))
    share = _SHORT if one.dtype.itemsize > 2 else _SHORT_IN_16_BITS
    return float(np.abs(first[finite] - second[finite]).max(initial=0.0)) <= share * largest


def _random(probe: Feeds, cut: Collection[str]) -> dict[str, np.ndarray]:
    """Random rows of the same spread; integers stay those of the data, which may be numbers of rows in a table."""
    import numpy as np

    numbers = np.random.default_rng(0)
    found = dict(probe)
    for name in cut:
        array = probe[name]
        if array.dtype.kind == "f":
            seen = array.astype("float64")
            spread, middle = float(seen.std()) or 1.0, float(seen.mean())
            array = (middle + spread * numbers.standard_normal(array.shape)).astype(array.dtype)
        found[name] = array
    return found


def _digest(probe: Feeds, cut: Collection[str]) -> str:
    found = hashlib.sha256(repr(sorted(cut)).encode())
    for name, array in sorted(probe.items()):
        found.update(repr((name, getattr(array, "dtype", ""), getattr(array, "shape", ""))).encode())
        found.update(array.tobytes() if hasattr(array, "tobytes") else repr(array).encode())
    return found.hexdigest()


def _window_across(model: Model, cut: Collection[str], seen: int) -> str:
    """The node with a window along the extent that would be cut, or one too wide for a try to notice."""
    names = {_name(value.shape[0]) for value in model.graph.inputs if value.name in cut and value.shape}
    names.discard("")
    for node in model.graph:
        # Global pools see all rows at once, so the try notices them.
        has_window = any(word in node.op_type for word in _WINDOWS) and not node.op_type.startswith("Global")
        if not has_window or not node.inputs or node.inputs[0] is None:
            continue
        shape = node.inputs[0].shape
        for axis, extent in enumerate(shape[2:] if shape is not None else (None,) * len(_kernel(node))):
            if isinstance(extent, int) or (_name(extent) and _name(extent) not in names):
                continue
            reach = _reach(node, axis)
            if reach and (_name(extent) in names or reach >= seen):
                return f"{node.op_type} '{node.name}' has a window of {reach + 1} along it"
    return ""


def _reach(node: ir.Node, axis: int) -> int:
    """How far apart the rows are that a window of a node reads together."""
    kernel = _kernel(node)
    extent = kernel[axis] if axis < len(kernel) else None
    if not isinstance(extent, int):
        return _UNKNOWN
    dilations = node.attributes.get_ints("dilations") or (1,) * len(kernel)
    return (extent - 1) * dilations[axis]


def _kernel(node: ir.Node) -> Sequence[object]:
    """The extents of a window; empty if they are not known."""
    shapes = (value.shape for value in node.inputs[1:] if value is not None)
    weights = (shape[2:] for shape in shapes if shape is not None and len(shape) > 2)
    return node.attributes.get_ints("kernel_shape") or next(weights, ())


def _name(extent: object) -> str:
    return "" if isinstance(extent, int) else str(getattr(extent, "value", "") or "")


_BATCH = re.compile("batch", re.IGNORECASE)
_FEW_SAMPLES = re.compile(r"(^|[\W_])(n|b|bs|nb)([\W_]|$)", re.IGNORECASE)
# What exporters call an extent that nobody named: `unk__12`, `s0`, `dim_0`, `x_dynamic_axes_1`, `None`.
_GENERATED = re.compile(r"(^|_)unk(_|nown|$)|dynamic|dim_?\d+$|^s\d+$|^none$|^-?\d*$|^\?$", re.IGNORECASE)


def inputs_of_samples(model: Model) -> frozenset[str]:
    """The inputs whose open first extent counts samples, each of which the model takes by itself.

    The name says so (`batch_size`, `N`), or nobody gave it one. `points[P, 3]` is one cloud of points and
    `tokens[T, N]` one text per column: parts of them are other inputs. And where no result has an open extent, nothing
    in it belongs to single samples, unless the extent is called a batch in so many words.
    """
    outputs = [value.shape for value in model.graph.outputs if value.shape is not None]
    whole = bool(outputs) and not any(_open(extent) for shape in outputs for extent in shape)
    return frozenset(name_of(value) for value in model.graph.inputs if _counts_samples(value, whole))


def samples_at_once(model: Model) -> int | None:
    """How many samples one run takes, where no extent is open for it; None if `inputs_of_samples` has one that is.

    An extent counts samples if all inputs and outputs begin with it; else a run is one sample.
    """
    if inputs_of_samples(model):
        return None
    given = (value for value in model.graph.inputs if not value.is_initializer())
    shapes = [value.shape for value in (*given, *model.graph.outputs)]
    first = {next(iter(shape or ()), None) for shape in shapes}
    (number,) = first if len(first) == 1 else (1,)
    return number if isinstance(number, int) and number > 0 else 1


def _counts_samples(value: ir.Value, whole: bool) -> bool:
    """Whether the first extent of an input does; `whole` says that the results have no open extent."""
    extents: Iterable = value.shape or ()
    first = next(iter(extents), 0)
    if not _open(first):
        return False
    name = "" if isinstance(first, int) else str(getattr(first, "value", "") or "")
    return bool(_BATCH.search(name) or not whole and (_FEW_SAMPLES.search(name) or _GENERATED.search(name)))


def _open(extent: object) -> bool:
    """Whether an extent is not known before run time; some exporters write -1 for such."""
    return not isinstance(extent, int) or extent < 0


def fitted(model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`feeds` in the float types that `model` takes; data rarely has them, because NumPy's files know no bfloat16."""
    found = dict(feeds)
    for value in model.graph.inputs:
        name = name_of(value)
        array = found.get(name)
        kind = array.dtype.kind if array is not None and getattr(array, "dtype", None) is not None else ""
        if array is not None and kind == "f" and float_name(value) is not None:
            found[name] = array.astype(dtype_of(value).numpy(), copy=False)
    return found
