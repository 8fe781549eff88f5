"""What is observed of a node on an engine: its names in terms of backend files, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import dovetail
from dovetail_onnx.signatures import signature
from dovetail_schemas.node_view import NodeView, extents_of
from dovetail_schemas.operators import dtype_name, known_names
from dovetail_schemas.terms import Absent, Unknown

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
    from dovetail.plugin import Backend, Fact, PluginSet


UNKNOWN = object()
"""The value of a name that is known only at run time; a limit on it refuses the node."""

_LONGEST_LIST = 16  # elements of constants that limits may name
_EXTENTS = 2  # extents of an input that get a name, from the last one


@dataclass(frozen=True)
class NodeNames:
    """The names of one node that limits can use, with their values.

    Attributes:
        values: The value of each name: a number, a text, a Boolean, a tuple of these, or `UNKNOWN`. Names that the node
            does not have are left out.
        extents: The last extents of each input by port, the last one first; None for one that is not known.
        types: The element type of each type parameter of the operator, and of each port without one of its own.
        ports: The parameter of each port.
        is_open: Whether an extent of an input is known only at run time.
        is_empty: Whether an extent of an input is 0.
        refusal: Why the backend that is compared refuses the node; empty if it accepts it, None if none is compared.
    """

    values: Mapping[str, Any]
    extents: Mapping[str, tuple[int | None, ...]]
    types: Mapping[str, str]
    ports: Mapping[str, str]
    is_open: bool = False
    is_empty: bool = False
    refusal: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a node went.

    Attributes:
        stage: `load` or `run` where the engine refused it or failed, `end` where its process ended, else `done`.
        reason: The reason why it failed.
        exact: Whether all results equal the reference's.
        share: The largest difference relative to the largest magnitude of its output.
        broken: Why results cannot be compared.
        types: The element types of the results.
        valid: Whether a reference computes the node; other nodes say nothing about the engine.
    """

    stage: str
    reason: str = ""
    exact: bool = False
    share: float = 0.0
    broken: str = ""
    types: tuple[str, ...] = ()
    valid: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"types": list(self.types)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcome:
        """Return the outcome of `as_dict`."""
        return cls(**{**data, "types": tuple(data["types"])})


@dataclass(frozen=True)
class Observation:
    """A node that was tried.

    Attributes:
        label: Where it comes from: the test, and what was changed.
        names: Its names.
        outcome: How it went.
        right: Whether the engine computes it, as exactly as it computes others of its precision.
        weight: Relative weight in the verdict of its operator; nodes of tests weigh more than variations.
    """

    label: str
    names: NodeNames
    outcome: Outcome
    right: bool
    weight: int = 1


@dataclass
class NodeReader:
    """Reads the names of nodes.

    Attributes:
        plugins: The plugins.
        facts: The facts that limits may use, by name.
        against: A backend whose file is compared with what is measured.
    """

    plugins: PluginSet
    facts: Mapping[str, Fact] = field(default_factory=dict)
    against: Backend | None = None

    def names_of(self, proto: onnx.ModelProto) -> NodeNames | None:
        """Return the names of the node of a model; None if Dovetail does not read the model."""
        from dovetail.errors import DovetailError

        try:
            model = dovetail.open(proto, self.plugins)
        except DovetailError:
            return None
        nodes = list(model.graph)
        if len(nodes) != 1:
            return None
        node, opsets = nodes[0], model.ir.opset_imports
        view = NodeView(node, opsets, {}, self.facts)
        values = {name: value for name in self._listed(view) if (value := _plain(view, name)) is not None}
        inputs = {name: value for name, value in _ports(view).items() if value in node.inputs}
        extents = {name: _last(value) for name, value in inputs.items()}
        types, ports = _types(view)
        is_open = any(None in extent for extent in extents.values())
        is_empty = any(0 in (extents_of(value) or ()) for value in inputs.values())
        extents = {name: each for name, each in extents.items() if each}
        return NodeNames(values, extents, types, ports, is_open, is_empty, self._refusal(node, opsets))

    def _refusal(self, node: ir.Node, opsets: Mapping[str, int]) -> str | None:
        if self.against is None:
            return None
        registry = self.plugins.registry
        verdict = self.against.judge(opsets, {name: registry.fact[name] for name in self.against.facts})(node)
        if verdict.ok is not False:
            return ""
        reasons = (f"{each.text} [{each.source}]" if each.source else each.text for each in verdict.reasons)
        return next(iter(reasons), "refused")

    def _listed(self, view: NodeView) -> list[str]:
        known = known_names(view.node.domain, view.op_type)
        attributes = sorted(known.attributes) if known else []
        found = ["version", "outputs", *self.facts, *attributes]
        for name, value in _ports(view).items():
            found.append(f"{name}.rank")
            if value in view.node.inputs:
                found.append(f"{name}.constant")
                if dtype_name(value) in ("int64", "int32") and len(extents_of(value) or ()) <= 1:
                    found.append(name)  # an extent, an axis or a position
        return list(dict.fromkeys(found))


def _ports(view: NodeView) -> dict[str, ir.Value]:
    """Return the values of a node by the names of backend files, without those that are left out."""
    sig = view.signature
    from dovetail_onnx.signatures import input_name, output_name

    found = {input_name(at, sig): value for at, value in enumerate(view.node.inputs) if value is not None}
    found |= {output_name(at, sig): value for at, value in enumerate(view.node.outputs) if value.name}
    return found


def _types(view: NodeView) -> tuple[dict[str, str], dict[str, str]]:
    sig = signature(view.node, view.opsets)
    types: dict[str, str] = {}
    ports: dict[str, str] = {}
    if sig is None:
        return types, ports
    for kind, values in ((sig.input, view.node.inputs), (sig.output, view.node.outputs)):
        for index, value in enumerate(values):
            formal = kind(index)
            if value is None or not value.name or formal is None or not (dtype := dtype_name(value)):
                continue
            if len(formal.dtypes) > 1 or dtype == "string":  # which a file takes only where it is listed
                types.setdefault(formal.parameter, dtype)
                ports[formal.name] = formal.parameter
    return types, ports


def _last(value: ir.Value) -> tuple[int | None, ...]:
    extents = extents_of(value) or []
    return tuple(each if isinstance(each, int) else None for each in reversed(extents))[:_EXTENTS]


def _plain(view: NodeView, name: str) -> Any:
    """Return the value of a name; None if the node does not have it, or if it is nothing that limits name."""
    try:
        value = view[name]
    except Exception:  # a fact that is meant for other operators
        return None
    if isinstance(value, Absent):
        return None
    if isinstance(value, Unknown):
        return UNKNOWN
    if isinstance(value, tuple):
        return value if len(value) <= _LONGEST_LIST else UNKNOWN
    return value if isinstance(value, (bool, int, float, str)) else None
