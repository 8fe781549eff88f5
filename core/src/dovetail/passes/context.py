"""The context of a run: request, registry, remarks, counters and analyses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dovetail.ir.graphs import FlatGraph
from dovetail.passes.request import BackendChoice, Request
from dovetail.planning.node_keys import key_of
from dovetail.planning.placement import HOST
from dovetail.planning.rejections import Rejection, Rejections
from dovetail.planning.remark import NO_FACTS, Kind, Remark, Remedy
from dovetail.plugin.registry import Registry

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.compiler.artifacts import ArtifactFolder
    from dovetail.ir.model import Model
    from dovetail.passes.instrumentation import Progress
    from dovetail.planning.conversion import Join
    from dovetail.planning.edits import Edit
    from dovetail.planning.plan import Plan
    from dovetail.planning.quantized_value import QuantizedValue
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.loader import PluginSet


T = TypeVar("T")
Fact_co = TypeVar("Fact_co", covariant=True)


class Analysis(Protocol[Fact_co]):
    """A fact about a whole model, computed on first use and dropped when the model changes."""

    @classmethod
    def compute(cls, model: Model, ctx: Context, /) -> Fact_co:
        """Compute the fact without changing the model."""
        ...


@dataclass
class Round:
    """What one round of decisions says and writes; a later round begins with what stood before the first one.

    Attributes:
        remarks: All remarks so far.
        files: Texts to save beside the result, by file name.
        pipelines: The text of every pipeline that completed.
        edits: The changes of the graph that were asked for by name and have been made.
        joins: The conversions that the plan implies, once types are known.
    """

    remarks: list[Remark] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    pipelines: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)

    def copy(self) -> Round:
        """A round that begins with what this one has."""
        return Round(list(self.remarks), dict(self.files), list(self.pipelines), list(self.edits), list(self.joins))


@dataclass
class Outcome:
    """What carrying out one plan makes.

    Attributes:
        plan: The plan; None while nothing is carried out.
        decided: The graph as it was decided on, before anything was carried out, if a backend has emitters.
        quantized values: The quantized forms of values, with their parameters, once they are calibrated.
        artifacts: What backends made of their regions, if anything.
        trial: What trying the engines left for whatever runs the result.
    """

    plan: Plan | None = None
    decided: Model | None = None
    quantized_values: list[QuantizedValue] = field(default_factory=list)
    artifacts: ArtifactFolder | None = None
    trial: Any = None


class Context:
    """The state of one run of a pipeline: what it is asked, what it found out, its round and its outcome.

    Attributes:
        request: The request of the user.
        plugins: The plugins whose hooks observe the run, or None.
        registry: Everything that plugins registered.
        model: The model of the run; set by the manager.
        round: What this round of decisions says and writes.
        outcome: What carrying out its plan makes.
        counts: Statistics of the current pass.
        current_pass: Name of the current pass, empty between passes.
        progress: Called by slow passes with (what, done, total); None if there is no listener.
        refusals: What was refused in earlier rounds of deciding; passes add to it with `refuse`.
        remedies_for: Names of nodes for which strategies shall say what might bring them to their backends.
        remedies: What they said, by name of the node, with the names of the backends.
        try_engines: Load the result on the engines that its backends are made for: always (True), never (False), or
            unless the model is large or a plan is replayed (None).
        files_wanted: Whether emitters of files for the whole model are asked; not for results that nobody keeps.
        asked: Overrides by options, by name of a node of the main graph: `high`, `low` or an element type that the
            strategy of its backend knows, and what asks for it (`--min-snr 30`).
        kept: Results that stay valid when the model is decided again, such as engines and ranges, by pass name.
        measured: Measurements on the data of the request that hold for other requests with the same model and data,
            too, by pass name; the contexts of one compilation share them.
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
        self.measured: dict[str, Any] = {}
        self.refusals = Rejections()
        self.try_engines: bool | None = None
        self.files_wanted = True
        self.remedies_for: Collection[str] = ()
        self.remedies: dict[str, list[tuple[str, Remedy]]] = {}
        self.round, self.outcome = Round(), Outcome()
        self.counts: Counter[str] = Counter()
        self.current_pass = ""
        # The model is kept beside each result: its id could be reused by a later model.
        self._analyses: dict[type, tuple[Model, int, Any]] = {}

    @property
    def remarks(self) -> list[Remark]:
        """All remarks so far."""
        return self.round.remarks

    def begin_round(self, before: Round) -> None:
        """Drop the decisions since `before`, to make them again; what was refused stays."""
        self.round, self.outcome = before.copy(), Outcome()
        self.refusals.fresh = False

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        """The chosen backends in order of preference without `host`, loaded on first use."""
        from dovetail.passes.backends import load_chosen

        return tuple(load_chosen(self.registry, choice) for choice in self.request.backends if choice.name != HOST)

    @cached_property
    def host(self) -> Backend:
        """The host backend, which takes unclaimed nodes; users may give it options."""
        from dovetail.passes.backends import load_chosen

        chosen = (choice for choice in self.request.backends if choice.name == HOST)
        return load_chosen(self.registry, next(chosen, BackendChoice(HOST)))

    def strategy_of(self, backend: Backend) -> str:
        """Name of the strategy that claims nodes for a backend: the user's for it, the user's for all, or its own."""
        choice = next((choice for choice in self.request.backends if choice.name == backend.name), None)
        for_all = self.request.strategy if backend.name != HOST else None
        return (choice.strategy if choice is not None else "") or for_all or backend.strategy

    def load_backends(self) -> None:
        """Load the chosen backends and the host now, so that their errors come first.

        Raises:
            DovetailError: One of them is not installed, or its file is invalid.
        """
        _ = (self.backends, self.host)

    def remark(
        self,
        kind: Kind,
        node: ir.Node | str,
        rule: str,
        why: str,
        because: Iterable[ir.Node | str] = (),
        suggest: str | Remedy = "",
        source: str = "",
        *,
        backend: str = "",
        facts: Mapping[str, Any] = NO_FACTS,
    ) -> None:
        """Record the reason of a decision.

        Args:
            kind: `passed`, `missed`, `failed` or `analysis`; see `Remark`.
            node: The node, or its name; empty for the whole model.
            rule: A short stable name of the rule, in kebab case.
            why: One readable clause.
            because: The nodes that forced the decision, or their names.
            suggest: What the user can do about it: a `Remedy`, which can be tried, or advice.
            source: File and line of the rule.
            backend: The backend that does not get the node; the text then begins with `not on BACKEND: `.
            facts: The numbers and names of the reason, for programs.
        """
        names = tuple(_name(other) for other in because)
        remedy, advice = (None, suggest) if isinstance(suggest, str) else (suggest, "")
        self.remarks.append(
            Remark(
                kind, _name(node), self.current_pass, rule, why, names, advice, source, backend, "", remedy, facts
            )
        )  # fmt: skip

    def refuse(
        self,
        node: ir.Node,
        backend: str,
        why: str,
        *,
        rule: str = "refused",
        kind: Kind = "missed",
        source: str = "",
        format: str = "",
    ) -> None:
        """Take a node, or one of its formats, away from a backend; everything from placement on is decided again.

        One backend runs a control-flow node with its bodies, so that a node of a body takes all of it away.

        Args:
            node: The node.
            backend: Name of the backend.
            why: The reason, in one sentence.
            rule: The rule, for the remark.
            kind: The kind of the remark.
            source: File and line of the rule.
            format: The text of the format that is refused; empty for all.
        """
        holder = self.analysis(FlatGraph, self.model).outermost(node)
        by = self.current_pass
        remarks = [Remark(kind, _name(node), by, rule, why, (), "", source, backend, format)]
        if holder is not node:
            inside = f"'{_name(node)}' in its body cannot go there: {why}"
            because = (_name(node),)
            remarks.append(Remark(kind, _name(holder), by, rule, inside, because, "", source, backend, format))
        refused = Rejection(why, tuple(remarks))
        if format:
            self.refusals.add_format(backend, key_of(node), format, refused)
        else:
            self.refusals.add(backend, key_of(holder), refused)

    def count(self, what: str, n: int = 1) -> None:
        """Add `n` to a statistic of the current pass."""
        self.counts[what] += n

    def analysis(self, kind: type[Analysis[T]], model: Model | None = None) -> T:
        """Return the analysis `kind` of the current revision: `kind.compute(model, ctx)`, cached per revision."""
        model = model or self.model
        if model is None:
            raise ValueError("an analysis needs a model: give one to the Context or to analysis()")
        known = self._analyses.get(kind)
        if known is None or known[0] is not model or known[1] != model.revision:
            known = (model, model.revision, kind.compute(model, self))
            self._analyses[kind] = known
        fact: T = known[2]
        return fact


def _name(node: ir.Node | str) -> str:
    if isinstance(node, str):
        return node
    return node.name or next((value.name for value in node.outputs if value.name), "") or node.op_type
