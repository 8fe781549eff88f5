"""What the real parser says of every node, beside what the backend file says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.compiler import Driver
from dovetail.errors import DovetailError
from dovetail.ir import all_nodes, bodies, name_of
from dovetail.passes import Context
from dovetail.plugin import EngineError
from dovetail_transforms.regions.regions import annotated_regions, extract, given_regions

from dovetail_tensorrt.libraries import Library
from dovetail_tensorrt.making import BuildSettings, build
from dovetail_tensorrt.parser import ParsedModel, parse
from dovetail_tensorrt.table import refusals_as_typed

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail_schemas.backend import Backend
    from dovetail_transforms.regions.regions import Region


@dataclass(frozen=True)
class Answer:
    """Two answers about one node, in the types that it has in the compiled model.

    Attributes:
        node: Its name.
        operator: Its operator.
        backend: Where it was placed.
        table: Why the backend file refuses it, with file and line; empty if it takes it.
        parser: Why the parser refuses it; empty if it takes it.
        builder: Why the builder refuses what the parser takes. It is asked about a node that the table alone refuses,
            if its extents are fixed; empty if it takes it, or was not asked.
    """

    node: str
    operator: str
    backend: str
    table: str
    parser: str
    builder: str = ""

    @property
    def differs(self) -> bool:
        """Whether one of them takes the node and the other one does not."""
        return bool(self.table) != bool(self.parser or self.builder)

    def __str__(self) -> str:
        what = f"{self.node} ({self.operator}, on {self.backend})"
        if self.table:
            return f"{what}: the table says no and the parser yes: {self.table}"
        return f"{what}: the table says yes and the parser no: {self.parser}"

    def as_dict(self) -> dict[str, str]:
        """The answers as plain data."""
        names = ("node", "operator", "backend", "table", "parser", "builder")
        return {name: getattr(self, name) for name in names}


def answers(
    model: Model, planned: Collection[str], ctx: Context, backend: Backend, library: Library
) -> Iterator[Answer]:
    """Compile a model in memory, and ask table and parser about each of its nodes.

    Regions of the backend are given to the parser as they are, with their conversions; each node that is elsewhere is
    given alone, with its types and shapes.

    Args:
        model: The model, which stays as it is.
        planned: The names of the nodes in the plan.
        ctx: The context of its planning.
        backend: The backend with its options, one of the context's.
        library: The TensorRT that is asked.

    Raises:
        DovetailError: The model cannot be compiled.
    """
    compiled = _compiled(model, ctx)
    for region in _parts(compiled, backend.name, planned):
        names = {name_of(node): node.op_type for node in region.nodes}
        try:
            part = extract(compiled, region)
        except DovetailError as error:  # a value at its border has no type, so nobody can be asked
            yield from (Answer(name, operator, region.backend, "", error.message) for name, operator in names.items())
            continue
        table = _by_top_level(part, refusals_as_typed(part, backend, ctx.registry))
        parsed = parse(part, library)
        said: dict[str, str] = {}
        for one in parsed.verdict.errors:
            said.setdefault(one.node, one.text)
        built = _not_built(parsed) if table and not said and len(names) == 1 else ""
        for name, operator in names.items():
            # What the parser says of a region without naming a node, it says of each.
            parser = said.get(name, said.get("", ""))
            yield Answer(name, operator, region.backend, table.get(name, ""), parser, built)


def _not_built(parsed: ParsedModel) -> str:
    """Why the builder refuses what the parser took; empty if it does not, or needs a profile to tell."""
    if any(-1 in tensor.shape or tensor.is_shape for tensor in parsed.verdict.inputs):
        return ""
    try:
        build(parsed, {}, BuildSettings("one-node"))
    except EngineError as error:
        return error.message
    return ""


def _compiled(model: Model, ctx: Context) -> Model:
    """The model with all conversions, and with its regions where they are; nothing is built or loaded."""
    inner = Context(ctx.request, plugins=ctx.plugins)
    inner.try_engines = inner.files_wanted = False
    return Driver(model, inner).compile().model


def _parts(model: Model, backend: str, planned: Collection[str]) -> Iterator[Region]:
    """The regions of the backend, and every other node of the plan as a region of its own."""
    groups: list[list[ir.Node]] = []
    rest: list[ir.Node] = []
    places: list[str] = []
    for region in annotated_regions(model.graph):
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
    """Reasons by nodes of the main graph: a control-flow node is refused for what is in its bodies."""
    found: dict[str, str] = {}
    for node in part.graph:
        inner = (inside.name for body in bodies(node) for inside in all_nodes(body))
        own = name_of(node)
        reason = next((said[name] for name in (own, *inner) if name is not None and name in said), "")
        if reason:
            found[own] = reason
    return found
