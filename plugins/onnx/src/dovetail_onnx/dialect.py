"""The ONNX dialect: source check, text form, types and annotations, which core does not know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.plugin import SourceSnapshot


class OnnxDialect:
    """The dialect of ONNX models; see `dovetail.plugin.Dialect`."""

    def snapshot(self, model: Model, checked: bool) -> SourceSnapshot:
        """Record a model before any pass; check it unless it was checked when opened."""
        from dovetail_onnx.source.snapshot import SourceModel

        return cast("SourceSnapshot", SourceModel.of(model, checked))  # frozen, and its name is never assigned

    def text(self, model: Model) -> str:
        """Print a model as ONNX text; see `dovetail_onnx.printer`."""
        from dovetail_onnx.printer import print_model

        return print_model(model)

    def runnable(self, model: Model) -> Model:
        """Return the model itself."""
        return model

    def read_annotations(self, model: Model) -> None:
        """Read the placements, kinds and origins of nodes from their `metadata_props`."""
        from dovetail_onnx.annotations import read_annotations

        read_annotations(model)

    def lost_nodes(self, source: Model, model: Model) -> list[tuple[str, str, str]]:
        """Return name, operator and fate of source nodes that a result no longer has."""
        from dovetail_onnx.lost_nodes import lost_nodes

        return lost_nodes(source, model)

    def type_problems(self, nodes: Iterable[ir.Node], opsets: Mapping[str, int]) -> list[str]:
        """Check the ports of nodes against the schemas of their operators; see `dovetail_onnx.type_check`."""
        from dovetail_onnx.type_check import type_problems

        return type_problems(nodes, opsets)
