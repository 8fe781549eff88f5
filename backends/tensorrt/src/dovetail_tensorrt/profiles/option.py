"""The options `--profile` and `--workspace`: input extents and memory limit of engines."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.cli import options_of
from dovetail.errors import DovetailError, UsageError
from dovetail.ir import name_of
from dovetail.plugin import Option
from dovetail.text import did_you_mean

from dovetail_tensorrt.engine_backends import engine_backend
from dovetail_tensorrt.profiles.bounds import ExtentBounds, bounds_from, named_extents, parse_profile

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context, Request
    from dovetail.planning import Plan
    from dovetail.plugin import CompileJob


OPTION = "tensorrt"
"""Name of the option in a request."""
PROFILES, WORKSPACE = "profiles", "workspace"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


class ProfileOption(Option):
    """The option: `--profile x:1x3x224x224:4x3x224x224:8x3x224x224`, `--workspace 1GiB`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        profiles: By the name of an input, its smallest, usual and largest shape; for an input whose numbers are used
            as extents `{"values": (smallest, usual, largest)}`. A value inside of the model whose extents depend on
            numbers may be named, too.
        workspace: The maximum memory that an engine may use in addition to its weights, in bytes, or as text: `1GiB`.
    """

    commands = ("compile", "plan", "bisect")
    keywords = (PROFILES, WORKSPACE)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--profile` and `--workspace` to the parser."""
        add = options_of(parser, "tensorrt").add_argument
        add(
            "--profile",
            action="append",
            default=[],
            metavar="NAME:MIN:OPT:MAX",
            help="build TensorRT engines for these shapes of an input, 1x3x224x224 each; =1,192 gives the numbers of "
            "an input that is used as a shape (repeatable)",
        )
        add(
            "--workspace",
            metavar="BYTES",
            help="the most memory that a TensorRT engine may use beside its weights: 1GiB",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword arguments.

        Raises:
            UsageError: A text is not a profile or not a number of bytes.
        """
        found: dict[str, Any] = {}
        profiles: dict[str, ExtentBounds] = {}
        for text in args.profile:
            name, bounds = parse_profile(text)
            if name in profiles:
                raise UsageError(f"--profile gives '{name}' twice", "leave one of them out")
            profiles[name] = bounds
        if profiles:
            found[PROFILES] = profiles
        if args.workspace:
            found[WORKSPACE] = args.workspace
        return found

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return profiles and workspace as plain data.

        Raises:
            UsageError: They are invalid.
        """
        found: dict[str, Any] = {}
        if profiles := _profiles(keywords):
            found[PROFILES] = {name: bounds.entry() for name, bounds in profiles.items()}
        if (given := keywords.get(WORKSPACE)) is not None:
            found[WORKSPACE] = _bytes(given)
        return found

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """Check the profiles against the model, and return the request unchanged.

        Raises:
            DovetailError: The model has no such value, a shape does not match its declaration, or two shapes contradict
                each other.
        """
        profiles = _profiles(keywords)
        # Work on a copy, so that the given model stays as its front end read it.
        model = model.clone() if profiles and model.untouched else model
        for name, bounds in profiles.items():
            _check(name, bounds, model)
        if profiles:
            named_extents(model, profiles)
        return request

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str]:
        """Return profiles and workspace as command-line arguments."""
        texts = [(name, bounds_from(name, entry).texts()) for name, entry in recorded.get(PROFILES, {}).items()]
        words = [word for name, points in texts for word in ("--profile", ":".join((name, *points)))]
        return [*words, *(("--workspace", str(recorded[WORKSPACE])) if WORKSPACE in recorded else ())]

    def begin(self, job: CompileJob) -> None:
        """Check that some backend uses the options; the emitter reads what is recorded.

        Raises:
            UsageError: No backend makes engines.
        """
        _check_backends(job.ctx, job.keywords)

    def planned(self, plan: Plan, model: Model, ctx: Context, keywords: Mapping[str, Any]) -> None:
        """Check that some backend uses the options.

        Raises:
            UsageError: No backend makes engines.
        """
        _check_backends(ctx, keywords)


def _check_backends(ctx: Context, keywords: Mapping[str, Any]) -> None:
    for name, argument in ((PROFILES, "--profile"), (WORKSPACE, "--workspace")):
        if keywords.get(name):
            engine_backend(ctx.backends, argument)


def _profiles(keywords: Mapping[str, Any]) -> dict[str, ExtentBounds]:
    given = keywords.get(PROFILES) or {}
    if not isinstance(given, Mapping):
        raise UsageError(f"profiles={given!r} is no mapping from inputs to shapes", "{'x': ((1, 3), (4, 3), (8, 3))}")
    return {
        str(name): bounds if isinstance(bounds, ExtentBounds) else bounds_from(str(name), bounds)
        for name, bounds in given.items()
    }


def _bytes(given: Any) -> int:
    found = _SIZE.fullmatch(str(given).strip())
    size = int(found[1]) * _UNITS[found[2].upper()] if found else 0
    if size <= 0:
        raise UsageError(f"--workspace {given} is no number of bytes", "such as 268435456, 256MiB or 1GiB")
    return size


def _check(name: str, bounds: ExtentBounds, model: Model) -> None:
    inputs = {name_of(value): value for value in model.graph.inputs}
    value = inputs.get(name) or next((out for node in model.graph for out in node.outputs if out.name == name), None)
    if value is None:
        listed = ", ".join(inputs) or "none"
        near = did_you_mean(name, inputs)
        raise DovetailError(f"--profile {name}: the model has no input '{name}'{near}", f"it has {listed}")
    if value.shape is None:
        return
    declared = "x".join(str(extent) if isinstance(extent, int) else str(extent.value or "?") for extent in value.shape)
    if len(value.shape) != len(bounds.shapes[0]):
        if bounds.values is not None and not value.shape:
            return
        raise DovetailError(
            f"--profile {name}: '{name}' has {len(value.shape)} axes ({declared})", "give one number per axis"
        )
    for axis, extent in enumerate(value.shape):
        asked = {point[axis] for point in bounds.shapes}
        if isinstance(extent, int) and asked != {extent}:
            raise DovetailError(
                f"--profile {name}: axis {axis} of '{name}' is {extent} ({declared}), and cannot be "
                f"{'..'.join(map(str, sorted(asked)))}",
                "only extents that the model leaves open have a range",
            )


PROFILE = ProfileOption()
