"""The option `--unit-conv`: a unit convolution next to a node, or wherever one pays off."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dovetail.cli import options_of
from dovetail.errors import UsageError
from dovetail.ir import FlatGraph
from dovetail.plugin import Edit, Option
from dovetail.text import pluralize

if TYPE_CHECKING:
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context, Request
    from dovetail_placement import EditPlace


OPTION, AUTO, EDIT, BACKEND = "unit-conv", "auto", "bpu-unit-conv", "bpu-int8"
_NAMED = 4


class UnitConvOption(Option):
    """The option: `--unit-conv concat_3:after`, and `dovetail.compile(model, unit_conv=["concat_3:after"])`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        unit_conv: Nodes, each with `:before` or `:after` (the default), or `auto`: wherever a unit convolution gives
            nodes on `bpu-int8` the neighbor that they lack, and brings more nodes than it costs.
    """

    commands = ("compile", "plan", "bisect")
    keywords = ("unit_conv",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--unit-conv` to the parser."""
        options_of(parser, "bpu-int8").add_argument(
            "--unit-conv",
            action="append",
            default=[],
            metavar="NODE[:before|after]",
            help="insert a convolution that changes nothing beside a node, which moves passive nodes to bpu-int8; "
            "auto: wherever it brings more nodes than it costs (repeatable)",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword argument."""
        return {"unit_conv": tuple(args.unit_conv)} if args.unit_conv else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return whether unit convolutions are requested wherever they pay off; single ones are edits of the request.

        Raises:
            UsageError: The argument is neither a text nor a list of texts.
        """
        return {AUTO: True} if AUTO in _given(keywords) else {}

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """Add the unit convolutions as edits to the request.

        Raises:
            UsageError: The request has no backend with unit convolutions.
        """
        given = _given(keywords)
        if given and not any(choice.name == BACKEND for choice in request.backends):
            raise UsageError("--unit-conv moves nodes to bpu-int8, which is not asked for", f"add --backend {BACKEND}")
        edits = tuple(str(Edit.parse(f"{EDIT}={text}")) for text in given if text != AUTO)
        return replace(request, edits=(*request.edits, *edits)) if edits else request

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str]:
        """Return `auto`; single unit convolutions are edits of the request."""
        return ["--unit-conv", AUTO] if recorded.get(AUTO) else []


@dataclass
class _Benefits:
    """The number of unit convolutions before some were inserted, and what each of these brings, by node."""

    before: int | None = None
    notes: dict[str | None, str] = field(default_factory=dict)


class UnitConvs:
    """Requested unit convolutions, and the benefit of those inserted.

    Attributes:
        wanted: Whether they are requested wherever they pay off, and not inserted yet.
    """

    @classmethod
    def compute(cls, model: Model, ctx: Context) -> UnitConvs:
        """Create the analysis of a model."""
        return cls(model, ctx)

    def __init__(self, model: Model, ctx: Context):
        self._kept = ctx.kept.of(_Benefits)
        self._flat = ctx.analysis(FlatGraph, model)
        self._number = sum(edit.kind == EDIT for edit in ctx.round.edits)
        # Edits named in the request are applied before placement.
        self._made = self._kept.before is not None and self._number > self._kept.before
        self.wanted = bool(ctx.request.options.get(OPTION, {}).get(AUTO)) and not self._made

    def keep(self, places: Sequence[EditPlace], backend: str) -> None:
        """Store the benefit of each place of one round."""
        notes: dict[str | None, str] = {}
        for place in places:
            names = ", ".join(f"'{node.name}'" for node in place.brought[:_NAMED])
            more = ", ..." if len(place.brought) > _NAMED else ""
            what = f"a unit convolution {place.side} it brings {pluralize(len(place.brought), 'node')} to {backend}"
            notes[place.node.name] = f"{what}: {names}{more}"
        self._kept.before, self._kept.notes = self._number, notes

    def notes(self) -> Iterator[tuple[ir.Node, str]]:
        """Yield the nodes with an automatic unit convolution, each with its benefit."""
        notes = self._kept.notes if self._made else {}
        yield from ((node, notes[node.name]) for node in (self._flat.nodes if notes else ()) if node.name in notes)


def _given(keywords: Mapping[str, Any]) -> tuple[str, ...]:
    given = keywords.get("unit_conv") or ()
    given = (given,) if isinstance(given, str) else given
    if not isinstance(given, Iterable) or not all(isinstance(text, str) and text for text in given):
        raise UsageError(
            f"unit_conv = {given!r} is no node and no list of nodes", "such as unit_conv=['concat_3:after']"
        )
    return tuple(dict.fromkeys(given))


UNIT_CONV = UnitConvOption()
