"""`--fix-shape`: replace open extents of model inputs by numbers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.cli import INPUTS, option_group
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of
from dovetail.plugin import Option
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    import onnx
    from dovetail.ir import Model
    from dovetail.passes import Context, Request


OPTION = "fix-shapes"
"""Name of the option, under which a request records shapes by input name."""

_OF_DATA = "data"  # keyword for the extents of the data; shapes of inputs contain a colon


class _FixShapesOption(Option):
    """The option: `dovetail compile --fix-shape image:1x3x224x224`, `dovetail.compile(..., fix_shapes={...})`.

    Keyword arguments of `dovetail.compile`, `dovetail.plan` and `dovetail.bisect`:
        fix_shapes: Shapes of inputs by name, each a list of numbers or a text such as `1x3x224x224`; or `data` for the
            extents that the data has (an array of samples counts 1, several batches of one length have that length);
            or a list of texts as after `--fix-shape`.
    """

    commands = ("compile", "plan", "bisect", "check")
    keywords = ("fix_shapes",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--fix-shape`."""
        option_group(parser, INPUTS).add_argument(
            "--fix-shape",
            action="append",
            default=[],
            metavar="NAME:1x3x224x224|data",
            help="fix an open shape (repeatable); `data` takes the extents of --data",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Convert the arguments to keyword arguments.

        Raises:
            UsageError: A text is not a name with a shape.
        """
        shapes, of_data = _parsed(args.fix_shape)
        if of_data:
            return {"fix_shapes": list(args.fix_shape)}
        return {"fix_shapes": shapes} if shapes else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shapes by name; those of data depend on the model, and are recorded by `requested`.

        Raises:
            UsageError: A shape is not a list of positive numbers.
        """
        shapes, of_data = _parsed(keywords.get("fix_shapes") or {})
        return {} if of_data else shapes

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """Return the request with the shapes of its data, if requested.

        Raises:
            UsageError: The request has no data.
            DovetailError: Two samples of the data differ in an open extent, or the data does not fit.
        """
        shapes, of_data = _parsed(keywords.get("fix_shapes") or {})
        if not of_data:
            return request
        if request.data is None:
            raise UsageError("--fix-shape data: there is no data to take extents of", "add --data FILE")
        from dovetail.plugin import input_data

        found = {**request.options.get(OPTION, {}), **shapes}
        named = _named_extents(model, found)
        for name, shape in input_data(request.data).extents(model).items():
            if name not in found:
                found[name] = [named.get((name, axis), extent) for axis, extent in enumerate(shape)]
        return replace(request, options={**request.options, OPTION: found})

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str]:
        """Return one `--fix-shape` per input, including the extents taken from the data."""
        texts = [f"{name}:{'x'.join(map(str, shape))}" for name, shape in recorded.items()]
        return [word for text in texts for word in ("--fix-shape", text)]


def shapes_by_name(texts: Sequence[str]) -> dict[str, list[int]]:
    """Parse texts to shapes by name.

    Raises:
        UsageError: A text is not a name with a shape, or a name has two shapes.
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
    """Return shapes by name, and whether the other inputs take those of the data."""
    if isinstance(given, Mapping):
        return {str(name): _shape(str(name), shape) for name, shape in given.items()}, False
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"fix_shapes={given!r} is no mapping from inputs to shapes", "give one, or the text 'data'")
    return shapes_by_name([text for text in texts if text != _OF_DATA]), _OF_DATA in texts


def _named_extents(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    """Return, by input and axis, the extents that follow from same-named extents of inputs with given shapes."""
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


Extents = list[int | str]
"""Extents of a value: a number, a name, or an empty text if undeclared."""


def fix_shapes(graph: onnx.GraphProto, ctx: Context, texts: Sequence[str] = ()) -> None:
    """Set the input shapes that the request fixes; a named extent gets the same number everywhere.

    Required by accelerators whose tools compile for one shape; where open extents cost something, placement suggests
    it.

    Args:
        graph: The main graph.
        ctx: The context; its request has the shapes by name.
        texts: Further shapes, `NAME:1x3x224x224`.

    Raises:
        DovetailError: There is no such input, or the shape contradicts the model.
    """
    wanted = {**ctx.request.options.get(OPTION, {}), **shapes_by_name(texts)}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name: value for value in graph.input if value.name not in constants}
    known: dict[str, int] = {}
    for name, shape in wanted.items():
        _check(name, shape, inputs, known)
    for name, shape in wanted.items():
        dims = inputs[name].type.tensor_type.shape.dim
        for _ in range(len(dims), len(shape)):
            dims.add()
        for dim, extent in zip(dims, shape, strict=True):
            dim.dim_value = extent
    for value in (*graph.input, *graph.output, *graph.value_info) if known else ():
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param in known:
                dim.dim_value = known[dim.dim_param]
    if wanted:
        said = ", ".join(f"'{name}' {'x'.join(map(str, shape))}" for name, shape in wanted.items())
        ctx.remark("passed", "", "fixed-shapes", f"inputs have the shapes that --fix-shape gives: {said}")


def _check(name: str, shape: Sequence[int], inputs: Mapping[str, onnx.ValueInfoProto], known: dict[str, int]) -> None:
    text = shlex.join(["--fix-shape", f"{name}:{'x'.join(map(str, shape))}"])
    if name not in inputs:
        listed = ", ".join(inputs) or "none"
        raise DovetailError(f"{text}: the model has no input '{name}'{did_you_mean(name, inputs)}", f"it has {listed}")
    declared = _extents(inputs[name])
    if declared is None:
        return
    if len(declared) != len(shape):
        raise DovetailError(f"{text}: '{name}' has {len(declared)} axes: {_text(declared)}", "give one number per axis")
    for extent, number in zip(declared, shape, strict=True):
        if isinstance(extent, int) and extent != number:
            raise DovetailError(f"{text}: '{name}' is {_text(declared)}", "only extents that are open can be fixed")
        if isinstance(extent, str) and extent and known.setdefault(extent, number) != number:
            other = f"'{extent}' is {known[extent]} elsewhere"
            raise DovetailError(f"{text}: {other}, and {number} here", "give an extent of one name the same number")


def _extents(value: onnx.ValueInfoProto) -> Extents | None:
    """Return the declared extents; None if no shape is declared.

    Some exporters write -1 for an open extent, or `?` as its name.
    """
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return None
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param.replace("?", "") for dim in declared.shape.dim]


def _text(shape: Sequence[object]) -> str:
    return f"[{', '.join(str(extent) or '?' for extent in shape)}]"
