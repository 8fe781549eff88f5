"""Which inputs hold samples along an open first axis, so that data may be cut there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dovetail.ir.required import name_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir.model import Model


_BATCH = re.compile("batch", re.IGNORECASE)
_SHORT = re.compile(r"(^|[\W_])(n|b|bs|nb)([\W_]|$)", re.IGNORECASE)
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
    return bool(_BATCH.search(name) or not whole and (_SHORT.search(name) or _GENERATED.search(name)))


def _open(extent: object) -> bool:
    """Whether an extent is not known before run time; some exporters write -1 for such."""
    return not isinstance(extent, int) or extent < 0
