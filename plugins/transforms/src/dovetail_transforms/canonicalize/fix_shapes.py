"""`--fix-shape`: extents of inputs that a model leaves open become numbers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of
from dovetail.plugin import Option
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    import onnx
    from dovetail.ir import Model
    from dovetail.passes import Context, Request


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
        from dovetail.compiler import input_data

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


Extents = list[int | str]
"""Extents of a value: a number, a name, or an empty text where nothing is said."""


def fix_shapes(graph: onnx.GraphProto, ctx: Context, texts: Sequence[str] = ()) -> None:
    """Give inputs the shapes that the request fixes; an extent with a name is the same number everywhere.

    Accelerators whose tools compile for one shape need this; where open extents cost something, placement notes how.

    Args:
        graph: The main graph.
        ctx: Its request has the shapes by name.
        texts: Shapes besides those, `NAME:1x3x224x224`.

    Raises:
        DovetailError: There is no such input, or its shape does not fit what the model says.
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
    """The extents that a model declares; None where it declares no shape.

    Some exporters write -1 for an open extent, or `?` as its name.
    """
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return None
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param.replace("?", "") for dim in declared.shape.dim]


def _text(shape: Sequence[object]) -> str:
    return f"[{', '.join(str(extent) or '?' for extent in shape)}]"
