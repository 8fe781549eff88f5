"""Manual choices: claims of the highest priority, which meet the same rules as all others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.ir.bodies import body_nodes
from dovetail.ir.types import FLOATS
from dovetail.planning.identity import identity, structural_keys, walk
from dovetail.planning.placement import HOST
from dovetail.planning.selectors import parse_pin, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx_ir as ir
    from dovetail.ir.model import Model
    from dovetail.planning.claim import Claim
    from dovetail.planning.plan import Plan

__all__ = ["Pin", "pinned_claim", "pins_of_bodies", "planned_pins", "resolve_pins"]


@dataclass(frozen=True, slots=True)
class Pin:
    """What somebody wants for one node.

    Attributes:
        node: The node.
        backend: The backend it shall have.
        ports: The type of each port, by name; `""` stands for all ports that are not named. Empty: whatever is chosen.
        text: Where the wish comes from, for messages.
    """

    node: ir.Node
    backend: str
    ports: Mapping[str, str]
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
        where = f"pin '{text}'"
        if backend not in known:
            chosen = f"chosen: {', '.join(known)}"
            raise DovetailError(f"{where} names backend '{backend}', which was not chosen", chosen)
        if precision and precision not in FLOATS:
            raise DovetailError(f"{where}: '{precision}' is no precision", f"one of {', '.join(FLOATS)}")
        for node in select(model, selector):
            pins[id(node)] = Pin(node, backend, {"": precision} if precision else {}, where)
    return pins


def planned_pins(model: Model, plan: Plan, backends: Iterable[str]) -> dict[int, Pin]:
    """A plan as pins: every node that it lists keeps its backend and its types.

    A node is found by the value it computes, else by its structure; one that the plan does not know is placed anew.

    Raises:
        DovetailError: The plan names a backend that was not chosen, or it fits no node of the model.
    """
    known, keys, pins = (*backends, HOST), structural_keys(model), {}
    for path, node in walk(model):
        entry = plan.find(identity(path, node), keys[id(node)])
        if entry is None:
            continue
        where = f"plan: node '{entry.name}'"
        if entry.backend not in known:
            raise DovetailError(
                f"{where} is on '{entry.backend}', which was not chosen", f"add --backend {entry.backend}"
            )
        types = {"": entry.precision, **entry.ports} if entry.precision in FLOATS or entry.ports else {}
        pins[id(node)] = Pin(node, entry.backend, types, where)
    if not pins and plan.nodes:
        raise DovetailError("the plan was made for another model: it knows no node of this one")
    return pins


def pins_of_bodies(model: Model, pins: Mapping[int, Pin]) -> dict[int, Pin]:
    """Pins for what goes along: a control-flow node and all nodes of its bodies are on one backend.

    Raises:
        DovetailError: Two of them are pinned to different backends.
    """
    added: dict[int, Pin] = {}
    for node in model.graph if pins else ():
        members = [node, *body_nodes(node)]
        pinned = [pins[id(member)] for member in members if id(member) in pins]
        if len(members) == 1 or not pinned:
            continue
        first = pinned[0]
        other = next((pin for pin in pinned if pin.backend != first.backend), None)
        if other is not None:
            raise DovetailError(
                f"{other.text}: '{other.node.name}' and '{first.node.name}' belong to '{node.name}', which one backend "
                f"runs whole, but they are pinned to {other.backend} and {first.backend}",
                f"pin '{node.name}' alone",
            )
        added |= {
            id(member): Pin(member, first.backend, {}, first.text) for member in members if id(member) not in pins
        }
    return added


def pinned_claim(claim: Claim, pin: Pin) -> Claim:
    """`claim` with its types narrowed to the pinned ones.

    Raises:
        DovetailError: No port can have the pinned type.
    """
    because = f"as {pin.text} says"
    if not pin.ports:
        return replace(claim, because=because)
    ports, fitted = {}, False
    for port, types in claim.ports.items():
        wanted = pin.ports.get(port, pin.ports.get("", ""))
        fits = wanted in types
        fitted |= fits
        if port in pin.ports and not fits:
            raise _cannot(pin, claim, wanted)
        ports[port] = (wanted,) if fits else types
    if claim.ports and not fitted and pin.ports.get("", "") in FLOATS:
        raise _cannot(pin, claim, pin.ports[""])
    return replace(claim, ports=ports, role="pinned", because=because, keep=frozenset())


def _cannot(pin: Pin, claim: Claim, wanted: str) -> DovetailError:
    offered = sorted({kind for types in claim.ports.values() for kind in types})
    return DovetailError(
        f"{pin.text}: {pin.backend} cannot compute '{claim.node.name}' in {wanted}",
        f"it offers {', '.join(offered)} there",
    )
