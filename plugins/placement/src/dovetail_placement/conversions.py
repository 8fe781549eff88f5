"""Placement of conversions and other late nodes, and the nodes that implement conversion steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import DovetailError
from dovetail.ir import FlatGraph, Format, FreshNames, format_of
from dovetail.planning import HOST, Placement, get_placement, set_placement
from dovetail.plugin.loading import calling, make_engine
from dovetail_transforms.rewriting import Replacement

from dovetail_placement.legality import Judges

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Step
    from dovetail.plugin import Backend


class ConversionPlacement:
    """Chooses a supporting backend of the request for each conversion."""

    def __init__(self, model: Model, ctx: Context):
        self._ctx = ctx
        self._judges = Judges(model, ctx)
        self._backends = {backend.name: backend for backend in ctx.backends}
        self._engines: dict[str, list[frozenset[str]]] = {}

    def choose(
        self, cast: ir.Node, held: Format, wanted: Format, candidates: Iterable[str], crossing: Format | None = None
    ) -> str:
        """Return the first candidate that supports the conversion; the host if none does.

        If the backend file lists the operator, its rule decides. Otherwise the types must appear in the file and among
        those that an engine accepts at its borders.

        Args:
            cast: The conversion, with typed input and output.
            held: Format of its input.
            wanted: Format of its output.
            candidates: Names of backends, in order of preference.
            crossing: The format that can cross the border of a region, if only one can; the other one only gives the
                integers inside the region their meaning. Without it, both formats must be accepted.
        """
        types = {held.element, wanted.element} if crossing is None else {crossing.element}
        for name in candidates:
            backend = self._backends.get(name)
            if backend is None or not self._file_takes(backend, cast, held, wanted, types):
                continue
            if any(types <= taken for taken in self._engine_types(backend)):
                return name
        return HOST

    def _file_takes(self, backend: Backend, cast: ir.Node, held: Format, wanted: Format, types: set[str]) -> bool:
        if backend.lists(cast.domain, cast.op_type):
            verdict = self._judges.of(backend)(cast)
            ports = {"input": held, "output": wanted}
            return bool(verdict.ok) and all(part in verdict.types.get(port, (part,)) for port, part in ports.items())
        return types <= set(backend.border_types)

    def _engine_types(self, backend: Backend) -> list[frozenset[str]]:
        """Return the types that each engine of a backend accepts; an engine that fails to import is skipped."""
        if backend.name not in self._engines:
            from dovetail.errors import DovetailError

            found = []
            for name in backend.engines:
                try:
                    found.append(make_engine(self._ctx.registry, name).reads.types)
                except DovetailError:
                    continue
            self._engines[backend.name] = found
        return self._engines[backend.name]


class Made(NamedTuple):
    """The nodes of a conversion step, not in the graph yet.

    Attributes:
        result: The converted value.
        nodes: The nodes that compute it, placed and named, in order.
        constants: The initializers that they use.
    """

    result: ir.Value
    nodes: list[ir.Node]
    constants: list[ir.Value]


class ConversionSteps:
    """Builds the conversion steps of one model."""

    def __init__(self, model: Model, ctx: Context):
        import onnx_ir as ir

        self._model, self._ctx = model, ctx
        self._names = ctx.analysis(FreshNames, model)
        self._replaced = ir.Node("", "Identity", [])  # has the prefix of new names
        self._known: dict[str, tuple[str, type]] = {}  # title and class by kind: a model has thousands of steps

    def make(
        self, value: ir.Value, step: Step, place: Callable[[ir.Node], str], about: str = "", name: str = ""
    ) -> Made:
        """Build the nodes that convert `value`.

        Args:
            value: The value to convert.
            step: The conversion step.
            place: Returns the backend of a node.
            about: Prefix of new names; the name of the value by default.
            name: Name of the nodes, made unique; the name of the step by default.

        Raises:
            DovetailError: The conversion is not installed, fails, or does not return a typed value.
        """
        import onnx_ir as ir

        about = about or value.name or ""
        self._replaced.name = about
        op = Replacement(self._replaced, self._names, self._model.opset)
        if step.kind not in self._known:
            table = self._ctx.registry.conversion
            self._known[step.kind] = table.title(step.kind), table[step.kind]
        owner, conversion = self._known[step.kind]
        title = f"{owner} at '{value.name}'"
        with calling(title):
            result = conversion().build(op, value, step)
        if not isinstance(result, ir.Value) or result.type is None:
            hint = "`build` returns the converted value, with its type"
            raise DovetailError(f"{title} gives no value with a type", hint)
        converted = f"{about}_{step.kind if step.target is None else step.target.element}"
        precision, ports = _computed_in(step)
        for node in op.nodes:
            node.name = self._names.fresh(name or f"{about}_{step.kind}")
            for output in node.outputs:
                output.name = output.name or self._names.fresh(converted)
            # A judge treats an unnamed output as absent, so names are assigned first.
            set_placement(node, Placement(place(node), precision, ports))
        return Made(result, op.nodes, op.initializers)


def _computed_in(step: Step) -> tuple[Format | None, dict[str, Format]]:
    """Return the precision of a step's nodes, and the ports with another format."""
    if step.source is None or step.target is None:
        return None, {}
    for held in (step.target, step.source):
        if held.quantized:
            return Format.of(held.expressed), {}
    return step.target, {"input": step.source}


def place_later_nodes(model: Model, ctx: Context) -> None:
    """Place every unplaced node: with its producer, else with its user, if that backend supports it.

    If neither backend supports a node, it is placed on the host. A node of a body is on the backend of its control-flow
    node, because one engine runs them together.
    """
    flat = ctx.analysis(FlatGraph, model)
    later = [node for node in flat.nodes if get_placement(node) is None]
    if not later:
        return
    judges, backends = Judges(model, ctx), {backend.name: backend for backend in ctx.backends}
    for node in later:
        outermost = flat.outermost(node)
        if outermost is not node and (holder := get_placement(outermost)) is not None:
            chosen = holder.backend
        else:
            beside = (name for name in _beside(node) if name in backends)
            chosen = next((name for name in beside if judges.of(backends[name])(node).ok), HOST)
        set_placement(node, Placement(chosen, _precision(node)))
        ctx.remark("passed", node, "placed-later", f"on {chosen}: a pass added the node after nodes were placed")


def _beside(node: ir.Node) -> dict[str, None]:
    """Return the backends of producers, then those of users."""
    producers = (value.producer() for value in node.inputs if value is not None)
    readers = (reader for value in node.outputs for reader, _ in value.uses())
    placements = (get_placement(other) for other in (*producers, *readers) if other is not None)
    return dict.fromkeys(placement.backend for placement in placements if placement is not None)


def _precision(node: ir.Node) -> Format | None:
    kinds = [value.dtype for value in (*node.outputs, *node.inputs) if value is not None and value.dtype is not None]
    return format_of(kinds[0]) if kinds else None
