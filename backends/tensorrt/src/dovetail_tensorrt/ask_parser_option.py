"""The option `dovetail plan --ask-parser`: differences between the backend file and the real parser."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dovetail.cli import options_of
from dovetail.planning import Remark
from dovetail.plugin import Option
from dovetail.text import pluralize

from dovetail_tensorrt.engine_backends import engine_backend

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context
    from dovetail.planning import Plan
    from dovetail_schemas import FileBackend


_KEYWORD = "ask_parser"
_SUMMARY = "parser"
_RULE = "parser-differs"


class AskParserOption(Option):
    """The option: `dovetail plan MODEL --backend tensorrt --ask-parser`.

    Keyword argument of `dovetail.plan`:
        ask_parser: Compile in memory, ask the real parser about every node, and put the nodes for which it and the
            backend file differ into the plan: into its remarks, its notes, and `summary: parser`.
    """

    commands = ("plan",)
    keywords = (_KEYWORD,)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add `--ask-parser` to the parser."""
        options_of(parser, "tensorrt").add_argument(
            "--ask-parser",
            action="store_true",
            help="ask TensorRT's parser about every node, and list the nodes for which the backend file says otherwise",
        )

    def keywords_of(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the keyword argument."""
        return {_KEYWORD: True} if args.ask_parser else {}

    def recorded(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return nothing, because the option does not affect the plan."""
        return {}

    def planned(self, plan: Plan, model: Model, ctx: Context, keywords: Mapping[str, Any]) -> None:
        """Run the parser, and record where the answers differ.

        Raises:
            UsageError: No backend makes engines.
            NoLibrary: No parser is installed.
        """
        if not keywords.get(_KEYWORD):
            return
        backend = cast("FileBackend", engine_backend(ctx.backends, "--ask-parser"))
        from dovetail_tensorrt.ask_parser import answers
        from dovetail_tensorrt.libraries import library

        found = library()
        asked = list(answers(model, {node.name for node in plan.nodes}, ctx, backend, found))
        differences = [answer for answer in asked if answer.differs]
        plan.summary[_SUMMARY] = {
            "asked": found.title,
            "nodes": len(asked),
            "differences": [answer.as_dict() for answer in differences],
        }
        for answer in differences:
            plan.remarks.append(Remark("analysis", answer.node, "ask-parser", _RULE, str(answer)))
        agreed = f"{found.title} and the table agree on {pluralize(len(asked) - len(differences), 'node')}"
        more = f", and differ on {pluralize(len(differences), 'node')}" if differences else ""
        plan.remarks.append(Remark("analysis", "", "ask-parser", "parser-asked", agreed + more))
        plan.notes += [*map(str, differences), agreed + more]


ASK_PARSER = AskParserOption()
