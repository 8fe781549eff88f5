"""Comparison of the backend file with the real parser, node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.ir import all_nodes, bodies, name_of
from dovetail.passes import Context
from dovetail.planning import extract, given_regions
from dovetail.plugin import EngineError
from dovetail_placement import numbered_or_formed

from dovetail_tensorrt.libraries import Library
from dovetail_tensorrt.making import BuildSettings, build
from dovetail_tensorrt.parser import ParsedModel, parse
from dovetail_tensorrt.table import refusals_as_typed

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.planning import Region
    from dovetail_schemas import FileBackend


@dataclass(frozen=True)
class ParserAnswer:
    """Verdicts of backend file and parser about a node, in its types in the compiled model.

    Attributes:
        node: Its name.
        operator: Its operator.
        backend: Where it was placed.
        table: Why the backend file rejects it, with file and line; empty if accepted.
        parser: Why the parser rejects it; empty if accepted.
        builder: Why the builder rejects a node that the parser accepts. Only nodes of static shape that the table alone
            rejects are built; empty if accepted, or not built.
    """

    node: str
    operator: str
    backend: str
    table: str
    parser: str
    builder: str = ""

    @property
    def differs(self) -> bool:
        """Whether only one of them accepts the node."""
        return bool(self.table) != bool(self.parser or self.builder)

    def __str__(self) -> str:
        what = f"{self.node} ({self.operator}, on {self.backend})"
        if self.table:
            return f"{what}: the table says no and the parser yes: {self.table}"
        return f"{what}: the table says yes and the parser no: {self.parser}"

    def as_dict(self) -> dict[str, str]:
        """Return the answers as plain data."""
        names = ("node", "operator", "backend", "table", "parser", "builder")
        return {name: getattr(self, name) for name in names}


def answers(
    model: Model, planned: Collection[str], ctx: Context, backend: FileBackend, library: Library
) -> Iterator[ParserAnswer]:
    """Compile a model in memory, and check each of its nodes against table and parser.

    Regions of the backend are parsed whole, with their conversions; every other node is parsed alone, with its types
    and shapes.

    Args:
        model: The model; it is not changed.
        planned: The names of the nodes in the plan.
        ctx: The context of its planning.
        backend: The backend with its options, one of the context's.
        library: The TensorRT with the parser.

    Raises:
        DovetailError: The model cannot be compiled.
    """
    compiled = _compiled(model, ctx)
    for region in _parts(compiled, backend.name, planned):
        names = {name_of(node): node.op_type for node in region.nodes}
        try:
            part = extract(compiled, region)
        except DovetailError as error:  # a border value is untyped, so the parser cannot be asked
            yield from (
                ParserAnswer(name, operator, region.backend, "", error.message) for name, operator in names.items()
            )
            continue
        table = _by_top_level(part, refusals_as_typed(part, backend, ctx.registry))
        parsed = parse(part, library)
        said: dict[str, str] = {}
        for one in parsed.verdict.errors:
            said.setdefault(one.node, one.text)
        built = _not_built(parsed) if table and not said and len(names) == 1 else ""
        for name, operator in names.items():
            # An error about a region without a node applies to each of its nodes.
            parser = said.get(name, said.get("", ""))
            yield ParserAnswer(name, operator, region.backend, table.get(name, ""), parser, built)


def _not_built(parsed: ParsedModel) -> str:
    """Return why the builder rejects a parsed model; empty if it does not, or if the build needs a profile."""
    if any(-1 in tensor.shape or tensor.is_shape for tensor in parsed.verdict.inputs):
        return ""
    try:
        build(parsed, {}, BuildSettings("one-node"))
    except EngineError as error:
        return error.message
    return ""


def _compiled(model: Model, ctx: Context) -> Model:
    """Compile a model with all conversions and regions; nothing is built or loaded."""
    inner = Context(ctx.request, plugins=ctx.plugins)
    inner.try_engines = inner.files_wanted = False
    return Driver(model, inner).compile().model


def _parts(model: Model, backend: str, planned: Collection[str]) -> Iterator[Region]:
    """Yield the regions of the backend, and every other planned node as a separate region."""
    groups: list[list[ir.Node]] = []
    rest: list[ir.Node] = []
    places: list[str] = []
    for region in numbered_or_formed(model.graph):
        if region.backend == backend:
            yield region
            rest += region.nodes
            continue
        for node in region.nodes:
            if node.name in planned:
                groups.append([node])
                places.append(region.backend)
            else:
                rest.append(node)
    singles = given_regions(model.graph, [*groups, *([rest] if rest else [])])
    for place, region in zip(places, singles, strict=False):
        if region.outputs:
            yield replace(region, backend=place)


def _by_top_level(part: Model, said: Mapping[str, str]) -> dict[str, str]:
    """Map reasons to nodes of the main graph: a control-flow node is rejected for nodes in its bodies."""
    found: dict[str, str] = {}
    for node in part.graph:
        inner = (inside.name for body in bodies(node) for inside in all_nodes(body))
        own = name_of(node)
        reason = next((said[name] for name in (own, *inner) if name is not None and name in said), "")
        if reason:
            found[own] = reason
    return found
