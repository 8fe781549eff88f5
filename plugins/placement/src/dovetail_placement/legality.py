"""Legality of nodes by backend, with the facts that plugins register and the observers that a request chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.compiler import calling, described, make_engine
from dovetail.errors import DovetailError
from dovetail.plugin import SelectiveEngine, Verdict
from dovetail_onnx.signatures import Signatures, input_name
from dovetail_transforms.lowering import can_lower

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.compiler import Table
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Refusal
    from dovetail.plugin import Backend, Fact, Judge, ObserverChoice, PortRule
    from dovetail_onnx.signatures import Opsets


def with_observer(judge: Judge, observer: ObserverChoice, opsets: Opsets) -> Judge:
    """A judge whose verdicts name this observer for everything that is calibrated on data; weights keep theirs."""
    signatures = Signatures(opsets)
    # Nodes of one rule go on having one mapping, which others compare by identity.
    known: dict[tuple[int, frozenset[str]], tuple[Mapping[str, PortRule], Mapping[str, PortRule]]] = {}

    def asked(node: ir.Node, region: Mapping[str, object] | None = None) -> Verdict:
        verdict = judge(node, region)
        if not verdict.rules:
            return verdict
        signature = signatures(node)
        weights = frozenset(
            input_name(index, signature) for index, value in enumerate(node.inputs) if _is_weight(value)
        )
        key = id(verdict.rules), weights
        if key not in known:
            rules = {port: rule if port in weights else _of(rule, observer) for port, rule in verdict.rules.items()}
            known[key] = verdict.rules, rules  # the first one keeps its identity from being used again
        return replace(verdict, rules=known[key][1])

    return asked


def _of(rule: PortRule, observer: ObserverChoice) -> PortRule:
    parameters = {
        format_: found if found.factors else found._replace(observer=observer)
        for format_, found in rule.parameters.items()
    }
    return replace(rule, parameters=parameters)


def _is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or computed by one node from constants alone, as a dequantized weight is."""
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    if producer is None:
        return value.const_value is not None
    return all(one is None or one.producer() is None and not one.is_graph_input() for one in producer.inputs)


class Judges:
    """One judge per backend, created on first use.

    A backend takes only nodes that can be brought to an opset that its file knows.
    """

    def __init__(self, model: Model, ctx: Context):
        self._model = model
        self._ctx = ctx
        self._known: dict[str, Judge] = {}

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Judges:
        """As an analysis: rounds of deciding that leave the graph as it is keep what was judged."""
        return cls(model, ctx)

    def of(self, backend: Backend) -> Judge:
        """Return the judge of a backend for this model."""
        if backend.name not in self._known:
            facts = {name: _guarded_fact(name, self._ctx.registry.fact) for name in backend.facts}
            self._known[backend.name] = self._guarded(backend, facts)
        return self._known[backend.name]

    def behind(self, name: str) -> list[Judge]:
        """The judges of those who may take what a backend gives back: the backends behind it, and the host."""
        names = [backend.name for backend in self._ctx.backends]
        return [self.of(backend) for backend in (*self._ctx.backends[names.index(name) + 1 :], self._ctx.host)]

    def _guarded(self, backend: Backend, facts: Mapping[str, Fact]) -> Judge:
        """Return the judge of a backend, with its exceptions turned into errors that name node and distribution."""
        table = self._ctx.registry.backend
        title = table.title(backend.name) if backend.name in table else f"backend '{backend.name}'"
        with calling(title):
            judge = backend.judge(self._model.ir.opset_imports, facts)
        if not callable(judge):
            raise DovetailError(f"{title} judges with {type(judge).__name__}", "`judge` returns a function of a node")
        observer = self._ctx.request.observers.get(backend.name)
        if observer is not None:
            judge = with_observer(judge, observer, self._model.ir.opset_imports)
        owner = table.entry(backend.name).owner if backend.name in table else backend.source

        opsets = self._model.ir.opset_imports
        # What its file and its tools know; the model itself keeps its opset, and what is emitted is lowered.
        # The host runs what is left, whatever its table of kernels was made for.
        newer = backend is not self._ctx.host and self._model.opset > backend.opset[1]
        target = backend.opset[1] if newer else None
        # Any engine of the host runs the body of a function, and some run operators that only they know.
        functions = self._model.ir.functions if backend is self._ctx.host else {}
        selective = self._selective_engines(backend) if backend is self._ctx.host else []
        lowered: dict[ir.Node, Refusal | None] = {}  # whether a region ends with the node makes no difference

        def asked(node: ir.Node, region: Mapping[str, object] | None = None) -> Verdict:
            try:
                if functions and node.op_identifier() in functions:
                    return Verdict(True)
                verdict = judge(node, region)
                if verdict.ok is False and any(engine.takes(node) for engine in selective):
                    return Verdict(True)
                if target is None or verdict.ok is False:
                    return verdict
                if node not in lowered:
                    lowered[node] = can_lower(node, target, opsets)
                refusal = lowered[node]
                return verdict if refusal is None else replace(verdict, ok=False, reasons=(refusal,))
            except (DovetailError, KeyboardInterrupt):
                raise
            except BaseException as error:
                why = f"backend '{backend.name}' of {owner} cannot judge node '{node.name}': {described(error)}"
                raise DovetailError(why, f"report it to {owner}, or leave the backend out") from error

        return asked

    def _selective_engines(self, backend: Backend) -> list[SelectiveEngine]:
        """The engines of a backend that say of every node whether they run it; one that does not import is left out."""
        found = []
        for name in backend.engines:
            try:
                engine = make_engine(self._ctx.registry, name)
            except DovetailError:
                continue
            if isinstance(engine, SelectiveEngine):
                found.append(engine)
        return found


def _guarded_fact(name: str, table: Table) -> Fact:
    """A fact whose exceptions are errors that name it, its distribution and the node."""
    fact, who = table[name], table.title(name)

    def asked(node: ir.Node) -> object:
        try:
            return fact(node)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            why = f"{who} fails on node '{node.name}': {described(error)}"
            raise DovetailError(why, "report it to the distribution that brings it") from error

    return asked
