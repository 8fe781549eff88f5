"""Plans: the decisions about a model and their reasons, as data to save, edit and replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.planning.conversion import Join
from dovetail.planning.node_keys import operator_name
from dovetail.planning.placement import HOST, Placement
from dovetail.planning.remark import Remark
from dovetail.planning.request import STRATEGY, BackendChoice, Request
from dovetail.text import html_table, pluralize

if TYPE_CHECKING:
    from dovetail.ir.formats import Format


_ROWS = 40  # nodes in the table of a notebook
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


@dataclass(frozen=True, slots=True)
class PlannedBackend:
    """A backend of a plan, and where it came from.

    Attributes:
        name: Its name.
        strategy: The strategy that claimed nodes for it.
        distribution: The distribution that provides it, with its version; or the name of a backend file.
        contract: Version of the plugin contract of that distribution.
        sha256: Digest of a backend file.
        options: Its options as text.
        path: The backend file on this machine; not saved.
    """

    name: str
    strategy: str = ""
    distribution: str = ""
    contract: int | None = None
    sha256: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    path: str = ""

    @property
    def choice(self) -> BackendChoice:
        """The backend with its options, as in a request."""
        return BackendChoice(self.name, dict(self.options))

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as saved, without fields at their defaults."""
        return {key: value for key in list(self.__dataclass_fields__)[:-1] if (value := getattr(self, key))}


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
        backends: The backends, in order of preference.
        nodes: The planned nodes in graph order; nodes in bodies by path.
        sources: Nodes of the source model that were folded, removed or inlined.
        joins: The conversions that the placements imply.
        values: The quantized values and their parameters, by value name.
        edits: The edits that were applied; see `dovetail.planning.edits.Edit`.
        remarks: The reasons.
        summary: Coverage, regions, joins, and what passes and options record.
        request: The request, without data in memory; None for the plan of a replay, or of a model without a request.
        files: Files that belong to the plan, by name; `files` in `summary` has the SHA-256 of each.
        source: The file of the source model, hashed when the plan is saved; None if there is none.
        registry: The registry whose stores write it; None for that of all installed plugins.
        notes: Notes for the user from options that examined the plan, one line each; not saved.
    """

    model: dict[str, Any] = field(default_factory=dict)
    backends: list[PlannedBackend] = field(default_factory=list)
    nodes: list[PlannedNode] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    edits: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    sources: list[SourceNode] = field(default_factory=list)
    request: Request | None = None
    files: Mapping[str, Path] = field(default_factory=dict, repr=False, compare=False)
    source: Path | None = field(default=None, repr=False, compare=False)
    registry: Any = field(default=None, repr=False, compare=False)
    notes: list[str] = field(default_factory=list, repr=False, compare=False)

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
            "backends": [backend.as_dict() for backend in self.backends],
            "nodes": [node.as_dict() for node in self.nodes],
            "joins": [join.as_dict() for join in self.joins],
            "values": self.values,
            "edits": self.edits,
            "sources": [list(node) for node in self.sources],
            "remarks": [remark.as_dict() for remark in self.remarks],
            "summary": self.summary_document(),
        }

    def summary_document(self) -> dict[str, Any]:
        """Return the summary as saved, with the request after coverage, regions and joins."""
        entries = list(self.summary.items())
        if self.request is not None:
            entries.insert(3, ("request", self.request.changed()))
        return dict(entries)

    def asked(self) -> Request:
        """Return the request that it was made for; if that is unknown, one for its backends and their strategies."""
        if self.request is not None:
            return self.request
        return Request(tuple(
            BackendChoice(one.name, {**one.options, **({STRATEGY: one.strategy} if one.strategy else {})})
            for one in self.backends
        ))  # fmt: skip

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan, or the plan of a saved result; the same as `dovetail.load_plan(path)`.

        Args:
            path: A file that `save` wrote, or the folder of a saved result.

        Raises:
            DovetailError: The path holds no plan, or a malformed one.
        """
        import dovetail

        return dovetail.load_plan(path)

    def save(self, path: str | Path) -> None:
        """Write the plan as YAML, or as JSON if the name ends in `.json`; the same as `dovetail.save(plan, path)`.

        Raises:
            DovetailError: The file cannot be written.
        """
        import dovetail

        dovetail.save(self, path)

    def __repr__(self) -> str:
        conversions = pluralize(len(self.joins), "conversion")
        return f"<Plan of {self.model.get('path') or 'a model'}: {coverage_line(self.nodes)}; {conversions}>"

    def _repr_html_(self) -> str:
        """Return the first nodes as a table, and the coverage, for notebooks."""
        rows, more = self.rows()[:_ROWS], len(self.nodes) - _ROWS
        left = f"and {pluralize(more, 'more node')}: `to_dataframe()` has all" if more > 0 else ""
        return html_table(rows, left, coverage_line(self.nodes, precisions=True))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each node: name, operator, backend, precision, region, and the reason that it is there."""
        why = {remark.node: remark.why for remark in reversed(self.remarks) if remark.node}
        return [
            {"name": node.name or node.output, "operator": node.operator, "backend": node.backend,
             "precision": str(node.precision or ""), "region": node.region, "why": why.get(node.name, "")}
            for node in self.nodes
        ]  # fmt: skip

    def to_dataframe(self) -> Any:
        """Return the rows of `rows` as a `pandas.DataFrame`.

        Raises:
            DovetailError: pandas is not installed.
        """
        try:
            from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]
        except ImportError as error:
            raise DovetailError(
                "a data frame needs pandas", "pip install 'dovetail-core[tables]'; `rows()` needs nothing"
            ) from error
        return DataFrame(self.rows())

    def __str__(self) -> str:
        import dovetail

        return dovetail.plan_text(self)

    def index(self) -> tuple[dict[str, PlannedNode], dict[str, PlannedNode]]:
        """Return the entries by identity and by structural key."""
        return {n.output: n for n in self.nodes}, {n.key: n for n in self.nodes if n.key}


def coverage_line(nodes: Sequence[PlannedNode | Placement], precisions: bool = False) -> str:
    """Return the number of nodes of each backend: `cpu-bf16 96/104 nodes in 2 regions, host 8`; the host is last.

    Args:
        nodes: The nodes to count, or where they are placed.
        precisions: Whether to add how many nodes have which precision: `host 8 (float32 6, no float 2)`.
    """
    placed: dict[str, list[PlannedNode | Placement]] = {}
    for node in nodes:
        placed.setdefault(node.backend, []).append(node)
    parts = []
    for backend, own in sorted(placed.items(), key=lambda item: (item[0] == HOST, -len(item[1]))):
        regions = pluralize(len({node.region for node in own} - {None}), "region")
        whole = "" if backend == HOST else f"/{pluralize(len(nodes), 'node')} in {regions}"
        kinds = Counter(str(node.precision or "no float") for node in own).most_common()
        types = f" ({', '.join(f'{kind} {number}' for kind, number in kinds)})" if precisions else ""
        parts.append(f"{backend} {len(own)}{whole}{types}")
    return ", ".join(parts) or "no nodes"
