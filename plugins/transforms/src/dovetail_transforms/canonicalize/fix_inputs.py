"""`--fix-input`: replace inputs of a model by constants."""

from __future__ import annotations

import argparse
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.cli import INPUTS, option_group
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of
from dovetail.plugin import Option
from dovetail.text import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model


_MOST = 1024  # elements; larger constants belong into the model
_FIXED = "dovetail.fixed-inputs"  # key of metadata of a graph


class _FixInputsOption(Option):
    """The option: `dovetail compile --fix-input sr=16000`, `dovetail.compile(..., fix_inputs={"sr": 16000})`.

    Keyword arguments of `dovetail.compile`, `dovetail.plan` and `dovetail.bisect`:
        fix_inputs: Values of inputs by name: a number, a truth value, or a (nested) list or array of at most 1,024; a
            number fills an input of a known shape. Or a list of texts as after `--fix-input`.
    """

    commands = ("compile", "plan", "bisect", "check")
    keywords = ("fix_inputs",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--fix-input`."""
        option_group(parser, INPUTS).add_argument(
            "--fix-input",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="fix an input to a value and remove it: sr=16000, size=480,640 (repeatable)",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Convert the arguments to keyword arguments.

        Raises:
            UsageError: A text is not a name with a value.
        """
        return {"fix_inputs": _by_name(args.fix_input)} if args.fix_input else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by name, as numbers and lists.

        Raises:
            UsageError: A value is not made of numbers.
        """
        return _by_name(keywords.get("fix_inputs") or {})

    def source(self, model: Model, recorded: Mapping[str, Any]) -> Model:
        """Return a copy of the model in which the inputs are constants.

        Raises:
            DovetailError: There is no such input, or the value does not fit it.
        """
        fixed = model.clone()
        inputs = {name_of(value): value for value in fixed.graph.inputs}
        for name, given in recorded.items():
            if name not in inputs:
                listed = ", ".join(inputs) or "none"
                problem = f"{_words(name, given)}: the model has no input '{name}'{did_you_mean(name, inputs)}"
                raise DovetailError(problem, f"it has {listed}")
            _fix(fixed.graph, inputs[name], given)
        fixed.graph.metadata_props[_FIXED] = json.dumps(dict(recorded))
        fixed.touch()
        return fixed

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str] | None:
        """Return one `--fix-input` per input; None if one has several axes, which texts cannot say."""
        if any(isinstance(given, list) and any(isinstance(one, list) for one in given) for given in recorded.values()):
            return None
        return [word for name, given in recorded.items() for word in ("--fix-input", f"{name}={_text(given)}")]


FIX_INPUTS = _FixInputsOption()


Given = TypeVar("Given")


def without_fixed(graph: ir.Graph, given: Mapping[str, Given]) -> Mapping[str, Given]:
    """Return arrays without those of inputs that were fixed: data of the model with these inputs remains usable.

    Args:
        graph: The graph of a model, or of a result, that `--fix-input` may have changed.
        given: Arrays, lists or numbers by name.

    Raises:
        DovetailError: An array has another value than the input was fixed to.
    """
    import numpy as np

    text = graph.metadata_props.get(_FIXED)
    if not text:
        return given
    fixed = json.loads(text)
    for name, value in fixed.items():
        if name in given and not np.all(np.asarray(given[name]) == np.asarray(value)):
            problem = f"'{name}' was fixed to {_text(value)} (--fix-input), and is given another value"
            raise DovetailError(problem, "leave it out, or compile for this value")
    return {name: value for name, value in given.items() if name not in fixed}


def _by_name(given: object) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {str(name): _plain(str(name), value) for name, value in given.items()}
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"fix_inputs={given!r} is not a mapping from inputs to values", "give one: {'sr': 16000}")
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"--fix-input {text!r} is not NAME=VALUE", "write an input and a number: sr=16000")
        if name in found:
            raise UsageError(f"--fix-input gives '{name}' twice", "leave one of them out")
        numbers = [_number(name, part) for part in value.split(",")]
        found[name] = numbers if len(numbers) > 1 else numbers[0]
    return found


def _number(name: str, text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise UsageError(f"--fix-input {name}={text}: '{text}' is not a number", "write numbers, true or false")


def _plain(name: str, value: Any) -> Any:
    """Return a value as a number or nested lists of numbers."""
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # lists of several lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"fix_inputs: the value of '{name}' is not made of numbers", "give a number, a list or an array"
        )
    if array.size > _MOST:
        raise UsageError(
            f"fix_inputs: '{name}' gets {array.size} numbers; {_MOST} are the most", "store it in the model"
        )
    return array.tolist()


def _fix(graph: ir.Graph, value: ir.Value, given: Any) -> None:
    """Make a constant of an input."""
    import onnx_ir as ir

    name = name_of(value)
    if not isinstance(value.type, ir.TensorType) or value.dtype is None or value.dtype is ir.DataType.STRING:
        raise DovetailError(f"{_words(name, given)}: '{name}' is not a tensor of numbers", "leave it an input")
    tensor = ir.tensor(_array(value, given), dtype=value.dtype, name=name)
    value.const_value, value.shape = tensor, ir.Shape(tensor.shape.numpy())
    graph.inputs.remove(value)
    if name not in graph.initializers:
        graph.register_initializer(value)


def _array(value: ir.Value, given: Any) -> np.ndarray:
    """Return the value in the type and the shape of its input.

    Raises:
        DovetailError: It has another shape, or numbers that the type does not hold.
    """
    import numpy as np

    name, plain = name_of(value), np.asarray(given)
    declared = list(value.shape) if value.shape is not None else [None] * plain.ndim
    known = [extent for extent in declared if isinstance(extent, int)]
    if not plain.ndim and len(known) == len(declared) and math.prod(known) <= _MOST:
        plain = np.full(known, plain)
    if plain.ndim != len(declared) or any(
        isinstance(extent, int) and extent != own for extent, own in zip(declared, plain.shape, strict=True)
    ):
        wanted, own = (", ".join(map(str, shape)) for shape in (declared, plain.shape))
        raise DovetailError(f"{_words(name, given)}: '{name}' is [{wanted}], the value is [{own}]", "give that shape")
    assert value.dtype is not None
    target = value.dtype.numpy()
    with np.errstate(all="ignore"):
        array = plain.astype(target)
    whole = value.dtype.is_integer() or target == np.bool_
    if not np.isfinite(array.astype(np.float64)).all() or whole and not np.array_equal(array, plain):
        raise DovetailError(f"{_words(name, given)}: {target.name} does not hold this value", "give one that it holds")
    return array


def _words(name: str, given: Any) -> str:
    return shlex.join(["--fix-input", f"{name}={_text(given)}"])


def _text(given: Any) -> str:
    flat: Sequence[Any] = given if isinstance(given, list) else [given]
    return ",".join(str(one).lower() if isinstance(one, bool) else str(one) for one in flat)
