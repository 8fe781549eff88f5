"""What plugins implement, where the contract has no other home: strategies, and what they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.claim import Claims
    from dovetail.schema import Backend, Verdict

__all__ = ["Strategy", "View"]


class View(Protocol):
    """What a strategy sees: the nodes that nobody has claimed yet, and what one backend says of them.

    Attributes:
        model: The model; a strategy never edits it.
        backend: The backend that nodes are claimed for.
    """

    model: Model
    backend: Backend

    def nodes(self) -> Iterator[ir.Node]:
        """Unclaimed nodes of the main graph in graph order; the nodes of a body belong to the node that holds it."""

    def whole(self, node: ir.Node) -> list[ir.Node]:
        """`node` and all nodes of its bodies, which one engine runs together."""

    def verdict(self, node: ir.Node) -> Verdict:
        """Whether the backend takes `node`, with which types, and if not, why."""

    def kind(self, node: ir.Node) -> str:
        """What `node` computes: `data`, `index` or `shape`."""

    def remark(
        self, kind: str, node: ir.Node | str, rule: str, why: str, *, because: object = (), suggest: str = "",
        source: str = "",
    ) -> None:  # fmt: skip
        """Say why something was decided; see `dovetail.planning.remark.Remark`."""


class Strategy(Protocol):
    """A rule that claims nodes for a backend. It marks nodes and never edits the graph."""

    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`; what is not claimed goes to the next backend, and last to the host."""
