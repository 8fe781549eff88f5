"""Front end for Paddle programs, the dialect of their models, and the option `--keep-unknown`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import options_of
from dovetail.plugin import Frontend, Option
from dovetail_onnx.dialect import OnnxDialect

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Request


class PaddleFrontend(Frontend):
    """Reads programs with their parameters, in a file of the same name with the suffix `.pdiparams`."""

    suffixes = (".pdmodel", ".json")

    def read(self, path: Path) -> Model:
        """Open a program as a model of `pd_op` operators, which the pass `lower-paddle` lowers to ONNX.

        Raises:
            DovetailError: The program or its parameters are malformed.
        """
        from dovetail.ir import Model, gc_paused

        parameters = path.with_suffix(".pdiparams")
        with gc_paused():
            if path.suffix == ".json":
                from dovetail_paddle.pir.program import read_pir

                return Model(read_pir(path, parameters), path, dialect=PaddleDialect())
            from dovetail_paddle.legacy.reading import read_program
            from dovetail_paddle.translate.program import translate

            return Model(translate(read_program(path), str(path), parameters), path, dialect=PaddleDialect())


class PaddleDialect(OnnxDialect):
    """ONNX dialect with the domains of Paddle; engines run the lowered model."""

    def runnable(self, model: Model) -> Model:
        """Return the model if it is lowered already, else a lowered copy."""
        from dovetail_paddle.lowering.lower_paddle import lowered_copy

        return lowered_copy(model)


class _KeepUnknownOption(Option):
    """The option: `dovetail compile --keep-unknown`, `dovetail.compile(..., keep_unknown=True)`.

    Keyword arguments of `dovetail.compile` and `dovetail.plan`:
        keep_unknown: Keep operators of a Paddle program that dovetail-paddle does not know as operators of the domain
            `paddle`, instead of refusing the program.
    """

    commands = ("compile", "plan", "bisect", "check")
    keywords = ("keep_unknown",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--keep-unknown` to the parser."""
        options_of(parser, "Paddle programs").add_argument(
            "--keep-unknown",
            action="store_true",
            help="keep operators of a Paddle program that are not known as operators of the domain `paddle`",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword argument."""
        return {"keep_unknown": True} if args.keep_unknown else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return whether the option is on."""
        return {"on": True} if keywords.get("keep_unknown") else {}

    def requested(self, request: Request, model: Model, keywords: Mapping[str, Any]) -> Request:
        """Add the option to the request."""
        if not keywords.get("keep_unknown"):
            return request
        from dovetail_paddle.lowering.lower_paddle import OPTION

        return replace(request, options={**request.options, OPTION: self.recorded(keywords)})

    def words(self, command: str, recorded: Mapping[str, Any]) -> Sequence[str]:
        """Return the option as a command-line argument."""
        return ["--keep-unknown"] if recorded else []


KEEP_UNKNOWN = _KeepUnknownOption()
