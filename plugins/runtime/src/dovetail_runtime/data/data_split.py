"""Data in two parts: what is calibrated with or searched on, and what is held out to judge the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dovetail.text import pluralize

from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.independent_rows import inputs_of_samples, why_rows_stay_together

if TYPE_CHECKING:
    import numpy as np
    from dovetail.ir import Model

    from dovetail_runtime.data.batches import Batch
    from dovetail_runtime.data.independent_rows import Run

    Arrays = Mapping[str, np.ndarray]
    Marked = Iterator[tuple[bool, dict[str, np.ndarray]]]

_PROBED = 64  # rows that test whether rows may be split


@dataclass(frozen=True)
class DataSplit:
    """Data in two parts: some of its batches, or some rows of a single batch, are held out.

    Attributes:
        read: Reads the data: yields, for each batch of a part, whether it is held out, and its arrays as input data.
        total: Number of batches, or of rows of a single one.
        held_out: How many of these are held out; 0 if the data cannot be split.
        unit: `batch` or `row`.
        why: Why rows of a single batch stay together; empty if they are split, or too few.
    """

    read: Callable[[], Marked]
    total: int
    held_out: int
    unit: str = "batch"
    why: str = ""

    def part(self, is_held_out: bool) -> Callable[[], Iterator[dict[str, np.ndarray]]]:
        """Return one of the parts as input data."""
        return lambda: (arrays for is_other, arrays in self.read() if is_other == is_held_out)

    @property
    def text(self) -> str:
        """What accuracy is measured on, as the beginning of a sentence."""
        return f"accuracy is that of {self.held_out} of {pluralize(self.total, self.unit)}"


def split_data(
    model: Model, data: object, run: Run, every: int, fewest_rows: int, made: Model | None = None
) -> DataSplit:
    """Hold out the last of every few batches, of fewer the last one, or such rows of a single batch.

    The same data is always split in the same way. Rows are split if they are found to be independent.

    Args:
        model: The model.
        data: See `dovetail_runtime.data.sources.read_data`; it is read anew for each part.
        run: Runs the model, to find out whether rows are independent.
        every: Of how many batches or rows one is held out.
        fewest_rows: The fewest rows that are split.
        made: A result; its shapes may be static where the model's are open.

    Raises:
        DovetailError: The data does not match the model.
    """
    read = partial(batches, model, data, made, run)
    total = sum(1 for _ in read())
    held_out = frozenset(range(every - 1, total, every)) or frozenset({total - 1} if total > 1 else ())
    why = ""
    batch = next(read()) if total == 1 else ({}, {})
    open_ = {v.name for v in (made or model).graph.inputs if v.shape and not isinstance(v.shape[0], int)}
    names = inputs_of_samples(model) & open_ & batch[0].keys()
    lengths = {len(batch[0][name]) for name in names}
    if len(lengths) == 1 and (rows := min(lengths)) >= fewest_rows:
        why = why_rows_stay_together(model, batch[0], names, min(rows, _PROBED), run)
        if not why:
            return DataSplit(partial(_split_rows, batch, names, rows, every), rows, rows // every, "row")

    def marked() -> Marked:
        return ((index in held_out, _merged(*batch)) for index, batch in enumerate(read()))

    return DataSplit(marked, total, len(held_out), why=why)


def _split_rows(batch: Batch, names: frozenset[str], rows: int, every: int) -> Marked:
    feeds, labels = batch
    truth = {name for name, array in labels.items() if len(array) == rows}
    for is_held_out in (False, True):
        chosen = [row for row in range(rows) if (row % every == every - 1) == is_held_out]
        parts = (
            {name: array[chosen] if name in divided else array for name, array in arrays.items()}
            for arrays, divided in ((feeds, names), (labels, truth))
        )
        yield is_held_out, _merged(*parts)


def _merged(feeds: Arrays, labels: Arrays) -> dict[str, np.ndarray]:
    """Return inputs and labels of a batch in the form of input data."""
    return {**feeds, **{f"labels:{name}" if name else "labels": array for name, array in labels.items()}}
