"""`--fix-shape`: extents of inputs that a model leaves open become numbers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import UsageError
from dovetail.ir.required import name_of
from dovetail.plugin.options import Option

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Request


OPTION = "fix-shapes"
"""The name of the option, under which a request records shapes by the names of inputs."""

_OF_DATA = "data"  # the word for the extents that the data has; shapes of inputs have a colon


class _FixShapesOption(Option):
    """The option: `dovetail compile --fix-shape image:1x3x224x224`, `dovetail.compile(..., fix_shapes={...})`.

    Keyword arguments of `dovetail.compile`, `dovetail.plan` and `dovetail.bisect`:
        fix_shapes: Shapes of inputs by name, each a list of numbers or a text such as `1x3x224x224`; or `data` for the
            extents that the data has (a batch of samples counts 1); or a list of texts as after `--fix-shape`.
    """

    commands = ("compile", "plan", "bisect", "check")
    keywords = ("fix_shapes",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--fix-shape`."""
        parser.add_argument(
            "--fix-shape",
            action="append",
            default=[],
            metavar="NAME:1x3x224x224|data",
            help="fix the shape of an input that the model leaves open (repeatable); `data` takes the extents of "
            "--data, one sample at a time",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """The keyword arguments.

        Raises:
            UsageError: A text is no name with a shape.
        """
        shapes, of_data = _parsed(args.fix_shape)
        if of_data:
            return {"fix_shapes": list(args.fix_shape)}
        return {"fix_shapes": shapes} if shapes else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The shapes by name; those of data depend on the model, and are recorded by `requested`.

        Raises:
            UsageError: A shape is no list of positive numbers.
        """
        shapes, of_data = _parsed(keywords.get("fix_shapes") or {})
        return {} if of_data else shapes

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """The request with the shapes of its data, where those are wanted.

        Raises:
            UsageError: There is no data.
            DovetailError: Two samples of the data differ in an open extent, or the data does not fit.
        """
        shapes, of_data = _parsed(keywords.get("fix_shapes") or {})
        if not of_data:
            return request
        if request.data is None:
            raise UsageError("--fix-shape data: there is no data to take extents of", "add --data FILE")
        from dovetail.running import input_data

        found = {**request.options.get(OPTION, {}), **shapes}
        named = _named_extents(model, found)
        for name, shape in input_data(request.data).extents(model).items():
            if name not in found:
                found[name] = [named.get((name, axis), extent) for axis, extent in enumerate(shape)]
        return replace(request, options={**request.options, OPTION: found})

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str]:
        """One `--fix-shape` per input, with the extents that the data gave."""
        texts = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in recorded.items()]
        return [word for text in texts for word in ("--fix-shape", text)]


def shapes_by_name(texts: Sequence[str]) -> dict[str, list[int]]:
    """Shapes by name, from texts.

    Raises:
        UsageError: A text is no name with a shape, or there are two for one name.
    """
    shapes: dict[str, list[int]] = {}
    for text in texts:
        name, colon, shape = text.rpartition(":")
        if not colon or not name:
            raise UsageError(f"--fix-shape {text!r} is not NAME:1x3x224x224", "write that, or `data` for the data's")
        if name in shapes:
            raise UsageError(f"--fix-shape gives '{name}' twice", "leave one of them out")
        shapes[name] = _shape(name, shape)
    return shapes


def _parsed(given: object) -> tuple[dict[str, list[int]], bool]:
    """Shapes by name, and whether those of the data are wanted for the other inputs."""
    if isinstance(given, Mapping):
        return {str(name): _shape(str(name), shape) for name, shape in given.items()}, False
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"fix_shapes={given!r} is no mapping from inputs to shapes", "give one, or the text 'data'")
    return shapes_by_name([text for text in texts if text != _OF_DATA]), _OF_DATA in texts


def _named_extents(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    """By input and axis, the number that shapes of other inputs give to an extent of the same name."""
    extents = [(name_of(v), axis, str(extent)) for v in model.graph.inputs for axis, extent in enumerate(v.shape or ())
               if not isinstance(extent, int) and extent.value]  # fmt: skip
    numbers = {
        extent: shapes[name][axis] for name, axis, extent in extents if name in shapes and axis < len(shapes[name])
    }
    return {(name, axis): numbers[extent] for name, axis, extent in extents if extent in numbers}


def _shape(name: str, given: Any) -> list[int]:
    parts = given.split("x") if isinstance(given, str) else given
    try:
        shape = [int(part) for part in parts]
    except (TypeError, ValueError):
        shape = [0]
    if not all(extent > 0 for extent in shape):
        raise UsageError(f"--fix-shape {name}:{given} is no shape", "write positive numbers: 1x3x224x224")
    return shape


FIX_SHAPES = _FixShapesOption()
