"""The context of a run: request, registry, remarks, counters and cached analyses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from dovetail.ir.graphs import FlatGraph
from dovetail.planning.node_keys import key_of
from dovetail.planning.placement import HOST
from dovetail.planning.rejections import Rejection, Rejections
from dovetail.planning.remark import NO_FACTS, Kind, Remark, Remedy
from dovetail.planning.request import BackendChoice, Request
from dovetail.plugin.loading.registry import Registry

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.model import Model
    from dovetail.planning.conversion import Join
    from dovetail.planning.edits import Edit
    from dovetail.planning.plan import Plan
    from dovetail.planning.quantized_value import QuantizedValue
    from dovetail.plugin.artifacts import ArtifactFolder
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.loading.loader import PluginSet


Progress = Callable[[str, int, int], None]
"""Progress callback, called with (step, done, total); `total` is 0 if unknown."""

T = TypeVar("T")
Fact_co = TypeVar("Fact_co", covariant=True)


class Analysis(Protocol[Fact_co]):
    """A fact about a whole model, computed on first use and invalidated when the model changes."""

    @classmethod
    def compute(cls, model: Model, ctx: Context, /) -> Fact_co:
        """Compute the fact without changing the model."""
        ...


class Kept:
    """Objects that passes keep beyond one revision of the model: at most one of each class.

    Attributes:
        data: What measurements among them were made on.
    """

    data: object = None

    def __init__(self) -> None:
        self._objects: dict[type, Any] = {}

    def get(self, kind: type[T]) -> T | None:
        """Return the object of a class; None if there is none."""
        return cast("T | None", self._objects.get(kind))

    def of(self, kind: type[T]) -> T:
        """Return the object of a class, created without arguments on first use."""
        return self.get(kind) or self.put(kind())

    def put(self, found: T) -> T:
        """Store an object, replacing any of its class, and return it."""
        self._objects[type(found)] = found
        return found


@dataclass
class Round:
    """The outputs of one round of decisions; a later round starts from the outputs before the first one.

    Attributes:
        remarks: All remarks so far.
        files: Texts to save next to the result, by file name.
        pipelines: The text of every pipeline that completed.
        edits: The requested edits that have been applied.
        joins: The conversions that the plan implies, once types are known.
    """

    remarks: list[Remark] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    pipelines: list[str] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)

    def copy(self) -> Round:
        """Return a copy, which a new round can extend."""
        return Round(list(self.remarks), dict(self.files), list(self.pipelines), list(self.edits), list(self.joins))


@dataclass
class Outcome:
    """The outputs of carrying out one plan.

    Attributes:
        plan: The plan; None until one is carried out.
        decided: A copy of the decided graph before any of it was carried out, if a backend has emitters.
        quantized_values: The quantized values and their parameters, once calibrated.
        artifacts: The artifacts that emitters made of regions, or None.
        with_nodes: The model before programs and calls replaced regions; None if none did.
        trial: State left by the engine trial, reused by the runner.
    """

    plan: Plan | None = None
    decided: Model | None = None
    quantized_values: list[QuantizedValue] = field(default_factory=list)
    artifacts: ArtifactFolder | None = None
    with_nodes: Model | None = None
    trial: object = None


class Context:
    """The state of one pipeline run: request, registry, caches, current round and outcome.

    Attributes:
        request: The user's request.
        plugins: The plugins whose hooks observe the run, or None.
        registry: The registered plugin components.
        model: The model of the run; set by the manager.
        round: The outputs of the current round of decisions.
        outcome: The outputs of carrying out its plan.
        counts: Statistics of the current pass.
        current_pass: Name of the current pass, empty between passes.
        progress: Progress callback of slow passes, called with (step, done, total); None for no callback.
        refusals: Rejections from earlier rounds of decisions; passes add to it with `refuse`.
        remedies_for: Names of nodes for which strategies are asked for remedies.
        remedies: Remedies found, by node name, with the names of the backends.
        try_engines: Load the result on its backends' engines: always (True), never (False), or unless the model is
            large or a plan is replayed (None).
        files_wanted: Whether emitters of whole-model files run; False for results that are discarded.
        asked: Overrides by options, by name of a main-graph node: `high`, `low`, `IN_FLOATS` or an element type that
            its backend's strategy knows, and the option that asks for it (`--min-snr 30`).
        kept: Results that stay valid when the model is decided again, such as engines and ranges, by class.
        measured: Measurements that hold for all requests with the same model and data, by class; the contexts of one
            compilation share them.
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
        self.kept, self.measured = Kept(), Kept()
        self.refusals = Rejections()
        self.try_engines: bool | None = None
        self.files_wanted = True
        self.remedies_for: Collection[str] = ()
        self.remedies: dict[str, list[tuple[str, Remedy]]] = {}
        self.round, self.outcome = Round(), Outcome()
        self.counts: Counter[str] = Counter()
        self.current_pass = ""
        # Keep the model alive with each result: a later model could reuse its id.
        self._analyses: dict[type, tuple[Model, int, Any]] = {}

    @property
    def remarks(self) -> list[Remark]:
        """All remarks so far."""
        return self.round.remarks

    def begin_round(self, before: Round) -> None:
        """Roll back to `before` and decide again; rejections stay."""
        self.round, self.outcome = before.copy(), Outcome()
        self.refusals.fresh = False

    @cached_property
    def backends(self) -> tuple[Backend, ...]:
        """The chosen backends in order of preference, without `host`, loaded on first use."""
        from dovetail.plugin.loading.backends import load_chosen

        return tuple(load_chosen(self.registry, choice) for choice in self.request.backends if choice.name != HOST)

    @cached_property
    def host(self) -> Backend:
        """The host backend, which takes unclaimed nodes; the user may set its options."""
        from dovetail.plugin.loading.backends import load_chosen

        return load_chosen(self.registry, self.request.choice(HOST) or BackendChoice(HOST))

    def backend(self, name: str) -> Backend | None:
        """Return a chosen backend; None if it is not chosen."""
        return next((backend for backend in self.backends if backend.name == name), None)

    def strategy_of(self, backend: Backend) -> str:
        """Return the strategy of a backend: the user's for this backend, the user's for all backends, or its own."""
        choice = self.request.choice(backend.name)
        for_all = self.request.strategy if backend.name != HOST else None
        return (choice.strategy if choice is not None else "") or for_all or backend.strategy

    def load_backends(self) -> None:
        """Load the chosen backends and the host now, to report their errors early.

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
        """Record the reason for a decision.

        Args:
            kind: `passed`, `missed`, `failed` or `analysis`; see `Remark`.
            node: The node, or its name; empty for the whole model.
            rule: A short stable name of the rule, in kebab case.
            why: The reason, in one clause.
            because: The nodes that forced the decision, or their names.
            suggest: A way out for the user: a `Remedy`, which can be tried, or advice as text.
            source: File and line of the rule.
            backend: The backend that does not get the node; the text then begins with `not on BACKEND: `.
            facts: Numbers and names in the reason, as data.
        """
        names = tuple(map(_name, because))
        remedy, advice = (None, suggest) if isinstance(suggest, str) else (suggest, "")
        self.remarks.append(Remark(
            kind, _name(node), self.current_pass, rule, why, names, advice, source, backend, "", remedy, facts
        ))  # fmt: skip

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
        """Reject a node, or one of its formats, on a backend; everything from placement on is decided again.

        A backend runs a control-flow node together with its bodies, so rejecting a node of a body rejects the whole.

        Args:
            node: The node.
            backend: Name of the backend.
            why: The reason, in one sentence.
            rule: The rule, for the remark.
            kind: The kind of the remark.
            source: File and line of the rule.
            format: The rejected format, as text; empty for all formats.
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
