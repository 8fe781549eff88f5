"""Passes: the base class, pipelines and their text, and the manager."""

from dovetail.passes.base import STAGES, Pass, load_pass
from dovetail.passes.compose import compose
from dovetail.passes.context import Analysis, Context
from dovetail.passes.instrumentation import Instrumentation
from dovetail.passes.manager import Manager
from dovetail.passes.pipeline import Fixpoint, Pipeline
from dovetail.passes.reproducer import run_reproducer
from dovetail.passes.request import BackendChoice, Request
from dovetail.passes.result import PassResult, Result

__all__ = [
    "STAGES",
    "Analysis",
    "BackendChoice",
    "Context",
    "Fixpoint",
    "Instrumentation",
    "Manager",
    "Pass",
    "PassResult",
    "Pipeline",
    "Request",
    "Result",
    "compose",
    "load_pass",
    "run_reproducer",
]
