"""Input data as one object: what `dovetail.input_data` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dovetail_runtime.data.batches import batches
from dovetail_runtime.data.extents import data_extents
from dovetail_runtime.data.sources import as_data, data_digest

if TYPE_CHECKING:
    from dovetail.ir import Model

    from dovetail_runtime.data.batches import Batch


class InputData:
    """Input data that can be read more than once.

    Args:
        data: See `dovetail_runtime.data.sources.read_data`.

    Attributes:
        given: The same; an iterator is replaced by something that keeps what it has yielded.
    """

    def __init__(self, data: object):
        self.given = as_data(data)

    def batches(self, model: Model, whole: bool = False) -> Iterator[Batch]:
        """The batches to run a model on; see `dovetail_runtime.data.batches.batches`.

        Args:
            model: The model.
            whole: Cut only what the model cannot take otherwise, as `dovetail run` does.

        Raises:
            DovetailError: The data does not fit the model.
        """
        return batches(model, self.given, whole=whole)

    def check(self, model: Model) -> None:
        """Look at the first batch, so that data which does not fit is an error before any work is done.

        Raises:
            DovetailError: It does not fit the model.
        """
        next(self.batches(model, whole=True), None)

    def extents(self, model: Model) -> dict[str, tuple[int, ...]]:
        """The shapes that one run of the model has on the data, of the inputs whose shape the model leaves open.

        Raises:
            DovetailError: Two samples differ in an open extent, or the data does not fit.
        """
        return data_extents(model, self.given)

    def digest(self) -> str:
        """A hash of all arrays; empty for data that can only be run through."""
        return data_digest(self.given)


def input_data(data: object) -> InputData:
    """Input data in any form: a file, a folder, arrays by name, batches, or a function that returns them."""
    return InputData(data)
