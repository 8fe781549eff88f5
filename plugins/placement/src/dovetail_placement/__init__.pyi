# What backends and other plugins may use of `dovetail_placement`, each name with its module.

from dovetail.plugin import Registry
from dovetail_placement.artifacts.outline_regions import replace_region as replace_region
from dovetail_placement.edge_kinds import (
    Facts as Facts,
    is_trip_number as is_trip_number,
    operator_facts as operator_facts,
)
from dovetail_placement.node_requests import NodeRequests as NodeRequests
from dovetail_placement.place import replace_observer as replace_observer
from dovetail_placement.regions.topological import numbered_or_formed as numbered_or_formed
from dovetail_placement.search.graph import Edge as Edge, SearchGraph as SearchGraph
from dovetail_placement.search.shape_arithmetic import ShapeArithmetic as ShapeArithmetic
from dovetail_placement.source_scales import QdqNode as QdqNode, qdq_of as qdq_of
from dovetail_placement.strategies.every_node import Autocast as Autocast
from dovetail_placement.strategies.role_changes import EditPlace as EditPlace
from dovetail_placement.strategies.roles import Roles as Roles

dovetail_api: int

def register(registry: Registry) -> None: ...
