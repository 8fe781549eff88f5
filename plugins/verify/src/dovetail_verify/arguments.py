"""Arguments that `compile`, `verify` and `bisect` share: accuracy goals, and shapes of random inputs."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dovetail.cli import ACCURACY, INPUTS, option_group
from dovetail.errors import UsageError
from dovetail.ir import name_of

if TYPE_CHECKING:
    from dovetail.ir import Model


InputShapes: TypeAlias = "Mapping[str, Sequence[int]] | Sequence[str | Path] | str | Path | None"
"""Shapes by input name, or texts: `NAME:1x3x48x320`, or the path of a file of arrays with these shapes."""


GOALS = ("min_snr", "min_cosine", "min_top1", "max_abs", "max_kl", "max_perplexity_rise")
"""Names of the accuracy goals, as keyword arguments have them."""


class _Once(argparse.Action):
    """Store a value; another one for the same goal contradicts it."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        given = getattr(namespace, self.dest)
        if given is not None and given != values:
            raise UsageError(f"{option} {given} and {option} {values} contradict each other", "leave one of them out")
        setattr(namespace, self.dest, values)


def add_goals(parser: argparse.ArgumentParser) -> None:
    """Add the options for accuracy goals."""
    add = functools.partial(option_group(parser, ACCURACY).add_argument, action=_Once)
    add("--min-snr", metavar="DB", help="goal for every float output on the data: signal to noise, in decibels")
    add("--min-cosine", metavar="C", help="cosine similarity, at most 1")
    add("--min-top1", metavar="SHARE", help="share of rows of scores with the same largest element: 0.99 or 99%%")
    add("--max-abs", metavar="X", help="largest difference of any element")
    add("--max-kl", metavar="NATS", help="mean divergence of the distributions that rows of logits stand for")
    add(
        "--max-perplexity-rise",
        metavar="SHARE",
        help="rise of the perplexity of labels: 0.01 or 1%%",
    )


def goals_of(args: argparse.Namespace, *, data_later: bool = False) -> dict[str, Any]:
    """Return the goals as keyword arguments of `dovetail.compile` and `dovetail.verify`.

    Args:
        args: The command line.
        data_later: Do not check for data yet, because other options may provide it.

    Raises:
        UsageError: A goal is not a number in its range, or there is no data to measure it on.
    """
    from dovetail_verify.accuracy.goals import Goals

    goals = Goals(**{name: getattr(args, name) for name in GOALS})
    if not data_later:
        goals.check_data(args.data)
    return goals.as_dict()


def add_input_shapes(parser: argparse.ArgumentParser) -> None:
    """Add the option for shapes of random inputs."""
    option_group(parser, INPUTS).add_argument(
        "--input-shapes",
        action="append",
        default=[],
        metavar="NAME:1x3x48x320|FILE",
        help="shape of a random input that is left open (repeatable), or a file of arrays",
    )


def checked_shapes(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the values of `--input-shapes` for the keyword argument `input_shapes`.

    Raises:
        UsageError: A text is neither a shape nor a file.
    """
    for text in args.input_shapes:
        if not Path(text).is_file():
            _shape_in(text)
    return tuple(args.input_shapes)


def shapes_of(given: InputShapes, model: Model) -> dict[str, tuple[int, ...]]:
    """Resolve the keyword argument `input_shapes` to shapes of random inputs by name.

    Raises:
        UsageError: A text is neither a shape nor a file.
        DovetailError: A file cannot be read.
    """
    if isinstance(given, Mapping):
        return {name: tuple(shape) for name, shape in given.items()}
    shapes: dict[str, tuple[int, ...]] = {}
    for text in (given,) if isinstance(given, (str, Path)) else given or ():
        if Path(text).is_file():
            from dovetail_runtime.data.sources import array_shapes

            names = list(map(name_of, model.graph.inputs))
            shapes |= array_shapes(Path(text), names)
        else:
            name, shape = _shape_in(str(text))
            shapes[name] = shape
    return shapes


def _shape_in(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, extents = text.rpartition(":")
    if not colon or not name or not all(part.isdecimal() for part in extents.split("x")):
        raise UsageError(f"{text!r} is neither NAME:1x3x48x320 nor a file of arrays")
    return name, tuple(map(int, extents.split("x")))


def decibels_of(name: str, given: float | str | None) -> float | None:
    """Return the least SNR that an option asks for, in decibels; None without one.

    Args:
        name: The keyword argument, for the message.
        given: A number or a text.

    Raises:
        UsageError: It is not a number of at least 0.
    """
    if given is None:
        return None
    try:
        value = float(given)  # the command line passes text
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(given, bool) or not math.isfinite(value) or value < 0:
        raise UsageError(f"--{name.replace('_', '-')} {given} is no goal: it is decibels, 0 or more")
    return value
