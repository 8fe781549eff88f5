"""`--runtime`: the program that loads the folder of a compiled language model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dovetail.cli import LANGUAGE, option_group
from dovetail.errors import UsageError
from dovetail.plugin import Option

if TYPE_CHECKING:
    from dovetail.plugin import CompileJob

KEYWORD = "runtime"
OPENVINO_GENAI = "openvino-genai"
RUNTIMES = (OPENVINO_GENAI,)


class _RuntimeOption(Option):
    """The option: `dovetail compile FOLDER --runtime openvino-genai`, `dovetail.compile(..., runtime=...)`.

    Keyword arguments of `dovetail.compile`:
        runtime: `openvino-genai` for a folder that `openvino_genai.LLMPipeline` loads; by default the result is for the
            program that the source is for.
    """

    commands = ("compile",)
    keywords = (KEYWORD,)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--runtime`."""
        option_group(parser, LANGUAGE).add_argument(
            "--runtime",
            choices=RUNTIMES,
            help="for folders of language models: write the files of this program (default: those of the source)",
        )

    def keywords_of(self, args: argparse.Namespace) -> Mapping[str, Any]:
        """Return the keyword argument."""
        return {KEYWORD: args.runtime} if args.runtime else {}

    def begin(self, job: CompileJob) -> None:
        """Refuse a single model; folders take the keyword away before their parts are compiled.

        Raises:
            UsageError: A runtime is named.
        """
        if job.keywords.get(KEYWORD) is not None:
            raise UsageError("--runtime is for folders of language models", "name the folder, or leave it out")


RUNTIME = _RuntimeOption()
