"""Models from files, with the annotations of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.ir.model import Model

from dovetail_onnx.annotations import read_annotations

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.plugin.frontend import Unbuilt


class _Annotated(Model):
    """A model from a file whose annotations are read when its graph is first used."""

    _annotated = False

    @property
    def ir(self) -> ir.Model:
        """The onnx-ir model, with its annotations."""
        if not self._annotated:
            with self._building:
                if not self._annotated:
                    super().ir  # noqa: B018  (builds the graph)
                    self._annotated = True  # first, because reading them asks for the graph
                    read_annotations(self)
        return super().ir

    def rebuild(self, unbuilt: Unbuilt) -> None:
        """Replace the graph by one with annotations of its own."""
        self._annotated = False
        super().rebuild(unbuilt)

    def clone(self) -> Model:
        """Return a copy, which reads the annotations, too."""
        return annotated(super().clone()) if self.untouched else super().clone()


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
