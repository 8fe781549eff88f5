"""Nodes on both sides of every limit of a backend file, generated from the file itself.

A limit is a term and a range. Extents and attributes of a sample are varied until the backend accepts a node at the
limit, and until it refuses one for this limit alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dovetail
from dovetail_schemas.backend import FileBackend

from dovetail_testing.kit.samples import NodeSample, samples_of
from dovetail_testing.running import references_of

if TYPE_CHECKING:
    import onnx
    from dovetail.plugin import PluginSet, Verdict
    from dovetail_schemas.limits import Limit
    from dovetail_schemas.rules import Row


_NUMBER = re.compile(r"-?\d+")
_LARGEST = 1 << 14  # extents that are tried
_INNER = 8  # halvings between an accepted and a refused value
_MOST_SAMPLES = 8  # from which a limit is approached

Knob = Callable[[NodeSample, int], NodeSample | None]


@dataclass
class LimitFound:
    """The findings for one limit.

    Attributes:
        operator: The operator.
        limit: The limit as text.
        source: File and line.
        kept: An accepted node, as near to the limit as possible.
        value: The value with which the limit is satisfied.
        broken: A node that is refused for this limit alone.
    """

    operator: str
    limit: str
    source: str
    kept: NodeSample | None = None
    value: int | None = None
    broken: NodeSample | None = None

    @property
    def both(self) -> bool:
        """Whether nodes on both sides were found."""
        return self.kept is not None and self.broken is not None


class LimitModels:
    """Generates nodes for the operators of one backend.

    Args:
        backend: The backend, from a file.
        plugins: The plugins with its facts.
    """

    def __init__(self, backend: FileBackend, plugins: PluginSet):
        self._backend, self._plugins = backend, plugins
        self._facts = {name: plugins.registry.fact[name] for name in backend.facts}
        self._opset = min(backend.opset[1], _newest())
        self._verdicts: dict[tuple[object, ...], Verdict | None] = {}  # limits of an operator turn the same knobs

    def operators(self) -> list[str]:
        """Return the operators of the default domain that the file supports."""
        listed = sorted({op_type for domain, op_type in self._backend.listed() if not domain})
        return [op_type for op_type in listed if op_type and self._backend.takes("", op_type)]

    def plain(self, op_type: str) -> NodeSample | None:
        """Return a sample that the backend accepts; None if there is none."""
        return next((sample for sample in self._samples(op_type) if self._accepted(sample)), None)

    def limits(self, op_type: str) -> Iterator[LimitFound]:
        """Yield, for each limit of an operator, a sample that satisfies it and one that violates it."""
        # Accepted samples come first: changing one knob of these violates one limit.
        samples = sorted(self._samples(op_type), key=lambda sample: not self._accepted(sample))[:_MOST_SAMPLES]
        for row in self._backend.rule("", op_type).rows:
            for limit in (limit for block in row.blocks for limit in block.limits):
                yield self._find(op_type, row, limit, samples)

    def judged(self, sample: NodeSample) -> Verdict | None:
        """Return the verdict about a node; None if it is not valid."""
        key = sample.key()
        if key not in self._verdicts:
            self._verdicts[key] = self._judged(sample)
        return self._verdicts[key]

    def _judged(self, sample: NodeSample) -> Verdict | None:
        proto = sample.proto()
        if proto is None:
            return None
        model = dovetail.open(proto, self._plugins)
        (node,) = model.graph
        return self._backend.judge(model.ir.opset_imports, self._facts)(node)

    def _accepted(self, sample: NodeSample) -> bool:
        verdict = self.judged(sample)
        return verdict is not None and verdict.ok is not False

    def _samples(self, op_type: str) -> Sequence[NodeSample]:
        return samples_of(op_type, self._opset, self._plugins)

    def _find(self, op_type: str, row: Row, limit: Limit, samples: Sequence[NodeSample]) -> LimitFound:
        found = LimitFound(op_type, str(limit), limit.source)
        edges = {int(number) + step for number in _NUMBER.findall(limit.range.text) for step in (-1, 0, 1)}
        for sample in (sample for sample in samples if found.kept is None or found.broken is None):
            for knob in _knobs(sample, row, limit):
                self._turn(found, knob, sample, limit, sorted(edges))
                if found.both:
                    break
        return found

    def _turn(self, found: LimitFound, knob: Knob, sample: NodeSample, limit: Limit, edges: list[int]) -> None:
        """Turn a knob to the ends of the range; where they are not values of the knob, search for them."""
        kept: dict[int, NodeSample] = {}
        broken: dict[int, NodeSample] = {}

        def look(value: int) -> bool | None:
            turned = knob(sample, value)
            verdict = self.judged(turned) if turned is not None else None
            if turned is None or verdict is None:
                return None
            if verdict.ok is not False:
                kept[value] = turned
                return True
            if {(reason.source, reason.facts.get("term")) for reason in verdict.reasons} == {
                (limit.source, limit.term.text)
            }:
                broken[value] = turned
                return False
            return None

        for value in edges:
            look(value)
        if not (kept and broken):
            for power in range(_LARGEST.bit_length()):
                if look(1 << power) is False and kept:
                    break
        if kept and broken:
            low, high = _nearest(kept, broken)
            for _ in range(_INNER):
                if abs(high - low) <= 1:
                    break
                middle = (low + high) // 2
                answer = look(middle)
                low, high = (middle, high) if answer is True else (low, middle)
            while kept:
                low, high = _nearest(kept, broken)
                if _is_computed(kept[low]):
                    found.kept, found.value, found.broken = kept[low], low, broken[high]
                    return
                del kept[low]
        if found.kept is None:
            computed = (value for value in sorted(kept, reverse=True) if _is_computed(kept[value]))
            if (last := next(computed, None)) is not None:
                found.value, found.kept = last, kept[last]
        if broken and found.broken is None:
            found.broken = broken[min(broken)]


def _is_computed(sample: NodeSample) -> bool:
    """Check whether a reference computes a node: onnx's checker does not compare constants with the extents of data."""
    proto = sample.proto()
    for reference in references_of(proto) if proto is not None else ():
        with suppress(Exception):  # references raise exceptions of various types
            reference.run(sample.feeds)
            return True
    return False


def _nearest(kept: dict[int, NodeSample], broken: dict[int, NodeSample]) -> tuple[int, int]:
    return min(((k, b) for k in kept for b in broken), key=lambda pair: abs(pair[0] - pair[1]))


def _knobs(sample: NodeSample, row: Row, limit: Limit) -> Iterator[Knob]:
    """Yield the knobs that may affect a limit: extents and attributes that its names stand for, then every extent.

    Extents alone do not change an attribute, a rank, or whether an input is a constant.
    """
    import onnx

    schema = onnx.defs.get_schema(sample.op_type, sample.opset)
    ports = {formal.name: index for index, formal in enumerate(schema.inputs)}
    for name in limit.names:
        port, _, fact = name.partition(".")
        if fact == "rank" and port in ports and ports[port] < len(sample.inputs):
            yield lambda held, value, index=ports[port]: held.with_rank(index, value) if 0 <= value < 8 else None  # type: ignore[misc]
        elif fact == "constant" and port in ports and ports[port] < len(sample.inputs):
            yield lambda held, value, index=ports[port]: held.with_constant(index, bool(value % 2))  # type: ignore[misc]
        elif name in schema.attributes:
            yield from attribute_knobs(schema, sample, name)
        for pattern in row.patterns:
            if name in pattern.tokens:
                place = pattern.tokens.index(name)
                if pattern.target in ports and ports[pattern.target] < len(sample.inputs):
                    array = sample.inputs[ports[pattern.target]]
                    axis = place + (array.ndim - len(pattern.tokens) if array is not None and pattern.open else 0)
                    yield from extent_knobs(sample, ports[pattern.target], axis)
                elif pattern.target in schema.attributes:
                    yield from attribute_knobs(schema, sample, pattern.target, place)
    of_inputs = {f"{name}.{fact}" for name in ports for fact in ("constant", "rank")}
    if of_inputs.union(schema.attributes).issuperset(limit.names):
        return
    for index, shape in sample.floats():
        for axis in range(len(shape)):
            yield from extent_knobs(sample, index, axis)


def extent_knobs(sample: NodeSample, index: int, axis: int) -> Iterator[Knob]:
    """Yield knobs for an extent: alone, and with the equal extents of other inputs."""
    shapes = dict(sample.floats())
    if index not in shapes or not 0 <= axis < len(shapes[index]):
        return
    extent = shapes[index][axis]
    equal = [(at, number) for at, shape in shapes.items() for number, each in enumerate(shape) if each == extent]
    others = [place for place in equal if place[0] != index]
    same_axis = [place for place in others if place[1] == axis]
    for tied in ([], others, same_axis, equal):
        places = [(index, axis), *tied]
        yield lambda held, value, places=places: held.with_extents(dict.fromkeys(places, value))  # type: ignore[misc]


def attribute_knobs(
    schema: onnx.defs.OpSchema, sample: NodeSample, name: str, place: int | None = None
) -> Iterator[Knob]:
    """Yield a knob for an attribute of numbers: for one element of a list, or for all of them."""
    import onnx

    kind = schema.attributes[name].type
    if kind == onnx.defs.OpSchema.AttrType.FLOAT:
        yield lambda held, value: held.with_attribute(name, float(value))
    if kind == onnx.defs.OpSchema.AttrType.INT:
        yield lambda held, value: held.with_attribute(name, value)
    elif kind == onnx.defs.OpSchema.AttrType.INTS:
        spatial = max((len(shape) - 2 for _, shape in sample.floats()), default=0)
        length = len(sample.attributes.get(name, ())) or (2 * spatial if name == "pads" else spatial)
        before = list(sample.attributes.get(name, ())) or [1] * length
        if place is not None and place < len(before):
            yield lambda held, value: held.with_attribute(name, [*before[:place], value, *before[place + 1 :]])
        elif length:
            yield lambda held, value: held.with_attribute(name, [value] * length)


def _newest() -> int:
    import onnx

    return int(onnx.defs.onnx_opset_version())
