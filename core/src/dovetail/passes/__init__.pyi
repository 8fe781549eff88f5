# What `dovetail.passes` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.passes.composition import compose as compose
from dovetail.passes.instrumentation import Instrumentation as Instrumentation
from dovetail.passes.manager import Manager as Manager
from dovetail.passes.pipeline import Pipeline as Pipeline
from dovetail.passes.reproducer import METADATA_KEY as METADATA_KEY, versions as versions
from dovetail.planning.request import (
    OBSERVER as OBSERVER,
    BackendChoice as BackendChoice,
    PinOrigin as PinOrigin,
    Request as Request,
)
from dovetail.plugin.context import Analysis as Analysis, Context as Context, Progress as Progress
from dovetail.plugin.pass_ import Pass as Pass, STAGES as STAGES, load_pass as load_pass
from dovetail.plugin.pass_result import PassResult as PassResult, Result as Result
from dovetail.plugin.steps import Fixpoint as Fixpoint, Nested as Nested
