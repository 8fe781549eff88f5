"""An accelerator that runs programs: regions that were compiled ahead of time, when the model was."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Say what there is; modules are imported when they are needed."""
    registry.emitter("acme-compiler", "dovetail_example_engine.compiler:Compiler")
    registry.engine("acme-runtime", "dovetail_example_engine.runtime:Runtime")
    registry.conversion("acme-channels-last", "dovetail_example_engine.layout:ChannelsLast")
    registry.conversion("acme-channels-first", "dovetail_example_engine.layout:ChannelsFirst")
    registry.policy("acme-aot", "dovetail_example_engine:policy.yaml")
    registry.cost_table("acme-aot", "dovetail_example_engine:costs.yaml")
    registry.partitioner("acme-chains", "dovetail_example_engine.chains:Chains")
