"""An int8 accelerator: what it takes is in the file beside this one, the rest in a few small classes."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Say what there is; modules are imported when they are needed."""
    registry.strategy("acme-roles", "dovetail_example_int8.roles:Roles")
    registry.edit("acme-unit-conv", "dovetail_example_int8.unit_conv:UnitConv")
    registry.fact("weight_bytes", "dovetail_example_int8.memory:weight_bytes")
    registry.observer("acme-percentile", "dovetail_example_int8.percentile:Percentile")
    registry.emitter("acme-files", "dovetail_example_int8.files:Files")
