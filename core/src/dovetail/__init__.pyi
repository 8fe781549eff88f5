# What `dovetail` exports, each name with its module: type checkers and `lazy_imports` read this.

from typing import Any

from dovetail.api import (
    compile as compile,
    load as load,
    load_plan as load_plan,
    open as open,
    plan as plan,
    plan_text as plan_text,
    save as save,
)
from dovetail.plugin.compiled import CompiledModel as CompiledModel
from dovetail.errors import (
    DovetailError as DovetailError,
    DovetailWarning as DovetailWarning,
    EngineWarning as EngineWarning,
    GoalError as GoalError,
    ResultError as ResultError,
    UsageError as UsageError,
    VerificationError as VerificationError,
)
from dovetail.ir.model import Model as Model
from dovetail.passes import Context as Context, Pass as Pass, Pipeline as Pipeline, Request as Request
from dovetail.passes.instrumentation import Instrumentation as Instrumentation
from dovetail.plugin import hookimpl as hookimpl, load_plugins as load_plugins

__version__: str

# What installed distributions add; see `dovetail.api_extensions`.
def __getattr__(name: str) -> Any: ...
