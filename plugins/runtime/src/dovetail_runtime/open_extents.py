"""Regions whose inputs come with other extents than the model declares, made again with these extents open.

A model may declare a wrong shape, such as a fixed number of rows for an output whose rows follow from the input. An
engine that runs the whole model only warns, but one that loads what reads such a value takes the shape as a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dovetail.plugin import RegionModel, TemporaryFolder

from dovetail_runtime.feeds import declared
from dovetail_runtime.serialize import needs_file, write_scratch

if TYPE_CHECKING:
    import onnx_ir as ir


class OpenedRegion(NamedTuple):
    """A region with open extents.

    Attributes:
        model: The region.
        why: What was declared, and what came: `'y' has the shape [5, 4], and the model declares [3,4]`.
        files: The folder of its file, if it needs one.
    """

    model: RegionModel
    why: str
    files: TemporaryFolder | None


def with_open_extents(region: RegionModel, inputs: Mapping[str, object]) -> OpenedRegion | None:
    """Return a region for inputs whose extents contradict its declarations; None if they do not.

    Extents that differ are open in the result, and so are the shapes of all that is computed from them. What was
    compiled for fixed shapes (`RegionModel.artifact`) stays as it is: None.

    Args:
        region: The region.
        inputs: Its inputs by name.
    """
    wrong = {name: shape for name, shape in _shapes(inputs).items() if not _fits(region.model.graph, name, shape)}
    if not wrong or region.artifact is not None:
        return None
    model = region.model.clone()
    texts = []
    for value in model.graph.inputs:
        if (shape := wrong.get(value.name or "")) is not None:
            texts.append(f"'{value.name}' has the shape {list(shape)}, and the model declares {value.shape}")
            value.shape = _opened(value.shape, shape)
    for node in model.nodes():
        for output in node.outputs:
            output.shape = None
    model.touch()
    opened, files = replace(region, model=model, path=None), None
    if needs_file(model):
        files = TemporaryFolder("opened")
        path = files.path / "region.onnx"
        write_scratch(model, path)
        opened = replace(opened, path=path)
    return OpenedRegion(opened, "; ".join(texts), files)


def _shapes(inputs: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of arrays; sequences have none."""
    shapes = ((name, getattr(value, "shape", None)) for name, value in inputs.items())
    return {name: tuple(shape) for name, shape in shapes if shape is not None}


def _fits(graph: ir.Graph, name: str, shape: tuple[int, ...]) -> bool:
    return all(declared(value).has_shape(shape) for value in graph.inputs if value.name == name)


def _opened(before: ir.Shape | None, shape: tuple[int, ...]) -> ir.Shape:
    """Return a shape with the extents that hold, and open ones in place of those that do not."""
    import onnx_ir as ir

    if before is None or len(before) != len(shape):
        return ir.Shape([None] * len(shape))
    return ir.Shape(
        [known if not isinstance(known, int) or known == got else None for known, got in zip(before, shape)]
    )
