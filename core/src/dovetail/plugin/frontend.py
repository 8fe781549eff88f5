"""What front ends implement: reading models, and what they know of the operators that they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.ir.skeleton import Skeleton

__all__ = ["BodyFlow", "Dialect", "Frontend", "SourceSnapshot"]


class Frontend(Protocol):
    """Reads files of one format; called without arguments to make one.

    It may have four things more:

    - `write(model, path, *, external, progress)` writes a `Model` to a file; `external` and `progress` are those of
      `dovetail.writing.write_file`.
    - `convert(source, path)` gives the `Model` of an object in memory, or None if it does not know its type. `path` is
      the file that the object was read from, or None.
    - `open_declared(path)` opens a file that was written without the data of its tensors, which are zeros then.
    - `dialect`, a `Dialect`: models built in memory get it, and so do those of front ends without one.

    A front end with a dialect returns models that are checked, and words its errors itself.

    Attributes:
        suffixes: How the names of its files end, each from a dot on: `(".toy",)`. An empty one stands for all files
            that no other front end reads.
    """

    suffixes: tuple[str, ...]

    def read(self, path: Path) -> onnx.ModelProto | ir.Model | Model:
        """The model in a file, which is then checked by the dialect of its operators.

        Raises:
            DovetailError: The file is at fault: `{path}:{line}: what is wrong`. The line of any other exception with an
                attribute `lineno` is shown, too.
        """


class BodyFlow(NamedTuple):
    """A value that a control-flow operator passes into another one without changing its type.

    Attributes:
        what: The pair in messages: `carried value`.
        one: A value of the node or of a body; None if it is omitted.
        other: The value that it becomes.
    """

    what: str
    one: ir.Value | None
    other: ir.Value | None


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

    def with_metadata(self, metadata: Mapping[str, str], weights: bool) -> Skeleton:
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

    def body_flows(self, node: ir.Node) -> Iterable[BodyFlow]:
        """The values that a control-flow node passes to its bodies and takes from them; an empty tuple for any other.

        The verifier asks this of every node with attributes, so it must be quick.
        """
