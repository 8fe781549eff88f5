"""Names that the vendor's tools take, and that the model has in another form: another case, or another node.

Their optimiser writes a Div as a reciprocal and a Mul, and a Softmax as operators that end with such a Div;
files name the nodes that come out of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail_bpu_int8.vendor.asked import Asked, Named
    from dovetail_bpu_int8.vendor.model_names import ModelNames


_PARTS = ("_mul", "_reciprocal")  # of a Div
_DIV, _SOFTMAX = "Div", "Softmax"
_OPERATOR = "type:"


def take_other_names(asked: Asked, names: ModelNames) -> None:
    """Give nodes and operators the names that they have in the model, with a note for each.

    Args:
        asked: What files ask for; it is changed.
        names: The names of the model.
    """
    by_case = {name.lower(): name for name in names.operators}
    renamed: dict[str, str] = {}
    for named in asked.operators:
        own = by_case.get(named.selector.lower())
        if own is not None and named.selector not in names.operators:
            renamed[f"{_OPERATOR}{named.selector}"] = f"{_OPERATOR}{own}"
            asked.note(f"{named.place.where}, {named.key}: '{named.selector}' is taken for {own}", "write it so")
    asked.operators = [_renamed(one, renamed, _OPERATOR) for one in asked.operators]
    for named in asked.nodes:
        node = _node_of(named.selector, names)
        if node and named.selector not in renamed:
            renamed[named.selector] = node
            why = f"'{named.selector}' exists only after the vendor's optimiser; it is taken for '{node}'"
            asked.note(f"{named.place.where}, {named.key}: {why}", "name the node of the model")
    if not renamed:
        return
    asked.nodes = [_renamed(one, renamed) for one in asked.nodes]
    asked.placed = [(_renamed(one, renamed), where) for one, where in asked.placed]
    asked.wishes = [{**wish, "node": renamed.get(wish["node"], wish["node"])} for wish in asked.wishes]


def _renamed(named: Named, renamed: dict[str, str], prefix: str = "") -> Named:
    own = renamed.get(f"{prefix}{named.selector}")
    return named if own is None else named._replace(selector=own.removeprefix(prefix))


def _node_of(name: str, names: ModelNames) -> str:
    """The node of the model that becomes a node of the vendor's tool; empty if that is no name of a part."""
    stem = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), "")
    if not stem or names.has(name):
        return ""
    if names.has(stem):
        return stem
    scope, _, last = stem.rpartition("/")
    softmax = f"{scope}/{_SOFTMAX}" if scope else _SOFTMAX
    return softmax if last == _DIV and names.has(softmax) else ""
