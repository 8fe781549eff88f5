"""What front ends implement: reading models, and what they know of the operators that they read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.passes.instrumentation import Progress


class Frontend(ABC):
    """Reads files of one format; called without arguments to make one.

    A front end with a dialect returns models that are checked, and words its errors itself.

    Attributes:
        suffixes: How the names of its files end, each from a dot on: `(".toy",)`. An empty one stands for all files
            that no other front end reads.
        dialect: What it knows of the operators of its models; None if nothing. Models built in memory get the dialect
            of the first front end that has one, and so do those of front ends without one.
    """

    suffixes: tuple[str, ...]
    dialect: Dialect | None = None

    @abstractmethod
    def read(self, path: Path) -> onnx.ModelProto | ir.Model | Model:
        """The model in a file, which is then checked by the dialect of its operators.

        Raises:
            DovetailError: The file is at fault: `{path}:{line}: what is wrong`. The line of any other exception with an
                attribute `lineno` is shown, too.
        """

    def write(
        self, model: Model, path: Path, *, external: bool | None = None, progress: Progress | None = None
    ) -> None:
        """Write a model to a file; a front end that does not override this only reads.

        Args:
            model: The model.
            path: The file.
            external: Store weights outside the file (True), inside (False), or as the front end sees fit (None).
            progress: Called with ("save", weights written, weights in total).

        Raises:
            DovetailError: The file cannot be written.
        """
        raise NotImplementedError

    def convert(self, source: object, path: Path | None) -> Model | None:
        """The model of an object in memory; None if its type is not known, as by default.

        Args:
            source: The object.
            path: The file that the object was read from, or None.
        """
        return None

    def open_declared(self, path: Path) -> Model:
        """Open a file that was written without the data of its tensors, which are zeros then.

        A front end that does not override this is not asked.
        """
        raise NotImplementedError


class LazyModel(Protocol):
    """A model as its front end read it, from which the graph is built once somebody asks for it.

    Many requests need only names and numbers: a result that is recognized is never built.
    """

    def build(self) -> ir.Model:
        """The onnx-ir model."""

    def copy(self) -> LazyModel:
        """A copy that shares the weights."""

    def interface(self) -> tuple[list[str], list[str]]:
        """The names of the graph's inputs and outputs, in order."""

    def initializer_names(self) -> set[str]:
        """The names of the main graph's initializers."""

    def node_count(self) -> int:
        """The number of nodes of the main graph."""

    def nodes(self) -> Iterable[Any]:
        """All nodes, those of bodies too; each has `name`, `domain`, `op_type`, and names as `input` and `output`."""

    def functions(self) -> set[tuple[str, str]]:
        """Domain and name of every local function."""

    def content(self) -> object:
        """What differs when anything but a weight differs."""


class SourceSnapshot(Protocol):
    """A model as it was before any pass.

    Attributes:
        name: Its name in messages: its path, or `the model`.
    """

    name: str

    def fault(self) -> str:
        """Why the model is invalid where only a slow check finds it; empty if it is valid.

        Called after a pass has failed, to tell an invalid model from a defective pass.
        """

    def with_metadata(self, metadata: Mapping[str, str], weights: bool) -> Model:
        """The model for saving, with entries added to its metadata.

        Args:
            metadata: The entries.
            weights: Include all data; otherwise large tensors have only their extents and type, and
                `open_declared` of the front end reads them as zeros.
        """


class Dialect(Protocol):
    """What a front end knows of the operators of its models, and core does not."""

    def snapshot(self, model: Model, checked: bool) -> SourceSnapshot:
        """Record a model before any pass.

        Args:
            model: The model.
            checked: It was checked when it was opened.

        Raises:
            DovetailError: The model is invalid.
        """

    def text(self, model: Model) -> str:
        """The model as text that ends in a newline, the same every time, and that the front end reads back.

        It shows types and placements of nodes; large tensors are printed without their data.
        """

    def runnable(self, model: Model) -> Model:
        """The model in operators that engines run: itself, or a lowered copy that shares the weights.

        A result is compared with this form of its original.

        Raises:
            DovetailError: Some operators cannot be lowered.
        """

    def read_annotations(self, model: Model) -> None:
        """Annotate the nodes of a model from a file with what an earlier compilation wrote of them: placements, kinds
        and origins.

        Raises:
            DovetailError: An annotation is malformed.
        """

    def type_problems(self, nodes: Iterable[ir.Node], opsets: Mapping[str, int]) -> list[str]:
        """What is wrong with the numbers and types of the ports of nodes and with what their bodies exchange with them,
        one line each. A value without a type is compatible with everything.

        The verifier asks this after every pass, so it must be quick.

        Args:
            nodes: The nodes of a graph and of its bodies.
            opsets: The version of each domain that the graph imports.
        """
