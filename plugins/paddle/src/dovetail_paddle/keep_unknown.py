"""`--keep-unknown`: operators of Paddle that have no rule stay operators of a domain of their own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dovetail.plugin.options import Option

from dovetail_paddle.lowering.lower_paddle import OPTION

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Request


class _KeepUnknownOption(Option):
    """The option: `dovetail compile --keep-unknown`, `dovetail.compile(..., keep_unknown=True)`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        keep_unknown: Keep operators of a Paddle program that dovetail-paddle does not know as operators of the domain
            `paddle`, instead of refusing the program.
    """

    commands = ("compile", "plan", "bisect", "check")
    keywords = ("keep_unknown",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--keep-unknown`."""
        parser.add_argument(
            "--keep-unknown",
            action="store_true",
            help="keep operators of a Paddle program that are not known as operators of the domain `paddle`",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """The keyword argument."""
        return {"keep_unknown": True} if args.keep_unknown else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """That it is on."""
        return {"on": True} if keywords.get("keep_unknown") else {}

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """The request with the option."""
        if not keywords.get("keep_unknown"):
            return request
        return replace(request, options={**request.options, OPTION: self.recorded(keywords)})

    def words(self, command: str, recorded: Mapping[str, Any]) -> Sequence[str]:
        """The option itself."""
        return ["--keep-unknown"] if recorded else []


KEEP_UNKNOWN = _KeepUnknownOption()
