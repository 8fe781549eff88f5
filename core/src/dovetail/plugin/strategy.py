"""Contracts for decisions: strategies with their view of the model, editors that they call, and solvers."""

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
    from dovetail.plugin.context import Context


T = TypeVar("T")


class Neighbor(NamedTuple):
    """A node connected to another one.

    Attributes:
        port: The port of the queried node.
        node: The node at the other end of the edge.
        its_port: The port of that node.
    """

    port: str
    node: ir.Node
    its_port: str


class View(Protocol):
    """A strategy's view of the model: the nodes that it may claim, their verdicts, and the claims of other backends.

    Attributes:
        model: The model, which must not be edited.
        backend: The backend that the strategy claims nodes for.
    """

    model: Model
    backend: Backend

    def nodes(self) -> Iterator[ir.Node]:
        """Iterate over the claimable nodes of the main graph, in graph order; see `whole` for nodes in bodies."""

    def whole(self, node: ir.Node) -> list[ir.Node]:
        """Return `node` and all nodes of its bodies, which one engine runs together."""

    def verdict(self, node: ir.Node) -> Verdict:
        """Return whether the backend supports `node`, with which types, and if not, why."""

    def only_here(self, node: ir.Node) -> bool:
        """Check that neither a following backend nor the host supports `node` with its bodies."""

    def kind(self, node: ir.Node) -> str:
        """Return the kind of the results of `node`: `data`, `index` or `shape`."""

    def claimed(self, node: ir.Node) -> tuple[str, Claim] | None:
        """Return the backend that has `node` and its claim (`claim.pinned` if the user asked for it); None if none."""

    def producers(self, node: ir.Node) -> Iterator[Neighbor]:
        """Iterate over the nodes that compute the inputs of `node`, in input order; constants have none."""

    def readers(self, node: ir.Node) -> Iterator[Neighbor]:
        """Iterate over the users of the outputs of `node`, once per use."""

    def analysis(self, kind: type[T]) -> T:
        """Return an analysis of this model: `kind.compute(model, ctx)`, computed once and shared by all strategies."""

    def remark(
        self, kind: str, node: ir.Node | str, rule: str, why: str, *, because: object = (),
        suggest: str | Remedy = "", source: str = "", backend: str = "", facts: Mapping[str, Any] = ...,
    ) -> None:  # fmt: skip
        """Record the reason for a decision; see `dovetail.passes.Context.remark`.

        A remark of kind `missed` on a node that the backend does not get says why, whether or not it names the backend.
        """


class Strategy(ABC):
    """A rule that claims nodes for a backend. It returns claims and never edits the graph.

    It claims each node once, only nodes that the view offers, and a control-flow node together with all of its bodies.
    Its options are the fields of its dataclass, set by `place:` in a backend file.

    Attributes:
        place_keys: Keys of `backend.place` read by a strategy that is not a dataclass; other keys are an error.
    """

    place_keys: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def claim(self, view: View, backend: Backend) -> Claims:
        """Claim nodes of `view` for `backend`; unclaimed nodes go to the next backend, and finally to the host.

        `Claims.edits` requests changes of the graph; once they are made, everything is claimed again on the new graph.

        If `ok` of a verdict is None, it depends on whether the node will be the last of its region: the node may be
        claimed, and is judged again once all backends have claimed.
        """

    def fix_up(self, view: View, claims: Claims) -> Claims:
        """Reconsider the claims once the claims of all backends are known.

        Called until nothing changes. It may neither add claims nor withdraw pinned ones; it may narrow the formats that
        pins leave open. Withdrawn nodes are offered to the following backends; if there is another round of decisions,
        they are claimed and withdrawn again.

        Args:
            view: Shows the claims of all backends.
            claims: The current claims for the view's backend.

        Returns:
            The remaining claims, unchanged or narrowed to fewer formats; by default all of them.
        """
        return claims

    def remedies(self, view: View, node: ir.Node) -> Iterable[Remedy]:
        """Suggest remedies that might bring a node to the backend; by default none.

        Args:
            view: Shows the final claims of a round.
            node: A node that the view's backend did not get.

        Returns:
            Changes of the request, cheapest first; `dovetail explain` tries each on the plan.
        """
        return ()


class Editor(ABC):
    """Applies edits of one kind: changes of the graph next to a node; its class is instantiated without arguments.

    Registered under the name of the kind, which requests use: `--edit unit-conv=concat_12:after`, or the claims of a
    strategy. Its effect must depend on the graph and the arguments alone, because a replayed plan applies the same
    edits again.

    Attributes:
        sides: The sides of a node it supports: `before`, `after`, or both.
    """

    sides: tuple[str, ...]

    @abstractmethod
    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> Iterable[ir.Node]:
        """Change the graph next to `node`, and return the added nodes, with types on their outputs.

        Use `ctx.analysis(FreshNames, model)` for value names; unnamed nodes get a name. Inputs and outputs of the model
        must not change.

        Raises:
            DovetailError: The edit is not possible at this node.
        """


class Solver(Protocol):
    """Chooses formats; a function registered with `registry.solver`."""

    def __call__(self, problem: Any) -> None:
        """Set `chosen` of every variable to one of its `choices`, and optionally its `because` and `why`.

        Args:
            problem: A `dovetail_precision.problem.TypingProblem`: plain data, independent of the model.
        """
