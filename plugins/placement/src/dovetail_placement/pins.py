"""Manual choices: claims of the highest priority, which meet the same rules as all others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.types import FLOATS
from dovetail.plan.placement import HOST
from dovetail.plan.selectors import parse_pin, select

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.plan.claim import Claim

__all__ = ["Pin", "pinned_claim", "resolve_pins"]


@dataclass(frozen=True, slots=True)
class Pin:
    """What the user wants for one node: a backend, and a precision or "" for the one that is chosen."""

    node: ir.Node
    backend: str
    precision: str
    text: str


def resolve_pins(model: Model, texts: Iterable[str], backends: Iterable[str]) -> dict[int, Pin]:
    """The pin of every pinned node by `id(node)`; a later pin wins over an earlier one.

    Raises:
        DovetailError: A selector matches nothing, a backend was not chosen, or a precision is none.
    """
    known = (*backends, HOST)
    pins = {}
    for text in texts:
        selector, backend, precision = parse_pin(text)
        if backend not in known:
            raise DovetailError(
                f"pin '{text}' names backend '{backend}', which was not chosen", f"chosen: {', '.join(known)}"
            )
        if precision and precision not in FLOATS:
            raise DovetailError(f"pin '{text}': '{precision}' is no precision", f"one of {', '.join(FLOATS)}")
        for node in select(model, selector):
            pins[id(node)] = Pin(node, backend, precision, text)
    return pins


def pinned_claim(claim: Claim, pin: Pin) -> Claim:
    """`claim` with its types narrowed to the pinned precision.

    Raises:
        DovetailError: No port can have that precision.
    """
    if not pin.precision:
        return replace(claim, because=f"pinned by '{pin.text}'")
    ports = {
        port: (pin.precision,) if pin.precision in types else types
        for port, types in claim.ports.items()
    }
    if claim.ports and not any(types == (pin.precision,) for types in ports.values()):
        offered = sorted({kind for types in claim.ports.values() for kind in types})
        raise DovetailError(
            f"pin '{pin.text}': {pin.backend} cannot compute '{claim.node.name}' in {pin.precision}",
            f"it offers {', '.join(offered)} there",
        )
    return replace(claim, ports=ports, role="pinned", because=f"pinned by '{pin.text}'")
