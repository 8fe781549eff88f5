# What backends and other plugins may use of `dovetail_verify`, each name with its module.

from dovetail.plugin import Registry
from dovetail_verify.arguments import GOALS as GOALS
from dovetail_verify.compare import (
    OutputVerification as OutputVerification,
    RunFunction as RunFunction,
    verify as verify,
)
from dovetail_verify.held_out import data_of_search as data_of_search
from dovetail_verify.functions import layers_of_request as layers_of_request
from dovetail_verify.layers import MeasuredLayer as MeasuredLayer
from dovetail_verify.measures import Compared as Compared, Judged as Judged
from dovetail_verify.runners import (
    CachedOriginal as CachedOriginal,
    reference_runner as reference_runner,
    source_runner as source_runner,
)

dovetail_api: int

def register(registry: Registry) -> None: ...
