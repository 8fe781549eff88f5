# What backends and other plugins may use of `dovetail_cpu_bf16`, each name with its module.

from dovetail.plugin import Registry
from dovetail_cpu_bf16.decompositions import fusion_barrier as fusion_barrier
from dovetail_cpu_bf16.engine import OpenVinoCpu as OpenVinoCpu
from dovetail_cpu_bf16.pools import (
    UNFUSED as UNFUSED,
    insert_barrier_after as insert_barrier_after,
    is_read_by_others as is_read_by_others,
)
from dovetail_cpu_bf16.session_start import OpenVinoStart as OpenVinoStart

dovetail_api: int

def register(registry: Registry) -> None: ...
