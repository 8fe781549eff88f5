"""Legality: whether a backend supports a node, and if not, why.

The answer is yes, no, or None if it depends on the region (`region.last`); such nodes are judged again once regions
exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dovetail.ir import is_onnx
from dovetail.plugin import Refusal, Verdict
from dovetail_onnx.signatures import Opsets, port_names

from dovetail_schemas.errors import SchemaError
from dovetail_schemas.integer_nodes import unlisted_integers
from dovetail_schemas.node_view import BROADCASTING, Fact, NodeView, content_names, extents_of, question
from dovetail_schemas.port_types import assign_types, untyped
from dovetail_schemas.rules import Row, Rule
from dovetail_schemas.terms import ABSENT, Absent, Mismatch, NameBinding, Unknown
from dovetail_schemas.type_specs import PortTypes

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Format
    from dovetail.plugin import PortRule

    from dovetail_schemas.backend import FileBackend
    from dovetail_schemas.limits import Limit


class _Operator(NamedTuple):
    """The file's rule for one operator, and the inputs of its verdicts besides types and attributes."""

    rule: Rule
    facts: tuple[Fact, ...]
    names: tuple[str, ...]
    refused: Verdict | None


@dataclass(slots=True)
class _Fit:
    """A row matched against a node: its reasons for rejection, and whether it depends on the region."""

    row: Row
    index: int
    reasons: list[Refusal] = field(default_factory=list)
    swapped: bool = False
    pending: bool = False
    types: list[PortTypes] = field(default_factory=list)
    fuses: tuple[str, ...] = ()


class _Env(dict):
    """The environment of a limit's names: extents first, then the node."""

    def __init__(self, view: NodeView, extents: Mapping[str, object]):
        super().__init__(extents)
        self._view = view

    def __missing__(self, name: str) -> object:
        return self._view[name]


class RuleJudge:
    """Judges the nodes of one model for one backend; verdicts on equal nodes are cached.

    Args:
        backend: The backend.
        facts: The facts that its limits evaluate, by name.
        opset: The model's version of the default ONNX domain, or all its opset imports.
        constants: Constants known besides initializers and Constant nodes, by value name.
        as_typed: Judge nodes in their present types, instead of in the types that they could get.

    Raises:
        SchemaError: The backend uses a fact that is not given.
    """

    def __init__(
        self,
        backend: FileBackend,
        facts: Mapping[str, Fact] | None = None,
        opset: Opsets = 22,
        constants: Mapping[str, np.ndarray] | None = None,
        as_typed: bool = False,
    ):
        self.backend = backend
        self.opset = opset
        self.as_typed = as_typed
        given = facts or {}
        self._constants = constants or {}
        self._memo: dict[tuple, Verdict] = {}
        self._operators: dict[tuple[str, str], _Operator] = {}
        missing = sorted(backend.facts - given.keys())
        if missing:
            raise SchemaError(f"its limits need the fact '{missing[0]}', which no plugin registers", backend.source)
        self._facts = {name: given[name] for name in backend.facts}
        self._facts |= {name: _always(value) for name, value in backend.given_facts.items()}

    def __call__(self, node: ir.Node, region: Mapping[str, object] | None = None) -> Verdict:
        """Return the backend's verdict on `node`.

        Args:
            node: A node of the model; its values should have types.
            region: Known facts about its region (`{"last": True}`); None before regions are formed.
        """
        key = (node.domain, node.op_type)
        operator = self._operators.get(key) or self._operators.setdefault(key, self._look_up(*key))
        if operator.refused is not None:
            return operator.refused
        content = [fact(node) for fact in operator.facts]
        if operator.names:
            view = self._view(node, region)
            content += [view[name] for name in operator.names]
        asked = (question(node, self._constants, region), *content)
        verdict = self._memo.get(asked)
        if verdict is None:
            view, rule = self._view(node, region), operator.rule
            if name := untyped(view):
                return _verdict(rule, False, [Refusal(f"type of '{name}' is not known", rule.source)])
            verdict = self._memo[asked] = self._judge(rule, view)
        return verdict

    def _look_up(self, domain: str, op_type: str) -> _Operator:
        rule = self.backend.rule(domain, op_type)
        refused = None if rule.status == "ok" else _verdict(rule, False, [_not_taken(rule, self.backend.name)])
        facts, names = content_names(rule, self.backend.facts)
        return _Operator(rule, tuple(self._facts[name] for name in facts), names, refused)

    def _view(self, node: ir.Node, region: Mapping[str, object] | None) -> NodeView:
        return NodeView(node, self.opset, self._constants, self._facts, region)

    def _judge(self, rule: Rule, view: NodeView) -> Verdict:
        fit = self._fit(rule, view)
        if isinstance(fit, list):
            return _verdict(rule, False, fit)
        row, said = fit.row, _said(rule, fit)
        keep, sharing = rule.keep | row.keep, rule.sharing
        sharing = sharing._replace(fuses=sharing.fuses + fit.fuses)
        if fit.swapped:  # in the file, names of the first two inputs then mean the other one
            other = view.exchanged_ports()
            said = said and said.renamed(other)
            keep = frozenset(other.get(port, port) for port in keep)
            sharing = sharing._replace(ports=frozenset(other.get(port, port) for port in sharing.ports))
        precisions = self.backend.low, self.backend.high
        answer = assign_types(view, said, rule.listed, precisions, keep, rule.source, sharing, self.as_typed)
        reasons = [*fit.reasons, *answer.reasons, *self._integers(view, said), *self._dynamic(view)]
        ok = False if reasons else None if fit.pending or answer.pending else True
        index = fit.index if len(rule.rows) > 1 else None
        return _verdict(rule, ok, reasons, row, index, answer.types, keep, answer.rules)

    def _integers(self, view: NodeView, said: PortTypes | None) -> list[Refusal]:
        """Return the refusal of a node that computes in integers, if the backend takes only those that it lists."""
        if self.backend.integers != "refuse" or not (found := unlisted_integers(view, said)):
            return []
        why = f"{found}, and {self.backend.name} takes integers only where types list them"
        return [Refusal(why, self.backend.integers_source)]

    def takes_by_accident(self, node: ir.Node) -> bool:
        """Check whether an accepted node computes in integers, though its rule lists other types alone."""
        rule = self.backend.rule(node.domain, node.op_type)
        view = self._view(node, None)
        fit = self._fit(rule, view) if rule.status == "ok" and not self.backend.integers else []
        said = _said(rule, fit) if isinstance(fit, _Fit) else None
        return said is not None and bool(unlisted_integers(view, said))

    def _dynamic(self, view: NodeView) -> list[Refusal]:
        """Return refusals for shapes of the node unknown until run time, if the backend rejects all of these."""
        if self.backend.dynamic != "refuse":
            return []
        names_in, names_out = port_names(view.node, self.opset)
        for port, value in zip((*names_in, *names_out), (*view.node.inputs, *view.node.outputs)):
            if value is None or not value.name:
                continue
            extents = extents_of(value)
            axis = next((i for i, x in enumerate(extents or ()) if not isinstance(x, int) or x < 0), None)
            if extents is None or axis is not None:
                what = f"the rank of {port}" if extents is None else f"extent {axis} of {port}"
                why = f"{what} is not known before run time, and {self.backend.name} takes fixed shapes"
                return [Refusal(why, self.backend.dynamic_source, open=True)]
        return []

    def _fit(self, rule: Rule, view: NodeView) -> _Fit | list[Refusal]:
        """Return the first row that fits, or why none does."""
        mismatches: list[Refusal] = []
        swapped = view.swap()
        for index, row in enumerate(rule.rows):
            for seen in (view, swapped) if swapped else (view,):
                fit = self._lay(row, index, seen)
                if isinstance(fit, _Fit):
                    fit.swapped = seen is swapped
                    return fit
                mismatches.append(fit)
        if len(rule.rows) == 1:
            return mismatches[:1]
        shapes = ", ".join(_describe(value) for value in view.inputs if value is not None)
        rows = "; ".join(f"({row})" for row in rule.rows)
        return [Refusal(f"no row fits {view.op_type} of {shapes}; allowed: {rows}", rule.source)]

    def _lay(self, row: Row, index: int, view: NodeView) -> _Fit | Refusal:
        binding = NameBinding()
        pad = view.op_type in BROADCASTING and is_onnx(view.node)
        for pattern in row.patterns:
            extents = view.extents(pattern.target)
            if isinstance(extents, Absent):
                continue
            try:
                binding.lay(pattern, extents, pad)
            except Mismatch as mismatch:
                return Refusal(str(mismatch), pattern.source)
        absent = {name: ABSENT for pattern in row.patterns for name in pattern.names}
        env = _Env(view, {**absent, **binding.values()})
        met = row.when.check(env)
        if met is False:
            return Refusal(f"not met: {row.when}", row.source)
        fit = _Fit(row, index, pending=isinstance(met, Unknown))
        if fit.pending:
            return fit  # a later row may decide
        if doubt := row.when.doubt(env, self.backend.dynamic):
            # Accepting the row could allow unsupported nodes; skipping it could drop a restriction.
            fit.reasons.append(doubt._replace(text=f"{doubt.text} to choose a row"))
        if self.backend.dynamic not in ("accept", "profile"):
            fit.reasons += [
                Refusal(f"{what} is not known before run time, and {pattern} needs it", pattern.source, open=True)
                for what, pattern in binding.doubts
            ]
        for block in row.blocks:
            met = block.when.check(env)
            if met is False:
                continue
            answers = [self._answer(limit, env) for limit in block.limits]
            refusals = [answer for answer in answers if isinstance(answer, Refusal)]
            fit.pending |= any(isinstance(answer, Unknown) for answer in answers)
            if isinstance(met, Unknown):
                fit.pending |= bool(refusals)
                continue
            fit.reasons += refusals
            if block.types is not None:
                fit.types.append(block.types)
            fit.fuses += block.fuses
        return fit

    def _answer(self, limit: Limit, env: _Env) -> Refusal | Unknown | None:
        """Evaluate a limit; for a fact about open extents, mark the refusal as one that users can fix."""
        answer = limit.refusal(env, self.backend.dynamic)
        if isinstance(answer, Refusal) and not self.backend.open_facts.isdisjoint(limit.names):
            return answer._replace(open=True)
        return answer


def _said(rule: Rule, fit: _Fit) -> PortTypes | None:
    """Return the types of a rule, with those of the row and of the blocks that apply laid over them."""
    said = rule.types
    for types in (fit.row.types, *fit.types):
        if types is not None:
            said = said.narrowed(types) if said else types
    return said


def _verdict(
    rule: Rule,
    ok: bool | None,
    reasons: list[Refusal],
    row: Row | None = None,
    index: int | None = None,
    types: Mapping[str, tuple[Format, ...]] | None = None,
    keep: frozenset[str] | None = None,
    rules: Mapping[str, PortRule] | None = None,
) -> Verdict:
    row = row or Row()
    return Verdict(
        ok,
        tuple(reasons),
        row.role or rule.role,
        row.policy or rule.policy,
        types or {},
        {**rule.set, **row.set},
        rule.keep | row.keep if keep is None else keep,
        index,
        row.source or rule.source,
        rules or {},
    )


def _not_taken(rule: Rule, backend: str) -> Refusal:
    if rule.status == "forbid":
        return Refusal(f"a model with {rule.op_type} is rejected whole by the tools of {backend}", rule.source)
    how = "refuses" if rule.listed else "does not list"
    return Refusal(f"{backend} {how} {rule.op_type}", rule.source)


def _always(value: object) -> Fact:
    """Return a fact that has the same value for every node."""
    return lambda node: value


def _describe(value: ir.Value) -> str:
    extents = extents_of(value)
    shape = "unknown rank" if extents is None else ", ".join("?" if x is None else str(x) for x in extents)
    return f"[{shape}]"
