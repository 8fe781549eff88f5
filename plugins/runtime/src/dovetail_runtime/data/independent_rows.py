"""Independence of rows: inputs with samples along an open first axis, and whether these may be split."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeGuard

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
_CUT_AT = 27 / 64  # not a multiple of a common stride, and gives pieces of different lengths
_SHORT = 1e-4  # relative to the largest element: the error of summing in another order in float32
_SHORT_IN_16_BITS = 1e-2
_WINDOWS = ("Conv", "Pool")
_UNKNOWN = 10**9


def why_rows_stay_together(model: Model, feeds: Feeds, cut: Collection[str], rows: int, run: Run | None = None) -> str:
    """Explain why inputs must not be split along their first axis; empty if splitting was found to change nothing.

    The first `rows` rows run whole and in two pieces, then as many random ones, because data that begins with silence
    would hide a dependence between rows. Every output must be equal in all runs, or the concatenation of the outputs of
    the pieces.

    Args:
        model: The model.
        feeds: The whole data of one batch.
        cut: Inputs of equal length to split.
        rows: Number of rows per run.
        run: Runs the model; by default an engine of the host does.
    """
    if crossing := _window_across(model, cut, rows):
        return crossing
    probe = {name: array[:rows] if name in cut else array for name, array in feeds.items()}
    # Several steps of a compilation ask the same question about one graph. The cached answer is not part of the model.
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
    from dovetail.passes import BackendChoice
    from dovetail.plugin.loading import load_chosen

    from dovetail_runtime.engines import engines_of
    from dovetail_runtime.executor import RegionExecutor
    from dovetail_runtime.unpartitioned import slices

    model = model.runnable()
    registry = load_plugins().registry
    engines = engines_of([load_chosen(registry, BackendChoice(HOST))], registry)
    executor = RegionExecutor(model, engines, {"optimize": "none"}, regions=slices(model.graph))
    return lambda feeds: executor.run(fitted(model, feeds))


def _difference(run: Run, probe: Feeds, cut: Collection[str]) -> str:
    """Return how the outputs of a whole run and of its two pieces differ; empty if they agree."""
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
    """Check whether an output is the concatenation of both pieces' outputs along an axis, or equal in all runs."""
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
    """Return random rows with the same spread; integers are kept, because they may be indices into a table."""
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


def _window_across(model: Model, cut: Collection[str], rows: int) -> str:
    """Describe a window along the extent to split, or one too sparse for a trial of `rows` to notice; else empty.

    Where the shape of what a window reads is unknown, a trial finds out whether it reads several rows at once: of a
    window over all of them, two elements are within the rows of the trial unless they are farther apart.
    """
    names = {extent_name(value.shape[0]) for value in model.graph.inputs if value.name in cut and value.shape}
    names.discard("")
    for node in model.graph:
        # Global pools see all rows at once, so a trial detects them.
        has_window = any(word in node.op_type for word in _WINDOWS) and not node.op_type.startswith("Global")
        if not has_window or not node.inputs or node.inputs[0] is None:
            continue
        shape = node.inputs[0].shape
        for axis, extent in enumerate(shape[2:] if shape is not None else (None,) * len(_kernel(node))):
            if isinstance(extent, int) or (extent_name(extent) and extent_name(extent) not in names):
                continue
            reach, spacing = _reach(node, axis)
            if reach and (extent_name(extent) in names or spacing >= rows):
                return f"{node.op_type} '{node.name}' has a window of {reach + 1} along it"
    return ""


def _reach(node: ir.Node, axis: int) -> tuple[int, int]:
    """Return the largest and the smallest distance between rows that a window of a node reads together."""
    kernel = _kernel(node)
    extent = kernel[axis] if axis < len(kernel) else None
    if not isinstance(extent, int):
        return _UNKNOWN, _UNKNOWN
    spacing = (node.attributes.get_ints("dilations") or (1,) * len(kernel))[axis]
    return (extent - 1) * spacing, spacing


def _kernel(node: ir.Node) -> Sequence[object]:
    """Return the extents of a window; empty if unknown."""
    shapes = (value.shape for value in node.inputs[1:] if value is not None)
    weights = (shape[2:] for shape in shapes if shape is not None and len(shape) > 2)
    return node.attributes.get_ints("kernel_shape") or next(weights, ())


def is_static(extent: object) -> TypeGuard[int]:
    """Check whether an extent is static; some exporters write -1 for an open extent."""
    return isinstance(extent, int) and extent >= 0


def extent_name(extent: object) -> str:
    """Return the name of an open extent; empty if it is static or has none."""
    return "" if isinstance(extent, int) else str(getattr(extent, "value", "") or "")


_BATCH = re.compile("batch", re.IGNORECASE)
_FEW_SAMPLES = re.compile(r"(^|[\W_])(n|b|bs|nb)([\W_]|$)", re.IGNORECASE)
# Names that exporters generate for unnamed extents: `unk__12`, `s0`, `dim_0`, `x_dynamic_axes_1`, `None`.
_GENERATED = re.compile(r"(^|_)unk(_|nown|$)|dynamic|dim_?\d+$|^s\d+$|^none$|^-?\d*$|^\?$", re.IGNORECASE)


def inputs_of_samples(model: Model) -> frozenset[str]:
    """Return the inputs whose open first extent counts independent samples.

    The extent must have a typical name (`batch_size`, `N`) or a generated one. `points[P, 3]` is a single point cloud
    and `tokens[T, N]` has one text per column, so a part of either is a different input. If no result has an open
    extent, results do not belong to single samples, unless the extent's name contains `batch`.
    """
    outputs = [value.shape for value in model.graph.outputs if value.shape is not None]
    whole = bool(outputs) and not any(_open(extent) for shape in outputs for extent in shape)
    return frozenset(name_of(value) for value in model.graph.inputs if _counts_samples(value, whole))


def counted_together(extents: Mapping[str, tuple[object, int]]) -> list[str]:
    """Return the inputs that one extent of samples belongs to, where several open extents may count them.

    Inputs whose first extents have one name belong together, and those without a name to either. Of several names, that
    of a batch counts (`batch` before `N`), then the one with the most rows: a set of 5 prompts beside 8 images is no
    batch of 8.

    Args:
        extents: The declared first extent of each input, and how many rows the data has.
    """
    named: dict[str, list[str]] = {}
    for name, (extent, _) in extents.items():
        named.setdefault(_given_name(extent), []).append(name)
    nameless = named.pop("", [])
    if not named:
        return nameless
    best = max(named, key=lambda one: (bool(_BATCH.search(one)), max(extents[name][1] for name in named[one])))
    rows = {extents[name][1] for name in named[best]}
    return [name for name in extents if name in named[best] or name in nameless and extents[name][1] in rows]


def _given_name(extent: object) -> str:
    """Return the name that somebody gave an extent; empty for generated names, which say nothing."""
    name = extent_name(extent)
    return "" if _GENERATED.search(name) else name


def samples_at_once(model: Model) -> int | None:
    """Return how many samples one run takes if no extent is open for them; None if `inputs_of_samples` has an input.

    An extent counts samples if all inputs and outputs begin with it; otherwise a run is one sample.
    """
    if inputs_of_samples(model):
        return None
    given = (value for value in model.graph.inputs if not value.is_initializer())
    shapes = [value.shape for value in (*given, *model.graph.outputs)]
    first = {next(iter(shape or ()), None) for shape in shapes}
    (number,) = first if len(first) == 1 else (1,)
    return number if isinstance(number, int) and number > 0 else 1


def _counts_samples(value: ir.Value, whole: bool) -> bool:
    """Check whether the first extent of an input counts samples; `whole` means that no result has an open extent."""
    extents: Iterable = value.shape or ()
    first = next(iter(extents), 0)
    if not _open(first):
        return False
    name = "" if isinstance(first, int) else str(getattr(first, "value", "") or "")
    return bool(_BATCH.search(name) or not whole and (_FEW_SAMPLES.search(name) or _GENERATED.search(name)))


def _open(extent: object) -> bool:
    """Check whether an extent is unknown before run time; some exporters write -1 for it."""
    return not isinstance(extent, int) or extent < 0


def fitted(model: Model, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Cast `feeds` to the float types of the model's inputs; NumPy files, for example, cannot hold bfloat16."""
    found = dict(feeds)
    for value in model.graph.inputs:
        name = name_of(value)
        array = found.get(name)
        kind = array.dtype.kind if array is not None and getattr(array, "dtype", None) is not None else ""
        if array is not None and kind == "f" and float_name(value) is not None:
            found[name] = array.astype(dtype_of(value).numpy(), copy=False)
    return found
