"""Values that one scale joins although their ranges differ: what is left of the smaller one's steps, as a note.

`same_scale` of a backend file gives a Concat and its inputs one scale, that of all their numbers. An input whose
numbers are a hundredth of the others' has two steps of 8 bits then, which costs more accuracy than any other choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from dovetail.ir import name_of

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
    """Remark on each value that its shared scale leaves few steps, at the node that joins it, and note how many."""
    narrow: list[tuple[float, str]] = []
    for group, parameters in groups:
        names = {name_of(one.value) for one in group}
        seen = {name: one for name, one in known.ranges.get(group[0].name, {}).items() if name in names}
        if len(parameters.scale) != 1 or len(seen) < 2:
            continue
        widest = max(seen, key=lambda name: seen[name].largest)
        for name, ranged in seen.items():
            steps = ranged.largest / parameters.scale[0]
            if 0 < steps < _FEW_STEPS:
                narrow.append((steps, _remark(group, name, widest, seen, steps, ctx)))
    if narrow:
        texts = [text for _, text in sorted(narrow)]
        more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
        have = "1 value has" if len(texts) == 1 else f"{len(texts)} values have"
        why = f"{have} few steps because much larger ones share the scale: {'; '.join(texts[:_NAMED])}{more}"
        ctx.remark("analysis", "", "shared-scales", why, suggest=_WAY_OUT)


_WAY_OUT = "`same_scale: free` or `false` in the backend's file lets an input keep its own scale, or --high NODE"


def _remark(
    group: list[QuantizedForm], name: str, widest: str, seen: dict[str, Ranged], steps: float, ctx: Context
) -> str:
    """Remark on a value at the node that joins it with the widest one; return the short form of the text."""
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
    return short
