# What `dovetail.passes` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.passes.base import Pass as Pass, STAGES as STAGES, load_pass as load_pass, summary_of as summary_of
from dovetail.passes.composition import compose as compose
from dovetail.passes.context import Analysis as Analysis, Context as Context
from dovetail.passes.instrumentation import Instrumentation as Instrumentation
from dovetail.passes.manager import Manager as Manager
from dovetail.passes.pipeline import Pipeline as Pipeline
from dovetail.passes.request import BackendChoice as BackendChoice, PinOrigin as PinOrigin, Request as Request
from dovetail.passes.result import PassResult as PassResult, Result as Result
from dovetail.passes.steps import Fixpoint as Fixpoint, Nested as Nested

from dovetail.passes.backends import (
    asking as asking,
    check_installed as check_installed,
    load_backend_file as load_backend_file,
    load_chosen as load_chosen,
)
from dovetail.passes.instrumentation import Progress as Progress
from dovetail.passes.reproducer import METADATA_KEY as METADATA_KEY, versions as versions
from dovetail.passes.request import OBSERVER as OBSERVER
