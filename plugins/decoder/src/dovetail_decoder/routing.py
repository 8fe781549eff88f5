"""One request for several models: entries that name nodes or inputs go to the parts that have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError
from dovetail.ir import name_of
from dovetail.planning import parse_pin, select
from dovetail.plugin import Edit

if TYPE_CHECKING:
    from dovetail.ir import Model

_SIZE = "max_size"
"""Keyword of the bytes that all weights may have."""

Asked = Callable[["Model", Any], bool]


def requests_of_parts(models: Mapping[str, Model], request: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the request of each part.

    Pins, edits and selectors of nodes, and shapes of inputs, go to the parts that have such a node or input. Names that
    no part has go to all of them, whose error names them. A size is that of the whole folder: each part has the share
    of it that its weights have of all weights.

    Args:
        models: The model of each part, by name.
        request: The keywords of `dovetail.compile`.
    """
    found = {name: dict(request) for name in models}
    if len(models) == 1:
        return found
    if request.get(_SIZE) is not None:
        for name, share in _shares(models).items():
            found[name][_SIZE] = (request[_SIZE], share)
    for key, asks in _ASKS.items():
        given = request.get(key)
        entries = _entries(given)
        if not entries:
            continue
        has = {name: [asks(model, entry) for entry in entries] for name, model in models.items()}
        for name, own in has.items():
            unknown = [not any(one[index] for one in has.values()) for index in range(len(entries))]
            kept = [entry for entry, mine, none in zip(entries, own, unknown) if mine or none]
            found[name][key] = dict(kept) if isinstance(given, Mapping) else tuple(kept)
    return found


def _shares(models: Mapping[str, Model]) -> dict[str, float]:
    """Return the share of each model in the bytes of all weights."""
    sizes = {
        name: sum(
            value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None
        )
        for name, model in models.items()
    }
    whole = sum(sizes.values())
    return {name: size / whole if whole else 1.0 for name, size in sizes.items()}


def _entries(given: object) -> list[Any]:
    """Return the entries of a keyword, one by one; the text `data` for shapes applies to all parts."""
    if isinstance(given, Mapping):
        return list(given.items())
    if isinstance(given, str):
        return [given] if given != "data" else []
    return list(given) if isinstance(given, Sequence) else []


def _has_node(model: Model, selector: Any) -> bool:
    try:
        return bool(select(model, str(selector)))
    except DovetailError:
        return False


def _has_pinned(model: Model, pin: Any) -> bool:
    return _has_node(model, parse_pin(str(pin))[0])


def _has_edited(model: Model, edit: Any) -> bool:
    return _has_node(model, Edit.parse(edit).at)


def _has_input(model: Model, shape: Any) -> bool:
    name = shape[0] if isinstance(shape, tuple) else str(shape).rpartition(":")[0]
    return any(name_of(value) == name for value in model.graph.inputs)


_ASKS: Mapping[str, Asked] = {
    "pins": _has_pinned, "low": _has_node, "high": _has_node, "edits": _has_edited,
    "fix_shapes": _has_input, "input_shapes": _has_input, "input_ranges": _has_input,
}  # fmt: skip
