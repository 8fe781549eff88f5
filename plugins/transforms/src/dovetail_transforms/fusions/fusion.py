"""The base class of fusions, and the pass `fuse` that applies them to a whole model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dovetail.errors import DovetailError
from dovetail.ir import FreshNames, gc_paused
from dovetail.passes import Pass
from dovetail.planning import origin_of, set_key
from dovetail.plugin import Editor
from dovetail.text import did_you_mean, pluralize

from dovetail_transforms.rewriting import Match, Rewrite, RewriteOutcome, matched, rewrite_node

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.plugin import Registry


_SHOWN = 4  # nodes that a remark names


class Fusion(Editor):
    """Replaces a group of nodes that ends with a given one by an operator that computes the same.

    A fusion is an edit, `--edit fuse-gelu=NODE` with the last node of the group, and so it is part of a plan. It is
    registered with `registry.edit` under its own name.

    Attributes:
        name: Its name, `fuse-` and the operator.
        operator: The operator that it makes.
        domain: The domain of the operator; empty for the default one.
        opset: The version of the default domain from which on the operator exists.
        general: Whether the pass `fuse` makes it without being given its name; others serve one engine.
        rewrites: The forms in which exporters write it; the first that matches is replaced.
    """

    sides = ("after",)
    name: ClassVar[str]
    operator: ClassVar[str]
    domain: ClassVar[str] = ""
    opset: ClassVar[int]
    general: ClassVar[bool] = True
    rewrites: ClassVar[tuple[Rewrite, ...]]

    def is_possible(self, operators: Set[str]) -> bool:
        """Check whether a graph of these operators may have a group: most models lack one that all forms need."""
        return any(rewrite.operators <= operators for rewrite in self.rewrites)

    def found(self, node: ir.Node) -> Sequence[ir.Node]:
        """Return the nodes that would be replaced, users before producers, if the group ends with `node`; else none."""
        tried = self.tried(node)
        return () if tried.why else tried.nodes

    def tried(self, node: ir.Node) -> Match:
        """Return the group that ends with `node`, or why it cannot be replaced; without nodes if there is none."""
        refused = Match(why=f"no form of {self.operator} that exporters write ends with it")
        for rewrite in self.rewrites:
            if rewrite.root.is_operator_of(node):
                found = matched(rewrite, node)
                if not found.why:
                    return found
                if rewrite.commutes and found.nodes:  # of others, nodes are those before the first that differs
                    refused = found
        return refused

    def fuse(self, model: Model, node: ir.Node, names: FreshNames) -> RewriteOutcome:
        """Replace the group that ends with `node`. The caller marks the model as changed.

        What the group alone read, such as a shape or repeated heads, is removed as well.

        Returns:
            The new nodes, or why there are none.
        """
        if model.opset < self.opset:
            return RewriteOutcome(f"{self.operator} needs opset {self.opset}, and the model has {model.opset}")
        why = f"no form of {self.operator} that exporters write ends with it"
        for rewrite in self.rewrites:
            if not rewrite.root.is_operator_of(node):
                continue
            read = [value for member in self.found(node) for value in member.inputs]
            outcome = rewrite_node(rewrite, node, names, model.opset)
            if not outcome.why:
                made = self.made(outcome)
                set_key(made, self.key(made))
                if self.domain:
                    model.graph.opset_imports.setdefault(self.domain, 1)
                _remove_unread(read)
                return outcome
        return RewriteOutcome(why)

    def made(self, outcome: RewriteOutcome) -> ir.Node:
        """Return the operator among the new nodes."""
        return next(new for new in outcome.nodes if new.op_type == self.operator)

    def key(self, node: ir.Node) -> str:
        """Return the key of the operator that replaces a group ending with `node`; see `dovetail.planning.key_of`."""
        return f"{self.name}:{node.outputs[0].name}"

    def apply(self, model: Model, node: ir.Node, side: str, ctx: Context) -> Sequence[ir.Node]:
        """Replace the group that ends with `node`.

        Raises:
            DovetailError: No form of the operator ends with it.
        """
        outcome = self.fuse(model, node, ctx.analysis(FreshNames, model))
        if outcome.why:
            raise DovetailError(f"{self.name} at '{node.name}': {outcome.why}", "name the last node of the group")
        return outcome.nodes


def _remove_unread(values: Iterable[ir.Value | None]) -> None:
    """Remove the nodes of values that nobody reads any more, and what only these read."""
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        producer = value.producer() if value is not None else None
        if producer is None or producer.graph is None:
            continue
        if any(output.uses() or output.is_graph_output() for output in producer.outputs):
            continue
        waiting += producer.inputs
        producer.graph.remove(producer, safe=True)


def fusions_in(registry: Registry) -> dict[str, Fusion]:
    """Return all registered fusions by name; edits of other kinds, and those that cannot be imported, are left out."""
    classes = registry.edit.usable(registry.edit.__getitem__)
    return {name: found() for name, found in classes.items() if isinstance(found, type) and issubclass(found, Fusion)}


def named_fusions(names: Mapping[str, str], registry: Registry) -> dict[str, Fusion]:
    """Return the fusions of these names.

    Args:
        names: File and line by name, as in `Backend.prepare`.
        registry: The registry.

    Raises:
        DovetailError: There is no fusion of a name; the error names file and line.
    """
    found: dict[str, Fusion] = {}
    for name, source in names.items():
        kind = registry.edit.get(name)
        if not (isinstance(kind, type) and issubclass(kind, Fusion)):
            raise unknown_fusion(name, source, fusions_in(registry))
        found[name] = kind()
    return found


def unknown_fusion(name: str, source: str, known: Iterable[str]) -> DovetailError:
    """Return the error for a name that no fusion has."""
    where = f"{source}: " if source else ""
    near = did_you_mean(name, known)
    return DovetailError(f"{where}unknown fusion '{name}'{near}", f"there are {', '.join(known)}")


def replaced_text(names: Sequence[str]) -> str:
    """Return the names of replaced nodes for a remark."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {pluralize(len(names) - _SHOWN, 'more node')}"


@dataclass(frozen=True)
class Fuse(Pass):
    """Replace what exporters write as several operators by one operator each.

    Given:  %e = Erf(%x / sqrt(2)), %y = (%x * (%e + 1)) * 0.5
    Result: %y = Gelu(%x)

    A compilation fuses what a backend asks for under `prepare:`, and only there; this pass fuses everywhere.

    Options:
        only: Names of the fusions, with spaces between them; empty for all general ones.
    """

    name = "fuse"
    after = ("normalize",)

    only: str = ""

    def run(self, model: Model, ctx: Context) -> bool:
        """Fuse in the main graph, from its end: longer groups end later, and contain shorter ones.

        Raises:
            DovetailError: An option names an unknown fusion.
        """
        general = [name for name, fusion in fusions_in(ctx.registry).items() if fusion.general]
        names = dict.fromkeys(self.only.split() or general, "")
        present = {node.op_type for node in model.graph}
        fusions = [one for one in named_fusions(names, ctx.registry).values() if one.is_possible(present)]
        fresh, changed = ctx.analysis(FreshNames, model), False
        with gc_paused():
            for node in reversed(list(model.graph)):
                for fusion in fusions:
                    if node.graph is None or not fusion.found(node):
                        continue
                    name, outcome = node.name or "", fusion.fuse(model, node, fresh)
                    if outcome.why:
                        ctx.remark("missed", name, fusion.name, f"not applied: {outcome.why}")
                        continue
                    sources = [source for new in outcome.nodes[-1:] for source in origin_of(new)]
                    ctx.remark("passed", name, fusion.name, f"{fusion.operator} replaces {replaced_text(sources)}")
                    ctx.count(fusion.name)
                    changed = True
        if changed:
            model.touch()
        return changed
