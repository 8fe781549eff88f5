# What plugins may use of `dovetail_tune`, each name with its module.

from dovetail.plugin import Registry
from dovetail_tune.candidates import Candidate as Candidate, CandidateSet as CandidateSet
from dovetail_tune.statistics_of_pairs import Ratio as Ratio
from dovetail_tune.trial import CandidateTrial as CandidateTrial
from dovetail_tune.tuning_policy import (
    Conclusion as Conclusion,
    TuningContext as TuningContext,
    TuningPolicy as TuningPolicy,
)

dovetail_api: int
dovetail_kinds: dict[str, str]

def register(registry: Registry) -> None: ...
