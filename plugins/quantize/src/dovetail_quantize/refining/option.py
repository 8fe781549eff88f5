"""The option `--refine` of `compile`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.plugin.options import Option

from dovetail_quantize.refining.steps import STEPS, parse_steps

if TYPE_CHECKING:
    pass


class Refine(Option):
    """The option: `dovetail compile --refine bias,rounding`, and `dovetail.compile(..., refine="bias,rounding")`.

    Keyword arguments of `dovetail.compile` and `dovetail.bisect`:
        refine: The refinements of quantised weights, as a text with commas or as names: `equalise`, `smooth`,
            `rounding`, `bias`; `none` for none. By default (None), those that each backend's file names.
    """

    commands = ("compile", "bisect")
    keywords = ("refine",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--refine`."""
        parser.add_argument(
            "--refine",
            metavar="STEPS",
            help=f"change quantised weights so that less is lost: some of {','.join(STEPS)}, or none; by default what "
            "each backend's file says",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """The keyword arguments.

        Raises:
            UsageError: There is no such refinement.
        """
        if args.refine is not None:
            parse_steps(args.refine)
        return {"refine": args.refine}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The refinements, in the order in which they run; nothing where the backends' files decide.

        Raises:
            UsageError: There is no such refinement.
        """
        given = keywords.get("refine")
        return {} if given is None else {"steps": list(parse_steps(given))}

    def words(self, command: str, recorded: Mapping[str, Any]) -> list[str] | None:
        """The steps as the command takes them; a plan is made without refining."""
        return None if command == "plan" else ["--refine", ",".join(recorded["steps"]) or "none"]


REFINE = Refine()
