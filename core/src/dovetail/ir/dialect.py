"""The semantics of a model's file format, which core does not know: how its front end reads, prints and checks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model


class LazyModel(Protocol):
    """A model as read by its front end; the graph is built from it on demand.

    Many requests need only names and counts: a recognized result is never built.
    """

    def build(self) -> ir.Model:
        """Build the onnx-ir model."""

    def copy(self) -> LazyModel:
        """Return a copy that shares the weights."""

    def interface(self) -> tuple[list[str], list[str]]:
        """Return the names of the graph's inputs and outputs, in order."""

    def initializer_names(self) -> set[str]:
        """Return the names of the main graph's initializers."""

    def node_count(self) -> int:
        """Return the number of nodes of the main graph."""

    def nodes(self) -> Iterable[Any]:
        """Return all nodes, with bodies; each has `name`, `domain`, `op_type`, and names as `input` and `output`."""

    def functions(self) -> set[tuple[str, str]]:
        """Return domain and name of every model-local function."""

    def content(self) -> object:
        """Return a fingerprint of the model that ignores weights."""


class SourceSnapshot(Protocol):
    """A model as it was before any pass.

    Attributes:
        name: Its name in messages: its path, or `the model`.
    """

    name: str

    def fault(self) -> str:
        """Return why the model is invalid, if only a slow check detects it; empty if it is valid.

        Called after a pass failed, to distinguish an invalid model from a defective pass.
        """

    def with_metadata(self, metadata: Mapping[str, str], weights: bool) -> Model:
        """Return the model for saving, with entries added to its metadata.

        Args:
            metadata: The entries.
            weights: Include all data; otherwise large tensors have only shape and type, and the front end's
                `open_declared` reads them as zeros.
        """


class Dialect(Protocol):
    """The semantics of a front end's operators, which core does not know."""

    def snapshot(self, model: Model, checked: bool) -> SourceSnapshot:
        """Record a model before any pass.

        Args:
            model: The model.
            checked: Whether it was already checked when it was opened.

        Raises:
            DovetailError: The model is invalid.
        """

    def text(self, model: Model) -> str:
        """Return the model as text that ends in a newline. It is deterministic, and the front end can parse it.

        It shows types and placements of nodes; large tensors are printed without their data.
        """

    def runnable(self, model: Model) -> Model:
        """Return the model in operators that engines run: the model itself, or a lowered copy that shares the weights.

        A result is compared with this form of its original.

        Raises:
            DovetailError: Some operators cannot be lowered.
        """

    def read_annotations(self, model: Model) -> None:
        """Restore the annotations that an earlier compilation wrote into a model file: placements, kinds and origins.

        Raises:
            DovetailError: An annotation is malformed.
        """

    def lost_nodes(self, source: Model, model: Model) -> Iterable[tuple[str, str, str]]:
        """Return name, operator and fate of the nodes of `source` that `model`, compiled from it, no longer has."""

    def type_problems(self, nodes: Iterable[ir.Node], opsets: Mapping[str, int]) -> list[str]:
        """Return errors in the number and types of ports, and in the values exchanged with bodies, one line each.

        A value without a type is compatible with everything.

        The verifier calls this after every pass, so it must be fast.

        Args:
            nodes: The nodes of a graph and of its bodies.
            opsets: The opset imports of the graph.
        """
