"""Compilation for a device that is not present: `dovetail compile --target-only`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.cli import ENGINES, option_group
from dovetail.errors import UsageError
from dovetail.plugin import Option

from dovetail_runtime.engines import TARGET_ONLY

if TYPE_CHECKING:
    from dovetail.plugin import CompileJob

_KEYWORD = "target_only"


class TargetOnly(Option):
    """The option: `dovetail compile --target-only`, and `dovetail.compile(..., target_only=True)`.

    No engine is tried. Where inputs are run nevertheless, because there is data or a goal, regions of backends without
    an engine here are computed by the host's engines from the compiled model: its types and its integers, but not the
    device's exact arithmetic. A result that the host cannot run, such as an artifact for the device alone, is not
    verified, with a note.

    Keyword arguments of `dovetail.compile`:
        target_only: The result is for another machine.
    """

    commands = ("compile",)
    keywords = (_KEYWORD,)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--target-only` to the parser."""
        option_group(parser, ENGINES).add_argument(
            "--target-only",
            action="store_true",
            help="the device is elsewhere: load nothing on its engines",
        )

    def keywords_of(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Return the keyword argument.

        Raises:
            UsageError: Engines are to be tried nevertheless.
        """
        if args.target_only and args.try_engines:
            raise UsageError("--target-only tries no engines, and --try-engines asks for it", "leave one of them out")
        return {_KEYWORD: True} if args.target_only else {}

    def recorded(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return whether the result is for another machine, which is part of the plan."""
        return {_KEYWORD: True} if keywords.get(_KEYWORD) else {}

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str] | None:
        """Return the argument, which only `compile` has."""
        return ["--target-only"] if command == "compile" else []

    def begin(self, job: CompileJob) -> None:
        """Try no engines."""
        if TARGET_ONLY in job.request.options:
            job.ctx.try_engines = False


TARGET = TargetOnly()
