"""Input data as one object, the result of `dovetail.input_data`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.extents import data_extents
from dovetail_runtime.data.kept import RereadBatches
from dovetail_runtime.data.sources import as_data, data_digest

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_runtime.data.batches import Batch


class RereadableData:
    """Input data that can be read more than once.

    Args:
        data: See `dovetail_runtime.data.sources.read_data`.

    Attributes:
        given: The data; an iterator is wrapped so that it can be read again.
    """

    def __init__(self, data: object):
        self.given = as_data(data)

    def batches(self, model: Model, whole: bool = False) -> Iterator[Batch]:
        """Yield the batches to run a model on; see `dovetail_runtime.data.batches.batches`.

        Args:
            model: The model.
            whole: Split only arrays that the model cannot take whole, as `dovetail run` does.

        Raises:
            DovetailError: The data does not match the model.
        """
        return batches(model, self.given, whole=whole)

    @property
    def everything(self) -> RereadableData:
        """All of the data that this is a part of; the data itself if it is no part."""
        return RereadableData(self.given.everything) if isinstance(self.given, RereadBatches) else self

    def check(self, model: Model) -> None:
        """Check the first batch, so that mismatched data fails before any work is done.

        Raises:
            DovetailError: The data does not match the model.
        """
        next(self.batches(model, whole=True), None)

    def extents(self, model: Model) -> dict[str, tuple[int, ...]]:
        """Return the shapes that one run has on the data, for inputs whose shape is not static.

        Raises:
            DovetailError: Two samples differ in an open extent, or the data does not match the model.
        """
        return data_extents(model, self.given)

    def digest(self) -> str:
        """Hash of all arrays; empty for data that can be read only once."""
        return data_digest(self.given)


def input_data(data: object) -> RereadableData:
    """Wrap input data in any form: a file, a folder, arrays by name, batches, or a function that returns them."""
    return RereadableData(data)
