"""The part of the data that a search for a goal does not see, so that its figure says something of other data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dovetail.text import pluralize
from dovetail_runtime.data.batch_extents import inputs_of_samples
from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import why_rows_stay_together

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail_runtime.data.batches import Batch
    from dovetail_runtime.data.independent_rows import Run


_EVERY = 3  # of so many batches, the last is held back
_LEAST = 6  # rows of a single batch that are divided
_PROBED = 64  # rows that show whether rows may be divided

Batches = Callable[[], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Parts:
    """Data in two parts.

    Attributes:
        search: What the search sees.
        held: What is held back; None where the data cannot be divided.
        text: What was held back, or why nothing was.
    """

    search: object
    held: Batches | None
    text: str


def parts_of(original: Model, data: object, made: Model, run: Run) -> Parts:
    """Hold back every third batch, the last of two, or every third row of one; the same data is always divided alike.

    Args:
        original: The model.
        data: See `dovetail_runtime.data.sources.read_data`.
        made: A result; its shapes may be fixed where those of the original are open.
        run: Runs the original.

    Raises:
        DovetailError: The data does not fit.
    """

    def read() -> Iterator[Batch]:
        return batches(original, data, made, run)

    number = sum(1 for _ in read())
    if number > 1:
        held = set(range(_EVERY - 1, number, _EVERY)) or {number - 1}

        def part(is_held: bool) -> Batches:
            return lambda: (_arrays(*one) for index, one in enumerate(read()) if (index in held) == is_held)

        text = f"accuracy is that of {len(held)} of {number} batches, which the search for the goal did not see"
        return Parts(part(False), part(True), text)
    return _divided_rows(original, data, made, run, read)


def _divided_rows(original: Model, data: object, made: Model, run: Run, read: Callable[[], Iterator[Batch]]) -> Parts:
    open_ = {v.name for v in made.graph.inputs if v.shape and not isinstance(v.shape[0], int)}
    names = inputs_of_samples(original) & open_
    feeds, labels = next(read(), ({}, {}))
    lengths = {len(feeds[name]) for name in names if name in feeds}
    whole = "accuracy is that of the data which the search for the goal saw, since nothing could be held back: "
    if len(lengths) != 1 or min(lengths) < _LEAST:
        return Parts(data, None, f"{whole}it is one batch; give more files or samples")
    (rows,) = lengths
    if why := why_rows_stay_together(original, feeds, names, min(rows, _PROBED), run):
        return Parts(data, None, f"{whole}{why}; give more files")

    def part(is_held: bool) -> Batches:
        chosen = [row for row in range(rows) if (row % _EVERY == _EVERY - 1) == is_held]
        divided = {name: array[chosen] if name in names else array for name, array in feeds.items()}
        truth = {name: array[chosen] if len(array) == rows else array for name, array in labels.items()}
        return lambda: iter([_arrays(divided, truth)])

    held = rows // _EVERY
    text = f"accuracy is that of {held} of {pluralize(rows, 'row')}, which the search for the goal did not see"
    return Parts(part(False), part(True), text)


def _arrays(feeds: dict[str, Any], labels: dict[str, Any]) -> dict[str, Any]:
    """A batch as data has it."""
    return {**feeds, **{f"labels:{name}" if name else "labels": array for name, array in labels.items()}}
