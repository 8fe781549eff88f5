"""Coverage of models by a backend: operators that it does not take, with their nodes, work and borders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail.api import named_backends, requested
from dovetail.compiler import Driver, OptionPhases
from dovetail.ir import name_of, reads_of
from dovetail.passes import Context
from dovetail.planning import get_placement, operator_name
from dovetail.text import pluralize
from dovetail_verify.accuracy.groups import work_of

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.passes import BackendChoice
    from dovetail.plugin import PluginSet


@dataclass
class MissingOperator:
    """An operator of which nodes are not on the backend.

    Attributes:
        operator: The operator, such as `Softmax` or `com.acme::FusedMlp`.
        nodes: Number of its nodes that are elsewhere.
        taken: Number of its nodes that are on the backend.
        work: Cost of the former in multiply-adds, with reading and writing; see `work_of`.
        borders: Number of values that they exchange with nodes on the backend.
        reasons: Why they are elsewhere, each with the number of nodes.
    """

    operator: str
    nodes: int = 0
    taken: int = 0
    work: float = 0.0
    borders: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass
class Coverage:
    """Coverage of several models by one backend.

    Attributes:
        backend: The backend.
        models: Names of the models.
        nodes: Number of nodes of all models after normalization.
        taken: Number of nodes on the backend.
        work: Work of all nodes, in multiply-adds.
        work_taken: Work of the nodes on the backend.
        regions: Number of regions of the backend.
        missing: The operators that are missing, the most work first.
    """

    backend: str
    models: list[str] = field(default_factory=list)
    nodes: int = 0
    taken: int = 0
    work: float = 0.0
    work_taken: float = 0.0
    regions: int = 0
    missing: list[MissingOperator] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each missing operator."""
        return [
            {
                "operator": one.operator,
                "missing": one.nodes,
                "on it": one.taken,
                "work": f"{100 * one.work / self.work:.1f} %" if self.work else "",
                "borders": one.borders,
                "reason": _most_common(one.reasons),
            }
            for one in self.missing
        ]

    def line(self) -> str:
        """Return a one-line summary."""
        share = f", {100 * self.work_taken / self.work:.1f} % of the work" if self.work else ""
        return (
            f"{self.backend} takes {self.taken} of {pluralize(self.nodes, 'node')}{share}, "
            f"in {pluralize(self.regions, 'region')} of {pluralize(len(self.models), 'model')}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "missing": [{**vars(one), "reasons": dict(one.reasons)} for one in self.missing]}


def coverage(
    backend: str | BackendChoice,
    models: Iterable[Any],
    *,
    plugins: PluginSet | None = None,
    fix_shapes: Any = None,
    **options: Any,
) -> Coverage:
    """Plan models for a backend, and count what it does not take.

    Args:
        backend: The backend, or the path of its file.
        models: Models, each as `dovetail.open` takes it.
        plugins: The plugins; all installed ones by default.
        fix_shapes: Shapes of inputs that the models leave open, as for `dovetail.plan`.
        options: Further parts of the request, such as `strategy`.

    Raises:
        DovetailError: The backend or a model is invalid.
    """
    plugins = plugins or dovetail.load_plugins()
    (named,) = named_backends(backend, plugins)
    chosen = OptionPhases(plugins.registry, {"fix_shapes": fix_shapes} if fix_shapes else {}, "plan")
    common = requested(named, **options)
    found = Coverage(common.backends[0].name)
    operators: dict[str, MissingOperator] = {}
    for source in models:
        original = dovetail.open(source, plugins)
        ctx = Context(chosen.requested(common, original), plugins=plugins)
        ctx.load_backends()
        model, plan = Driver(original, ctx).decide()
        found.models.append(str(source) if isinstance(source, (str, Path)) else model.graph.name or "model")
        found.regions += len({node.region for node in plan.nodes if node.backend == found.backend})
        why = {remark.node: remark.reason for remark in plan.remarks if remark.backend == found.backend and remark.node}
        _count(model.graph, found, operators, why)
    found.missing = sorted((one for one in operators.values() if one.nodes), key=lambda one: (-one.work, -one.nodes))
    return found


def _count(graph: ir.Graph, found: Coverage, operators: dict[str, MissingOperator], why: Mapping[str, str]) -> None:
    """Count the nodes of one model; linear in nodes and edges."""
    nodes = list(graph)
    inside = {id(node) for node in nodes if (at := get_placement(node)) is not None and at.backend == found.backend}
    reads = reads_of(graph)
    crossing: dict[int, set[str]] = {}
    for node in nodes:
        for value in reads[node]:
            producer = value.producer()
            if producer is not None and (id(producer) in inside) != (id(node) in inside):
                outside = node if id(producer) in inside else producer
                crossing.setdefault(id(outside), set()).add(name_of(value))
    for node in nodes:
        work, taken = work_of(node, {}), id(node) in inside
        found.nodes, found.taken = found.nodes + 1, found.taken + taken
        found.work, found.work_taken = found.work + work, found.work_taken + work * taken
        label = operator_name(node.domain, node.op_type)
        one = operators.setdefault(label, MissingOperator(label))
        if taken:
            one.taken += 1
            continue
        one.nodes, one.work = one.nodes + 1, one.work + work
        one.borders += len(crossing.get(id(node), ()))
        one.reasons[why.get(name_of(node), "")] += 1


def _most_common(reasons: Counter[str]) -> str:
    (text, number), *others = reasons.most_common()
    text = text or "the strategy leaves it"
    return text if not others else f"{number}: {text}; {pluralize(len(others), 'other reason')}"
