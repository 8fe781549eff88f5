"""What strategies implement and see: who gets which node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from dovetail.planning.remark import Remedy

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.claim import Claim, Claims, Verdict
    from dovetail.plugin.backend import Backend


T = TypeVar("T")


class Neighbor(NamedTuple):
    """A node beside another one.

    Attributes:
        port: The port of the node that was asked about.
        node: The node at the other end of the value.
        its_port: The port of that node.
    """

    port: str
    node: ir.Node
    its_port: str


class View(Protocol):
    """What a strategy sees: the nodes that it may claim, what one backend says of them, and who has the others.

    Attributes:
        model: The model; a strategy never edits it.
        backend: The backend that nodes are claimed for.
    """

    model: Model
    backend: Backend

    def nodes(self) -> Iterator[ir.Node]:
        """Nodes of the main graph that may be claimed, in graph order; see `whole` for those in bodies."""

    def whole(self, node: ir.Node) -> list[ir.Node]:
        """`node` and all nodes of its bodies, which one engine runs together."""

    def verdict(self, node: ir.Node) -> Verdict:
        """Whether the backend takes `node`, with which types, and if not, why."""

    def kind(self, node: ir.Node) -> str:
        """What `node` computes: `data`, `index` or `shape`."""

    def claimed(self, node: ir.Node) -> tuple[str, Claim] | None:
        """The backend that has `node`, with its claim (`claim.pinned` if a user asked for it); None if nobody has."""

    def producers(self, node: ir.Node) -> Iterator[Neighbor]:
        """The nodes that compute the inputs of `node`, in the order of its inputs; constants have none."""

    def readers(self, node: ir.Node) -> Iterator[Neighbor]:
        """The nodes that read the outputs of `node`, once per use."""

    def analysis(self, kind: type[T]) -> T:
        """What an analysis finds in this model: `kind.compute(model, ctx)`, made once and shared by all strategies."""

    def remark(
        self, kind: str, node: ir.Node | str, rule: str, why: str, *, because: object = (),
        suggest: str | Remedy = "", source: str = "", backend: str = "", facts: Mapping[str, Any] = ...,
    ) -> None:  # fmt: skip
        """Say why something was decided; see `dovetail.passes.Context.remark`.

        With `backend=view.backend.name`, a remark of kind `missed` says that the backend does not get the node.
        """


class Strategy(ABC):
    """A rule that claims nodes for a backend. It marks nodes and never edits the graph.

    It claims each node once, only nodes that the view offers, and a control-flow node with all of its bodies. Its
    options are the fields of its dataclass, which `place:` of a backend file sets.

    Attributes:
        place_keys: The keys of `backend.place` that a strategy which is no dataclass reads; other keys are an error.
    """

    place_keys: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`; what is not claimed goes to the next backend, and last to the host.

        `Claims.edits` asks for changes of the graph; when these are made, everything is claimed again on the new graph.

        A verdict whose `ok` is None depends on whether the node will be the last of its region: the node may be
        claimed, and is judged again once all backends have claimed.
        """

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """Reconsider the claims once those of all backends are known.

        It is asked until it leaves everything as it is. It may neither add claims nor withdraw pinned ones, of which it
        may narrow what their pins leave open. What it withdraws is offered to the backends behind it; in the next round
        of deciding, if there is one, it is claimed and withdrawn anew.

        Args:
            view: Shows the claims of all backends.
            claims: The present claims for the view's backend.

        Returns:
            The claims that stay, the same objects or narrowed to fewer formats; by default all of them.
        """
        return claims

    def remedies(self, view: View, node: ir.Node) -> Iterable[Remedy]:
        """Suggest what might bring a node to the backend; by default nothing.

        Args:
            view: Shows the final claims of a round.
            node: A node that the view's backend does not have.

        Returns:
            Changes of the request, the cheapest first; `dovetail explain` tries each on the plan.
        """
        return ()
