"""`--input-range`: the range of an input's integers, so that engines with fewer bits can compute with them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.cli import INPUTS, option_group
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of
from dovetail.plugin import Option
from dovetail.text import did_you_mean, printable

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    from dovetail.ir import Model
    from dovetail.passes import Context


OPTION = "input-ranges"
"""Name of the option, under which a request records ranges by input name."""

_RANGE = "dovetail.range"  # key of metadata of an input
_INTEGERS = re.compile(r"(-?\d{1,19})\.\.(-?\d{1,19})")


class InputRange(NamedTuple):
    """The least and the largest integer that an input may hold."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    def holds(self, array: np.ndarray) -> bool:
        """Check whether all elements are in the range."""
        return not array.size or bool(self.low <= array.min() and array.max() <= self.high)


class _InputRangesOption(Option):
    """The option: `dovetail compile --input-range attention_mask:0..1`, `dovetail.compile(..., input_ranges={...})`.

    Keyword arguments of `dovetail.compile`, `dovetail.plan` and `dovetail.bisect`:
        input_ranges: The least and the largest integer of inputs by name, each a pair or a text such as `0..1`; or a
            list of texts as after `--input-range`.
    """

    commands = ("compile", "plan", "bisect", "check")
    keywords = ("input_ranges",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--input-range`."""
        option_group(parser, INPUTS).add_argument(
            "--input-range",
            action="append",
            default=[],
            metavar="NAME:LOW..HIGH",
            help="promise that integers of an input stay in this range (repeatable)",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Convert the arguments to keyword arguments.

        Raises:
            UsageError: A text is not a name with a range.
        """
        ranges = ranges_by_name(args.input_range)
        return {"input_ranges": ranges} if ranges else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, list[int]]:
        """Return the ranges by name.

        Raises:
            UsageError: A range does not consist of two integers.
        """
        return {name: list(found) for name, found in ranges_by_name(keywords.get("input_ranges") or {}).items()}

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str]:
        """Return one `--input-range` per input."""
        texts = [f"{name}:{InputRange(*found)}" for name, found in recorded.items()]
        return [word for text in texts for word in ("--input-range", text)]


INPUT_RANGES = _InputRangesOption()


def ranges_by_name(given: object) -> dict[str, InputRange]:
    """Return the ranges of inputs by name.

    Args:
        given: A mapping from names to pairs or texts, or texts as after `--input-range`.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(given, Mapping):
        return {str(name): _range(str(name), one) for name, one in given.items()}
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"input_ranges={given!r} is no mapping from inputs to ranges", "give one: {'mask': (0, 1)}")
    found: dict[str, InputRange] = {}
    for text in texts:
        name, colon, one = text.rpartition(":")
        if not colon or not name:
            raise UsageError(f"--input-range {text!r} is not NAME:LOW..HIGH", "write for example attention_mask:0..1")
        if name in found:
            raise UsageError(f"--input-range gives '{name}' twice", "leave one of them out")
        found[name] = _range(name, one)
    return found


def declare_ranges(model: Model, ctx: Context) -> None:
    """Mark the inputs whose integers the request limits.

    Raises:
        DovetailError: There is no such input, or it holds no integers.
    """
    wanted = {name: InputRange(*found) for name, found in ctx.request.options.get(OPTION, {}).items()}
    inputs = {name_of(value): value for value in model.graph.inputs if not value.is_initializer()}
    for name, found in wanted.items():
        value = inputs.get(name)
        if value is None:
            listed = ", ".join(inputs) or "none"
            raise DovetailError(
                f"--input-range {name}:{found}: the model has no input '{name}'{did_you_mean(name, inputs)}",
                f"it has {listed}",
            )
        if value.dtype is None or not value.dtype.is_integer():
            kind = "of unknown type" if value.dtype is None else value.dtype.name.lower()
            raise DovetailError(
                f"--input-range {name}:{found}: '{name}' is {kind}", "only ranges of integers can be promised"
            )
        value.metadata_props[_RANGE] = str(found)
    if wanted:
        said = ", ".join(f"'{name}' {found}" for name, found in wanted.items())
        ctx.remark("passed", "", "input-ranges", f"inputs hold the integers that --input-range promises: {said}")


def declared_range(value: ir.Value) -> InputRange | None:
    """Return the range that an input is declared to have; None if there is none.

    Text in a foreign file is ignored unless it has the form of a range.
    """
    found = _INTEGERS.fullmatch(value.metadata_props.get(_RANGE, ""))
    if found is None or value.dtype is None or not value.dtype.is_integer():
        return None
    return InputRange(int(found[1]), int(found[2]))


def _range(name: str, given: Any) -> InputRange:
    matched = _INTEGERS.fullmatch(given) if isinstance(given, str) else None
    ends: Any = matched.groups() if matched is not None else given
    try:
        low, high = ends
        found = InputRange(int(low), int(high))
    except (TypeError, ValueError):
        found = InputRange(1, 0)
    if found.low > found.high:
        raise UsageError(
            f"--input-range {name}:{printable(str(given))} is no range of integers", "write two, the least first: 0..1"
        )
    return found
