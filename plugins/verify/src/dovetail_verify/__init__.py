"""Comparison of a result with its original, accuracy goals, and ranking of the nodes that lose accuracy."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the commands `verify`, `bisect` and `reduce`, and the compile options for verification and goals."""
    registry.command(
        "verify",
        "dovetail_verify.commands:VERIFY",
        "measure",
        "Run a model and its result on data, and compare the outputs.",
    )
    registry.command(
        "bisect",
        "dovetail_verify.commands:BISECT",
        "measure",
        "Rank the nodes that cost accuracy, and print what repairs it.",
    )
    registry.command(
        "reduce",
        "dovetail_verify.reducing.command:REDUCE",
        "measure",
        "Find the smallest part of a model that still fails.",
    )
    registry.option("verify", "dovetail_verify.option:VERIFY_RESULT")
