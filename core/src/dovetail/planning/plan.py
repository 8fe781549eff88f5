"""Plans: the decisions about a model and their reasons, as data to save, edit and replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.planning.conversion import Join
from dovetail.planning.node_keys import identity, operator_name, structural_keys, walk
from dovetail.planning.placement import Placement, get_placement, kind_of, origin_of
from dovetail.planning.remark import Remark
from dovetail.text import pluralize

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.ir.formats import Format
    from dovetail.ir.model import Model
    from dovetail.passes import Context
    from dovetail.plugin.backend import Backend
    from dovetail.plugin.registry import Registry


VERSION = 2
"""Version of the file format of plans."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node of a plan, identified by `output` (with the body path), or by `key` in another export of the model."""

    name: str
    output: str
    key: str
    op_type: str
    backend: str
    precision: Format | None
    domain: str = ""
    origin: tuple[str, ...] = ()
    region: int | None = None
    kind: str = "data"
    ports: Mapping[str, Format] = field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        """The placement of the node."""
        return Placement(self.backend, self.precision, dict(self.ports), self.region)

    @property
    def operator(self) -> str:
        """The operator with its domain, as in selectors: `Conv`, `com.acme::FusedMlp`."""
        return operator_name(self.domain, self.op_type)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as a mapping, without fields at their defaults."""
        data: dict[str, Any] = {"name": self.name, "output": self.output, "key": self.key, "op_type": self.op_type}
        if self.domain:
            data["domain"] = self.domain
        data |= {"backend": self.backend, "precision": str(self.precision or "")}
        if self.region is not None:
            data["region"] = self.region
        return data | self.unusual()

    def unusual(self) -> dict[str, Any]:
        """Return origin, kind and ports, as far as they differ from their defaults."""
        data: dict[str, Any] = {}
        if self.origin and self.origin != (self.name,):
            data["origin"] = list(self.origin)
        if self.kind != "data":
            data["kind"] = self.kind
        if self.ports:
            data["ports"] = {port: str(format_) for port, format_ in sorted(self.ports.items())}
        return data


class SourceNode(NamedTuple):
    """A node of the source model that is not in the result, and the reason."""

    name: str
    operator: str
    fate: str


@dataclass(repr=False)
class Plan:
    """All decisions about a model.

    Attributes:
        model: The source model: file name (`path`), its folder relative to the working directory, if below it
            (`folder`), number of nodes after normalization, and the SHA-256 of the file (`sha256`). In a saved result
            also the content digest of the compiled model (`result`).
        backends: Name, strategy, provenance and options of each backend, in order of preference. `distribution` names
            the distribution with its version, `contract` is the version of the plugin contract. For a backend file,
            `distribution` is its name, and `sha256` its digest; `path`, where the file is, is not saved.
        nodes: The planned nodes in graph order; nodes in bodies by path.
        sources: Nodes of the source model that were folded, removed or inlined.
        joins: The conversions that the placements imply.
        values: The quantized values and their parameters, by value name.
        edits: The edits that were applied; see `dovetail.planning.edits.Edit`.
        remarks: The reasons.
        summary: Coverage, regions, joins.
        files: Files that belong to the plan, by name; `files` in `summary` has the SHA-256 of each.
        source: The file of the source model, hashed when the plan is saved; None if there is none.
        registry: The registry with the stores that write the plan; None for that of all installed plugins.
        notes: Notes for the user from options that examined the plan, one line each; not saved.
    """

    model: dict[str, Any] = field(default_factory=dict)
    backends: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[PlannedNode] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    edits: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    sources: list[SourceNode] = field(default_factory=list)
    files: Mapping[str, Path] = field(default_factory=dict, repr=False, compare=False)
    source: Path | None = field(default=None, repr=False, compare=False)
    registry: Registry | None = field(default=None, repr=False, compare=False)
    notes: list[str] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def extract(cls, model: Model, ctx: Context | None = None, source: Model | None = None) -> Plan:
        """Build the plan from the annotations of `model`.

        Args:
            model: A placed model.
            ctx: The run that placed the model, for its remarks and joins.
            source: The model before the run, to report nodes that are gone.
        """

        keys = structural_keys(model)
        nodes, regions = [], set()
        for path, node in walk(model):
            placement = get_placement(node) or Placement()
            regions.add(placement.region)
            nodes.append(PlannedNode(
                node.name or "", identity(path, node), keys[id(node)], node.op_type, placement.backend,
                placement.precision, node.domain, origin_of(node), placement.region, kind_of(node), placement.ports,
            ))  # fmt: skip
        coverage = dict(Counter(node.backend for node in nodes).most_common())
        joins = list(ctx.round.joins) if ctx else []
        summary = {"coverage": coverage, "regions": len(regions - {None}), "joins": len(joins)}
        if ctx and ctx.request.plan is None:
            summary["request"] = ctx.request.changed()
        return cls(
            {**_file_of(model), "nodes": len(nodes)},
            [_backend_entry(backend, ctx) for backend in ctx.backends] if ctx else [],
            nodes,
            joins,
            edits=[edit.as_dict() for edit in ctx.round.edits] if ctx else [],
            remarks=list(ctx.remarks) if ctx else [],
            summary=summary,
            sources=lost_nodes(source, model) if source is not None else [],
            source=model.path,
            registry=ctx.plugins.registry if ctx and ctx.plugins else None,
        )

    def find(self, output: str, key: str = "") -> PlannedNode | None:
        """Return the entry with this identity, else that with this structural key, else None."""
        places: dict[str, int] = self.__dict__.get("_places", {})
        at = places.get(output, len(self.nodes))
        if at < len(self.nodes) and self.nodes[at].output == output:
            return self.nodes[at]
        by_output, by_key = self.index()
        self.__dict__["_places"] = {node.output: at for at, node in enumerate(self.nodes)}
        return by_output.get(output) or by_key.get(key)

    def named(self, name: str) -> PlannedNode:
        """Return the entry of the node with this name or output, or of the node into which this source node was folded.

        Raises:
            DovetailError: There is no such node.
        """
        for node in self.nodes:
            if name in (node.name, node.output) or name in node.origin:
                return node
        raise DovetailError(f"the plan has no node '{name}'", "plan.yaml lists all nodes")

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return {
            "version": VERSION,
            "model": self.model,
            "backends": [{key: value for key, value in entry.items() if key != "path"} for entry in self.backends],
            "nodes": [node.as_dict() for node in self.nodes],
            "joins": [join.as_dict() for join in self.joins],
            "values": self.values,
            "edits": self.edits,
            "sources": [list(node) for node in self.sources],
            "remarks": [remark.as_dict() for remark in self.remarks],
            "summary": self.summary,
        }

    @classmethod
    def load(cls, path: str | Path, registry: Registry | None = None) -> Plan:
        """Read a plan, or the plan of a saved result, with the store for the suffix of `path`.

        Args:
            path: A file that `save` wrote, or the folder of a saved result.
            registry: The registry with the stores; by default that of all installed plugins.

        Raises:
            DovetailError: The path holds no plan, or a malformed one.
        """
        from dovetail.compiler.stores import loaded

        return loaded(path, "load_plan", cls, registry)

    def save(self, path: str | Path) -> None:
        """Write the plan as YAML, or as JSON if the name ends in `.json`.

        Raises:
            DovetailError: The file cannot be written.
        """
        from dovetail.compiler.stores import store_for

        with store_for(path, "save_plan", self.registry) as store:
            store.save_plan(self, Path(path))

    def __repr__(self) -> str:
        where = ", ".join(f"{backend} {number}" for backend, number in self.summary.get("coverage", {}).items())
        return f"<Plan of {self.model.get('path') or 'a model'}: {where or pluralize(len(self.nodes), 'node')}>"

    def __str__(self) -> str:
        from dovetail.compiler.stores import store_for

        with store_for("plan", "plan_text", self.registry) as store:
            text: str = store.plan_text(self)
        return text

    def index(self) -> tuple[dict[str, PlannedNode], dict[str, PlannedNode]]:
        """Return the entries by identity and by structural key."""
        return {n.output: n for n in self.nodes}, {n.key: n for n in self.nodes if n.key}


def _backend_entry(backend: Backend, ctx: Context) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": backend.name, "strategy": ctx.strategy_of(backend)}
    entry |= ctx.plugins.provenance(backend.name) if ctx.plugins is not None else {}
    choice = next((one for one in ctx.request.backends if one.name == backend.name), None)
    options = {**(choice.observer_options if choice is not None else {}), **backend.chosen}
    if options:
        entry["options"] = options
    return entry


def _file_of(model: Model) -> dict[str, str]:
    """Return name and folder of the source model's file; the folder only if it is below the working directory."""
    if model.path is None:
        return {"path": ""}
    try:
        folder = model.path.resolve().parent.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        folder = "."
    return {"path": model.path.name, **({"folder": folder} if folder != "." else {})}


class _Node(NamedTuple):
    """The fields of a node needed here, from a proto or from a graph."""

    name: str
    domain: str
    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]


def lost_nodes(source: Model, model: Model) -> list[SourceNode]:
    """Return the nodes of `source` that `model`, compiled from it, no longer has, in the order of `source`."""
    owners: dict[str, ir.Node] = {}
    computed: dict[str, ir.Node] = {}
    constants: set[str] = set()
    for _, graph in model.graphs():
        constants.update(graph.initializers)
        for node in graph:
            for name in origin_of(node):
                owners.setdefault(name, node)
            for value in node.outputs:
                computed.setdefault(value.name or "", node)
    lost, alive = [], []
    for old in _nodes(source):
        owner = owners.get(old.name) if old.name else None
        owner = owner or next((computed[name] for name in old.outputs if name in computed), None)
        if owner is not None and owner.op_type == old.op_type:
            alive.append(old)
        else:
            lost.append((old, owner))
    if not lost:
        return []
    alive_inputs = {*source.interface()[1], *(name for old in alive for name in old.inputs)}
    functions, found = _functions(source), []
    for old, owner in lost:
        if owner is not None:
            fate = f"folded into {owner.name}"
        elif (old.domain, old.op_type) in functions:
            fate = "inlined: replaced by the nodes of the function"
        elif any(name in constants for name in old.outputs):
            fate = "folded: its result is a constant"
        elif any(name in alive_inputs for name in old.outputs):
            fate = "removed: its readers read its input instead"
        else:
            fate = "removed: nothing reads its result"
        name = old.name or "_".join([old.op_type, *old.outputs[:1]])
        found.append(SourceNode(name, operator_name(old.domain, old.op_type), fate))
    return found


def _nodes(model: Model) -> Iterator[_Node]:
    """Yield every node of the model and its bodies, without building a lazy model."""
    if model.lazy is not None:
        for node in model.lazy.nodes():
            yield _Node(node.name, node.domain, node.op_type, node.input, node.output)
        return
    for node in model.nodes():
        names = (tuple(v.name or "" for v in values if v is not None) for values in (node.inputs, node.outputs))
        yield _Node(node.name or "", node.domain, node.op_type, *names)


def _functions(model: Model) -> set[tuple[str, str]]:
    if model.lazy is not None:
        return model.lazy.functions()
    return {(function.domain, function.name) for function in model.ir.functions.values()}
