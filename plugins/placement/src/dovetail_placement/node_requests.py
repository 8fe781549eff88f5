"""All node requests of a compilation, whatever their origin, and the nodes that each request is about."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from dovetail.errors import DovetailError
from dovetail.planning import IN_FLOATS, NodeRequest, identity, origin_of, parse_pin, select, walk
from dovetail.plugin.loading import calling

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context, Request
    from dovetail.plugin import Asked, Registry


LEVELS = ("low", "high")
"""Precisions that typing obeys; `IN_FLOATS` is for placement, and all others for the strategies of backends."""

ASKED = "asked"
"""Rule of the remark on a node that a backend does not get because the user asks for a precision that it lacks."""


class NodeRequests:
    """Analysis: the requests about nodes, of the user's request, of options and of the accuracy goals.

    A replayed plan is no part of it: its entries name nodes by structure, too; see `dovetail_placement.pins`.

    Args:
        model: The model; its nodes and names must not change while this is in use.
        request: The user's request.
        asked: What options add for this decision, such as accuracy goals; see `Context.asked`.
        registry: The registered options.
    """

    def __init__(self, model: Model, request: Request, asked: Asked, registry: Registry):
        self._model, self._request, self._asked, self._registry = model, request, asked, registry
        self._names = _Names(model)

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> NodeRequests:
        """Return the requests; the nodes of each are looked up when they are needed."""
        return cls(model, ctx.request, ctx.asked, ctx.registry)

    def pins(self) -> Iterator[NodeRequest]:
        """Yield the pins, those of the request last; later ones override earlier ones.

        Raises:
            DovetailError: A pin is malformed, or an option fails.
        """
        yield from (request for request in self._of_options if request.kind == "pin")
        for text in self._request.pins:
            selector, backend, formats = parse_pin(text)
            origin = self._request.pin_origins.get(text)
            if origin is None:
                yield NodeRequest("pin", selector, f"pin '{text}'", backend, formats)
            else:
                yield NodeRequest(
                    "pin", selector, origin.asked, backend, formats, names_of="source",
                    may_be_declined=origin.may_be_declined, if_declined=origin.if_declined, written=text,
                )  # fmt: skip

    def levels(self) -> Iterator[NodeRequest]:
        """Yield the requests for a low or high precision, of `--low`, `--high`, options and accuracy goals.

        Raises:
            DovetailError: An option fails.
        """
        yield from (request for request in self._of_options if request.precision in LEVELS)
        for level, selectors in zip(LEVELS, (self._request.low, self._request.high)):
            for selector in selectors:
                yield NodeRequest("precision", selector, f"--{level} {selector}", precision=level)
        for name, (level, asked_by) in self._asked.items():
            if level in LEVELS:
                yield NodeRequest("precision", name, asked_by, precision=level, names_of="node")

    def raised(self) -> set[ir.Node]:
        """Return the nodes for which the high precision is requested.

        Raises:
            DovetailError: A selector matches nothing, or an option fails.
        """
        return self._at_level("high")

    def lowered(self) -> set[ir.Node]:
        """Return the nodes for which the low precision is requested.

        Raises:
            DovetailError: A selector matches nothing, or an option fails.
        """
        return self._at_level("low")

    def in_floats(self) -> Iterator[NodeRequest]:
        """Yield the requests of accuracy goals that backends with integers do not take some nodes."""
        for name, (level, asked_by) in self._asked.items():
            if level == IN_FLOATS:
                yield NodeRequest("precision", name, asked_by, precision=IN_FLOATS, names_of="node")

    def of_backend(self, name: str) -> Iterator[NodeRequest]:
        """Yield the options' requests to the strategy of a backend; later requests override earlier ones.

        Raises:
            DovetailError: An option fails.
        """
        for request in self._of_options:
            if request.kind != "pin" and request.precision not in LEVELS and request.backend in ("", name):
                yield request
        for node, (element, asked_by) in self._asked.items():
            if element not in (*LEVELS, IN_FLOATS):
                yield NodeRequest("precision", f"name:{node}", asked_by, precision=element, names_of="source")

    def nodes_of(self, request: NodeRequest) -> list[ir.Node]:
        """Return the nodes that a request is about, in graph order; empty if preparation removed them.

        Strategies claim nodes of the main graph, with their bodies, so options name these alone.

        Raises:
            DovetailError: The selector names nodes of the prepared model, and matches none.
        """
        if request.names_of == "prepared":
            return self._names.select(request.selector)
        if request.kind == "pin":
            return self._names.kept(request.selector)
        found = self._in_main_graph(self._names.made_of(request.selector))
        if request.names_of == "node":
            return [node for node in found if node.name == request.selector]
        try:
            return found or self._in_main_graph(self._names.select(request.selector))
        except DovetailError:
            return []

    def _at_level(self, level: str) -> set[ir.Node]:
        return {node for one in self.levels() if one.precision == level for node in self.nodes_of(one)}

    def _in_main_graph(self, nodes: list[ir.Node]) -> list[ir.Node]:
        return [node for node in nodes if node.graph is self._model.graph]

    @cached_property
    def _of_options(self) -> list[NodeRequest]:
        found: list[NodeRequest] = []
        table = self._registry.option
        for name, recorded in self._request.options.items():
            if name in table:
                option = table[name]
                with calling(table.title(name)):
                    found += option.node_requests(recorded)
        return found


class _Names:
    """An index of the node names of one model, so that exact names need no walk over the graph per selector."""

    def __init__(self, model: Model):
        self._model = model

    @cached_property
    def _exact(self) -> dict[str, list[ir.Node]]:
        """The nodes by name, with and without the path of their body, and by the name of their first output."""
        found: dict[str, list[ir.Node]] = {}
        for path, node in walk(self._model):
            plain = node.name or ""
            for name in {plain, f"{path}/{plain}" if path else plain, identity(path, node)}:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def _made(self) -> dict[str, list[ir.Node]]:
        """The nodes by name, and by the names of the source nodes that they were made from."""
        found: dict[str, list[ir.Node]] = {}
        for _, node in walk(self._model):
            for name in dict.fromkeys((node.name or "", *origin_of(node))):
                found.setdefault(name, []).append(node)
        return found

    def select(self, selector: str) -> list[ir.Node]:
        """Return the same nodes as the function `select`.

        Raises:
            DovetailError: Nothing matches; the error suggests similar names.
        """
        if selector.startswith(("type:", "region:")):
            return select(self._model, selector)
        # An exact name takes precedence over a pattern, even if it contains wildcard characters.
        found = self._exact.get(_name_in(selector))
        return list(found) if found else select(self._model, selector)

    def kept(self, selector: str) -> list[ir.Node]:
        """Return the nodes that still have this name, or else those made from the source node of this name."""
        return list(self._exact.get(_name_in(selector)) or self.made_of(selector))

    def made_of(self, selector: str) -> list[ir.Node]:
        """Return all nodes with this name or made from the source node of this name; empty if it is gone."""
        return list(self._made.get(_name_in(selector), ()))


def _name_in(selector: str) -> str:
    return selector.removeprefix("name:") or selector
