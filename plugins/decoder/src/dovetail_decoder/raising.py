"""Tighter goals for parts without token scores, such as encoders, if the whole model misses a goal over tokens.

Goals over the next token are checked where its scores are: in the decoder, which meets them on the outputs of the
source's encoder. If the whole misses one, the outputs of the other parts are not close enough to the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dovetail.errors import ResultError

if TYPE_CHECKING:
    from dovetail.plugin import CompiledModel

    from dovetail_decoder.compiled_generator import CompiledGenerator

_STEPS = (30.0, 45.0, 60.0, 90.0)
"""Goals for the outputs of these parts, as signal-to-noise ratios in dB, tried one after the other."""


def raise_unscored(compiled: CompiledGenerator, compile_part: Callable[..., CompiledModel]) -> None:
    """Compile parts without scores again, more accurately each time, until the whole meets the goals over tokens.

    The last result is kept if none meets them, or if no part can become more accurate.

    Args:
        compiled: The whole; its parts are replaced.
        compile_part: Compiles a part, with goals in addition to those of the request.
    """
    parts = compiled.unscored
    if not parts or not {"max_kl", "min_top1"} & {name for name, goal in compiled.goals.items() if goal is not None}:
        return
    asked = compiled.goals.get("min_snr") or 0.0
    if compiled.measure() is None or not compiled.missed():
        return
    why = compiled.missed()[0]
    for limit in (step for step in _STEPS if step > asked):
        for part in parts:
            try:
                found = compile_part(part, min_snr=limit)
            except ResultError as error:  # the most accurate one that there is
                found = error.compiled
            compiled.replace(part, found)
        if compiled.measure() is None:
            return
        if not compiled.missed():
            names = ", ".join(part.name for part in parts)
            compiled.note(f"{names}: held to an SNR of {limit:g} dB, because without that {why}")
            return
