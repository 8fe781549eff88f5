"""Values that one scale joins although their ranges differ: what is left of the smaller one's steps, as a note.

`same_scale` of a backend file gives a Concat and its inputs one scale, that of all their numbers. An input whose
numbers are a hundredth of the others' has two steps of 8 bits then, which costs more accuracy than any other choice.
Where the backend does not demand that (`same_scale: free`), and nothing on it computes from the result, the node goes
to the following backends, in floats: boxes and scores of a detector are then joined as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.ir import name_of
from dovetail.planning import placement_of
from dovetail_placement.place import claim_on
from dovetail_placement.source_scales import weight_of
from dovetail_precision.sharing_groups import FREE

from dovetail_quantize.integers import integer_bounds

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Format
    from dovetail.passes import Context
    from dovetail.planning import Parameters
    from dovetail_precision.sharing_groups import QuantizedForm

    from dovetail_quantize.observing import Watcher
    from dovetail_quantize.parameters import KnownParameters

_FEW_STEPS = 8  # three bits; a value of its own scale has 127 and more
_NAMED = 3


class Ranged:
    """A watcher that notes the largest magnitude of one value, and passes its numbers on.

    Attributes:
        largest: The largest magnitude seen so far; 0 before any.
    """

    def __init__(self, watcher: Watcher):
        self._watcher, self.largest = watcher, 0.0
        self.extrema = self._extrema if watcher.extrema is not None else None

    @property
    def format(self) -> Format:
        """The format of the value."""
        return self._watcher.format

    def update(self, array: Any) -> None:
        """Pass the numbers of one batch on."""
        self._see(np.min(array, initial=0.0), np.max(array, initial=0.0))
        self._watcher.update(array)

    def _extrema(self, low: Any, high: Any) -> None:
        self._see(np.min(low, initial=0.0), np.max(high, initial=0.0))
        pass_on: Callable[[Any, Any], None] | None = self._watcher.extrema
        if pass_on is not None:
            pass_on(low, high)

    def _see(self, low: float, high: float) -> None:
        self.largest = max(self.largest, abs(float(low)), abs(float(high)))


class _Extrema:
    """A watcher that keeps nothing of the numbers, for a value whose scale others decide."""

    def __init__(self, format_: Format):
        self.format = format_

    def update(self, array: Any) -> None:
        """Keep nothing."""

    def extrema(self, low: Any, high: Any) -> None:
        """Keep nothing."""


def followers(group: list[QuantizedForm], known: KnownParameters) -> Iterator[tuple[ir.Value, Watcher]]:
    """Yield the values that have the scale of a node's result although it need not be (`free`), each with a watcher."""
    seen = {id(one.value) for one in group if not one.follows}
    for one in group:
        known_before = id(one.value) in seen or weight_of(one.value) is not None
        if known_before or not any(_is_free(use.node) for use in one.uses):
            continue
        seen.add(id(one.value))
        yield one.value, with_range(group, one.value, _Extrema(one.format), known)


def _is_free(node: ir.Node) -> bool:
    claim = claim_on(node)
    return claim is not None and any(rule.same_scale == FREE for rule in claim.rules.values())


def with_range(group: list[QuantizedForm], value: ir.Value, watcher: Watcher, known: KnownParameters) -> Watcher:
    """Return a watcher of a value that notes its range, too, if the value shares its scale with others."""
    if len({id(one.value) for one in group}) < 2:
        return watcher
    ranged = Ranged(watcher)
    known.ranges.setdefault(group[0].name, {})[name_of(value)] = ranged
    return ranged


def remark_narrow_values(
    groups: Iterable[tuple[list[QuantizedForm], Parameters]], known: KnownParameters, ctx: Context
) -> None:
    """Remark on each value that its shared scale leaves few steps, at the node that joins it, and note how many.

    A node that joins such values at the end of its backend's part is refused; see the module.
    """
    narrow: list[tuple[float, str]] = []
    left: dict[ir.Node, str] = {}
    for group, parameters in groups:
        names = {name_of(one.value) for one in group}
        seen = {name: one for name, one in known.ranges.get(group[0].name, {}).items() if name in names}
        if len(parameters.scale) != 1 or len(seen) < 2:
            continue
        widest = max(seen, key=lambda name: seen[name].largest)
        for name, ranged in seen.items():
            steps = ranged.largest / parameters.scale[0]
            if 0 < steps < _FEW_STEPS:
                node, text = _remark(group, name, widest, seen, steps, ctx)
                narrow.append((steps, text))
                left |= dict.fromkeys(_at_the_end(node, group), text)
    for node, text in left.items():
        why = f"{text}: one scale would leave few steps, and nothing on this backend computes from the result"
        ctx.refuse(node, placement_of(node).backend, why, rule="shared-scale")
    if narrow:
        texts = [text for _, text in sorted(narrow)]
        more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
        have = "1 value has" if len(texts) == 1 else f"{len(texts)} values have"
        why = f"{have} few steps because much larger ones share the scale: {'; '.join(texts[:_NAMED])}{more}"
        ctx.remark("analysis", "", "shared-scales", why, suggest=_WAY_OUT)


def _at_the_end(node: ir.Node, group: list[QuantizedForm]) -> list[ir.Node]:
    """Return a node that joins values, and those that move its result, if that leaves the backend; else nothing."""
    claim = claim_on(node)
    if claim is None or not _is_free(node) or claim.role == "pinned":
        return []
    backend, moved = placement_of(node).backend, {id(one.value) for one in group}
    found, waiting = {node: None}, [node]
    while waiting:
        for value in waiting.pop().outputs:
            for reader, _ in value.uses():
                if placement_of(reader).backend != backend or reader in found:
                    continue
                if not all(id(output) in moved for output in reader.outputs):
                    return []
                found[reader] = None
                waiting.append(reader)
    return list(found)


_WAY_OUT = "`same_scale: free` or `false` in the backend's file lets an input keep its own scale, or --high NODE"


def _remark(
    group: list[QuantizedForm], name: str, widest: str, seen: dict[str, Ranged], steps: float, ctx: Context
) -> tuple[ir.Node, str]:
    """Remark on a value at the node that joins it with the widest one; return that node, and a short text."""
    forms = {name_of(one.value): one for one in group}
    users = {wanted: {id(use.node): use.node for use in forms[wanted].uses} for wanted in (name, widest)}
    both = [node for key, node in users[name].items() if key in users[widest]]
    node = (both or [use.node for use in forms[name].uses])[0]
    levels = integer_bounds(forms[name].format)[1]
    short = (
        f"'{name}' up to {seen[name].largest:.3g} beside '{widest}' up to {seen[widest].largest:.3g} at '{node.name}'"
    )
    why = f"{short}: they share one scale, which leaves it {steps:.1f} of {levels} steps"
    ctx.remark("analysis", node, "shared-scale", why, suggest=_WAY_OUT)
    return node, short
