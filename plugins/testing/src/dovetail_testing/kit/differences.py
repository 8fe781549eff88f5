"""Differences between two backends, or between two plans of one model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dovetail
from dovetail.errors import UsageError
from dovetail.passes import BackendChoice
from dovetail.planning import OF_PROGRAMS, Plan, operator_name
from dovetail.plugin.loading import load_backend_file, load_chosen, names_file
from dovetail_schemas.backend import FileBackend

if TYPE_CHECKING:
    from dovetail.planning import PlannedNode
    from dovetail.plugin import PluginSet
    from dovetail_schemas.rules import Row, Rule
    from dovetail_schemas.type_specs import PortTypes, TypeSpec


_SAME = 1e-4  # relative


class SideDifference(NamedTuple):
    """One difference.

    Attributes:
        what: The key of a backend, an operator, a node or a value.
        part: The part of it: `types`, `backend`, `scale`.
        first: Its state on the first side; empty if it is absent there.
        second: Its state on the second side.
    """

    what: str
    part: str
    first: str
    second: str


def differences(first: str, second: str, plugins: PluginSet) -> tuple[str, list[SideDifference]]:
    """Compare two backends, plans or results.

    Args:
        first: A backend, the file of one, a plan, or the folder of a result.
        second: The same.
        plugins: The plugins.

    Returns:
        `backends` or `plans`, and the differences.

    Raises:
        UsageError: One side is a backend and the other a plan.
        DovetailError: One of them cannot be read.
    """
    kinds = [_is_plan(text) for text in (first, second)]
    if kinds[0] != kinds[1]:
        plan, backend = (first, second) if kinds[0] else (second, first)
        raise UsageError(f"{plan} is a plan, and {backend} a backend", "name two of one kind")
    if kinds[0]:
        plans = [dovetail.load_plan(text, plugins) for text in (first, second)]
        return "plans", list(_of_plans(*plans))
    return "backends", list(_of_backends(*(_loaded(text, plugins) for text in (first, second))))


def _is_plan(text: str) -> bool:
    path = Path(text)
    if path.is_dir():
        return True
    return path.is_file() and (path.suffix == ".json" or "\nbackend:" not in f"\n{_beginning(path)}")


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(1 << 16).decode("utf-8", "replace")


def _loaded(text: str, plugins: PluginSet) -> Any:
    """Load a backend. A file is not registered: both sides may be versions of one backend."""
    if not names_file(text):
        return load_chosen(plugins.registry, BackendChoice.parse(text))
    path = Path(text)
    if not path.is_file():
        raise UsageError(f"there is no backend file {text}", "name a file, or a backend that is installed")
    return load_backend_file(plugins.registry, path, {})


_KEYS = ("summary", "device", "low", "high", "accumulate", "opset", "dynamic", "integers", "options", "region",
         "border", "refine", "strategy", "regions", "engines", "artifacts", "arithmetic")  # fmt: skip


def _of_backends(first: Any, second: Any) -> Iterator[SideDifference]:
    """Yield what differs: keys of the file, then operators."""
    if not (isinstance(first, FileBackend) and isinstance(second, FileBackend)):
        raise UsageError("backends that are Python classes have no tables to compare", "name backends with a file")
    for key in _KEYS:
        yield from _changed(key, "", str(getattr(first, key)), str(getattr(second, key)))
    operators = sorted({*first.listed(), *second.listed()})
    for domain, op_type in operators:
        ours, theirs = (_described(backend.rule(domain, op_type)) for backend in (first, second))
        for part in dict.fromkeys((*ours, *theirs)):
            label = operator_name(domain, op_type) or "unlisted"
            yield from _changed(label, part, ours.get(part, ""), theirs.get(part, ""))


def _changed(what: str, part: str, first: str, second: str) -> Iterator[SideDifference]:
    if first != second:
        yield SideDifference(what, part, first, second)


def _described(rule: Rule) -> dict[str, str]:
    """Return the parts of a rule as text."""
    if rule.status != "ok":
        return {"support": rule.status}
    parts = {
        "support": "yes",
        "types": _types(rule.types),
        "policy": rule.policy,
        "role": rule.role,
        "keep": ", ".join(sorted(rule.keep)),
        "set": ", ".join(f"{name}: {value}" for name, value in sorted(rule.set.items())),
        "same_scale": rule.sharing.same_scale,
        "fuses": ", ".join(rule.sharing.fuses),
    }
    for number, row in enumerate(rule.rows):
        prefix = f"row {number + 1} " if len(rule.rows) > 1 else ""
        parts |= {f"{prefix}{part}": text for part, text in _row(row).items()}
    return parts


def _row(row: Row) -> dict[str, str]:
    limits = [
        f"{limit}{f' (when {block.when})' if block.when.limits else ''}"
        for block in row.blocks
        for limit in block.limits
    ]
    return {
        "when": str(row.when),
        "shape": ", ".join(map(str, row.patterns)),
        "limits": ", ".join(limits),
        "row types": _types(row.types),
        "row policy": row.policy,
    }


def _types(types: PortTypes | None) -> str:
    if types is None:
        return ""
    ports: Mapping[str, tuple[TypeSpec, ...] | None] = {"": types.common, **types.ports}
    return ", ".join(
        f"{port}: {_specs(specs)}" if port else _specs(specs) for port, specs in ports.items() if specs is not None
    )


def _specs(specs: tuple[TypeSpec, ...]) -> str:
    return " or ".join(
        "/".join(spec.dtype) + (f" ({', '.join(filter(None, (spec.scheme, spec.granularity, spec.scale)))})"
                                if spec.quantized else "")
        for spec in specs
    )  # fmt: skip


def _of_plans(first: Plan, second: Plan) -> Iterator[SideDifference]:
    """Yield what differs: backends, nodes, programs, scales, reasons. Nodes are found by output, or by structure."""
    for part in ("name", "strategy", "distribution"):
        ours, theirs = (", ".join(one.as_dict().get(part, "") for one in plan.backends) for plan in (first, second))
        yield from _changed("backends", part, ours, theirs)
    seen = set()
    for node in first.nodes:
        other = second.find(node.output, node.key)
        if other is None:
            yield SideDifference(node.name, "node", f"{node.operator} on {node.backend}", "")
            continue
        seen.add(other.output)
        yield from _changed(node.name, "backend", node.backend, other.backend)
        yield from _changed(node.name, "precision", str(node.precision or ""), str(other.precision or ""))
        for port in sorted({*node.ports, *other.ports}):
            ours, theirs = (str(held.ports.get(port, "")) for held in (node, other))
            yield from _changed(node.name, port, ours, theirs)
    for node in second.nodes:
        if node.output not in seen:
            yield SideDifference(node.name, "node", "", f"{node.operator} on {node.backend}")
    yield from _reported(first, second)
    for part in ("regions", "joins"):
        yield from _changed("plan", part, str(first.summary.get(part, "")), str(second.summary.get(part, "")))
    ours, theirs = (", ".join(map(str, plan.edits)) for plan in (first, second))
    yield from _changed("plan", "edits", ours, theirs)
    for value in dict.fromkeys((*first.values, *second.values)):
        held, other = first.values.get(value), second.values.get(value)
        if not _alike(held, other):
            yield SideDifference(value, "scale", str(held or ""), str(other or ""))
    reasons = [_reasons(plan) for plan in (first, second)]
    for name in dict.fromkeys((*reasons[0], *reasons[1])):
        ours, theirs = (", ".join(sorted(one.get(name, set()))) for one in reasons)
        yield from _changed(name or "model", "reasons", ours, theirs)


def _reported(first: Plan, second: Plan) -> Iterator[SideDifference]:
    """Yield what tools and engines report otherwise of a program, such as its cycles, at a node of its region."""
    ours, theirs = _facts(first), _facts(second)
    for node, facts in ours.values():
        other = second.find(node.output, node.key)
        _, others = theirs.pop(-1 if other is None or other.region is None else other.region, (node, {}))
        for name in dict.fromkeys((*facts, *others)):
            if not _alike(facts.get(name), others.get(name)):
                yield SideDifference(node.name, f"reported {name}", *_texts(name, facts, others))
    for node, facts in theirs.values():
        for name in facts:
            yield SideDifference(node.name, f"reported {name}", *_texts(name, {}, facts))


def _texts(name: str, *sides: Mapping[str, object]) -> Iterator[str]:
    return (str(facts.get(name, "")) for facts in sides)


def _facts(plan: Plan) -> dict[int, tuple[PlannedNode, dict[str, object]]]:
    """Return a node of each region that something is reported of, and all of that, by the number of the region."""
    nodes = {node.name: node for node in plan.nodes}
    found: dict[int, tuple[PlannedNode, dict[str, object]]] = {}
    for remark in plan.remarks:
        node = nodes.get(remark.node) if remark.rule in OF_PROGRAMS else None
        if node is not None and node.region is not None:
            found.setdefault(node.region, (node, {}))[1].update(remark.facts)
    return found


def _reasons(plan: Plan) -> dict[str, set[str]]:
    """Return the rules of the remarks by node; their texts have figures, which differ in the last digits."""
    found: dict[str, set[str]] = {}
    for remark in plan.remarks:
        found.setdefault(remark.node, set()).add(f"{remark.rule} ({remark.kind})")
    return found


def _alike(one: object, other: object) -> bool:
    """Check whether plain data is equal, but for float32 sums in another order in the numbers that follow from them."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_SAME)
    return one == other
