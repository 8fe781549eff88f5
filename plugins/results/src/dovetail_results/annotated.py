"""Models from files, with the annotations of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.model import Model
from dovetail_onnx.annotations import read_annotations

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["annotated"]


class _Annotated(Model):
    """A model from a file whose annotations are read when its graph is first used."""

    @property
    def ir(self) -> ir.Model:
        """The onnx-ir model, with its annotations."""
        if self.untouched:
            super().ir  # noqa: B018  (builds the graph)
            read_annotations(self)
        return super().ir


def annotated(model: Model) -> Model:
    """Return `model` with its annotations; lazily, if its graph has not been built yet.

    Raises:
        DovetailError: An annotation is malformed; raised here or when the graph is built.
    """
    if model.untouched:
        lazy = _Annotated(path=model.path, unbuilt=model.unbuilt, checked=True, dialect=model.dialect)
        lazy.revision = model.revision
        return lazy
    read_annotations(model)
    return model
