"""Judges per backend, with registered facts and the observers that a request chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.plugin import SelectiveEngine, Verdict
from dovetail.plugin.loading import calling, described, make_engine
from dovetail_onnx.signatures import Signatures, input_name
from dovetail_transforms.lowering import can_lower

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Refusal
    from dovetail.plugin import Backend, Fact, Judge, ObserverChoice, PortRule
    from dovetail.plugin.loading import Table
    from dovetail_onnx.signatures import Opsets


def with_observer(judge: Judge, observer: ObserverChoice, opsets: Opsets) -> Judge:
    """Wrap a judge so that its verdicts use this observer for everything calibrated on data; weights keep theirs."""
    signatures = Signatures(opsets)
    # Nodes of one rule must keep sharing one mapping, which is compared by identity elsewhere.
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
            known[key] = verdict.rules, rules  # keeps the id of `verdict.rules` from being reused
        return replace(verdict, rules=known[key][1])

    return asked


def _of(rule: PortRule, observer: ObserverChoice) -> PortRule:
    parameters = {
        format_: found if found.factors else found._replace(observer=observer)
        for format_, found in rule.parameters.items()
    }
    return replace(rule, parameters=parameters)


def _is_weight(value: ir.Value | None) -> bool:
    """Check whether a value is a constant, or computed by one node from constants, as a dequantized weight is."""
    if value is None or value.is_graph_input():
        return False
    producer = value.producer()
    if producer is None:
        return value.const_value is not None
    return all(one is None or one.producer() is None and not one.is_graph_input() for one in producer.inputs)


class Judges:
    """One judge per backend, created on first use.

    A backend supports only nodes that can be converted to an opset that its file covers.
    """

    def __init__(self, model: Model, ctx: Context):
        self._model = model
        self._ctx = ctx
        self._known: dict[str, Judge] = {}

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> Judges:
        """Create the judges as an analysis: rounds of decisions that do not change the graph reuse the verdicts."""
        return cls(model, ctx)

    def of(self, backend: Backend) -> Judge:
        """Return the judge of a backend for this model."""
        if backend.name not in self._known:
            facts = {name: _guarded_fact(name, self._ctx.registry.fact) for name in backend.facts}
            self._known[backend.name] = self._guarded(backend, facts)
        return self._known[backend.name]

    def following(self, name: str) -> list[Judge]:
        """Return the judges of the backends that a withdrawn node may go to: the following ones, and the host."""
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
        # The opsets that its file and its tools cover; the model keeps its opset, and emitted parts are lowered.
        # The host runs the remaining nodes, whatever opset its kernel table was made for.
        newer = backend is not self._ctx.host and self._model.opset > backend.opset[1]
        target = backend.opset[1] if newer else None
        # Any engine of the host runs the body of a function, and selective engines run operators of their own.
        functions = self._model.ir.functions if backend is self._ctx.host else {}
        selective = self._selective_engines(backend) if backend is self._ctx.host else []
        lowered: dict[ir.Node, Refusal | None] = {}  # independent of whether the node ends a region

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
        """Return the backend's selective engines, which decide node by node; those that fail to import are skipped."""
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
    """Wrap a fact: its exceptions become errors that name the fact, its distribution and the node."""
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
