"""What a pass gets beside the model: the request, the registry, remarks, counters and analyses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dovetail.passes.request import BackendChoice, Request
from dovetail.planning.placement import HOST
from dovetail.planning.remark import Kind, Remark
from dovetail.plugin.registry import Registry

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.passes.instrumentation import Progress
    from dovetail.planning.join import Join
    from dovetail.planning.refusals import Refusals
    from dovetail.plugin.loader import PluginSet
    from dovetail.plugin.protocols import Backend

__all__ = ["Analysis", "Context"]

T = TypeVar("T")


class Analysis(Protocol):
    """A fact about a whole model, computed when first asked for and dropped when the model changes."""

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Any:
        """Compute the fact without changing the model."""


class Context:
    """One run of a pipeline.

    Attributes:
        request: What the user asked for.
        plugins: The plugins whose hooks watch the run, or None.
        registry: Everything that plugins brought.
        model: The model of the run; the manager sets it.
        pipelines: The text of every pipeline that ran to its end in this context.
        joins: The conversions that the plan implies, once types are known.
        remarks: All remarks so far.
        files: Texts that passes want to be saved beside the result, by file name.
        counts: What the current pass counted so far.
        current_pass: Name of the current pass, empty between passes.
        progress: Called by passes that take long with (what, done, total); None where nobody listens.
        refusals: Nodes that the engine of a backend refused in an earlier round, by backend and name of the node.
        asked: Nodes of the main graph that an accuracy goal wants `high` or `low`, as the lists of the request would,
            by name, each with the side and the goal (`--min-snr 30`).
        kept: What passes found that holds however it is decided, by their names: what they measured on the data, say.
    """

    def __init__(
        self,
        request: Request | None = None,
        *,
        plugins: PluginSet | None = None,
        registry: Registry | None = None,
        model: Model | None = None,
    ):
        self.request = request or Request()
        self.plugins = plugins
        self.registry = registry or (plugins.registry if plugins else Registry())
        self.model = model
        self.progress: Progress | None = None
        self.asked: Mapping[str, tuple[str, str]] = {}
        self.kept: dict[str, Any] = {}
        self.restart({})

    def restart(self, refusals: Refusals, asked: Mapping[str, tuple[str, str]] | None = None) -> None:
        """Forget what was decided, and decide again; backends stay loaded.

        Args:
            refusals: What engines refused.
            asked: What an accuracy goal wants; as before where it is None.
        """
        self.refusals = refusals
        self.asked = self.asked if asked is None else asked
        self.pipelines: list[str] = []
        self.joins: list[Join] = []
        self.remarks: list[Remark] = []
        self.files: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.current_pass = ""
        # The model itself is kept beside each result: an id alone could be reused by a later model.
        self._analyses: dict[type, tuple[Model, int, Any]] = {}

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        """The chosen backends in order of preference, loaded when first asked for; `host` is not among them."""
        from dovetail.passes.backends import load_chosen

        return tuple(load_chosen(self.registry, choice) for choice in self.request.backends if choice.name != HOST)

    @cached_property
    def host(self) -> Backend:
        """The backend of what nobody claims; options may be given to it as to any other."""
        from dovetail.passes.backends import load_chosen

        chosen = (choice for choice in self.request.backends if choice.name == HOST)
        return load_chosen(self.registry, next(chosen, BackendChoice(HOST)))

    def load_backends(self) -> None:
        """Load the chosen backends and the host now, so that what is wrong with them is said before anything is done.

        Raises:
            DovetailError: One of them is not installed, or its file is at fault.
        """
        _ = (self.backends, self.host)

    def remark(
        self,
        kind: Kind,
        node: ir.Node | str,
        rule: str,
        why: str,
        because: Iterable[ir.Node | str] = (),
        suggest: str = "",
        source: str = "",
    ) -> None:
        """Say why something was decided; see `Remark` for the fields. Nodes may be given as nodes or by name."""
        names = tuple(_name(other) for other in because)
        self.remarks.append(Remark(kind, _name(node), self.current_pass, rule, why, names, suggest, source))

    def count(self, what: str, n: int = 1) -> None:
        """Add `n` to a statistic of the current pass."""
        self.counts[what] += n

    def analysis(self, kind: type[T], model: Model | None = None) -> T:
        """The analysis `kind` of the model as it is now: `kind.compute(model, ctx)`, computed once per revision."""
        model = model or self.model
        if model is None:
            raise ValueError("an analysis needs a model: give one to the Context or to analysis()")
        known = self._analyses.get(kind)
        if known is None or known[0] is not model or known[1] != model.revision:
            known = (model, model.revision, kind.compute(model, self))
            self._analyses[kind] = known
        return known[2]


def _name(node: ir.Node | str) -> str:
    if isinstance(node, str):
        return node
    return node.name or next((value.name for value in node.outputs if value.name), "") or node.op_type
