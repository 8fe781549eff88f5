"""`--fix-shape` of `compile` and `plan`: extents of inputs that a model leaves open become numbers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import UsageError

if TYPE_CHECKING:
    from dovetail.compiled import CompiledModel
    from dovetail.plugin import CompileJob, Proceed

__all__ = ["FIX_SHAPES", "OPTION", "shapes_by_name"]

OPTION = "fix-shapes"
"""The name of the option, under which a request records shapes by the names of inputs."""


class _FixShapesOption:
    """The option: `dovetail compile --fix-shape image:1x3x224x224`, `dovetail.compile(..., fix_shapes={...})`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        fix_shapes: Shapes of inputs by name, each a list of numbers or a text such as `1x3x224x224`.
    """

    commands = ("compile", "plan")
    keywords = ("fix_shapes",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--fix-shape`."""
        parser.add_argument(
            "--fix-shape",
            action="append",
            default=[],
            metavar="NAME:1x3x224x224",
            help="fix the shape of an input that the model leaves open (repeatable)",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """The keyword arguments.

        Raises:
            UsageError: A text is no name with a shape.
        """
        shapes = shapes_by_name(args.fix_shape)
        return {"fix_shapes": shapes} if shapes else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The shapes by name.

        Raises:
            UsageError: A shape is no list of positive numbers.
        """
        given = keywords.get("fix_shapes") or {}
        if not isinstance(given, Mapping):
            raise UsageError(f"fix_shapes={given!r} is no mapping from inputs to shapes")
        return {str(name): _shape(str(name), shape) for name, shape in given.items()}

    def compile(self, job: CompileJob, proceed: Proceed) -> CompiledModel:
        """Compile; `normalise` does the work."""
        return proceed()


def shapes_by_name(texts: Sequence[str]) -> dict[str, list[int]]:
    """Shapes by name, from texts.

    Raises:
        UsageError: A text is no name with a shape, or there are two for one name.
    """
    shapes: dict[str, list[int]] = {}
    for text in texts:
        name, colon, shape = text.rpartition(":")
        if not colon or not name:
            raise UsageError(f"--fix-shape {text!r} is not NAME:1x3x224x224")
        if name in shapes:
            raise UsageError(f"--fix-shape gives '{name}' twice", "leave one of them out")
        shapes[name] = _shape(name, shape)
    return shapes


def _shape(name: str, given: object) -> list[int]:
    parts = given.split("x") if isinstance(given, str) else given
    try:
        shape = [int(part) for part in parts]
    except (TypeError, ValueError):
        shape = [0]
    if not all(extent > 0 for extent in shape):
        raise UsageError(f"--fix-shape {name}:{given} is no shape", "write positive numbers: 1x3x224x224")
    return shape


FIX_SHAPES = _FixShapesOption()
