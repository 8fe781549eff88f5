"""One thing of almost every kind; imported whenever Dovetail starts, so it imports nothing heavy."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    registry.command("hello", "dovetail_example_tools.command:HELLO", "extend", "Greet installed backends.")
    registry.option("hello", "dovetail_example_tools.option:GREETED")
    registry.frontend("toy", "dovetail_example_tools.toy:ToyFrontend")
    registry.pass_("relu-to-clip", "dovetail_example_tools.clips:ReluToClip")
    registry.pipeline("clips", "fixpoint(relu-to-clip),dead-code")
    registry.pipeline("clips-on-toy-npu", "backend:toy-npu(clips)")
    registry.solver("as-exported", "dovetail_example_tools.as_exported:solve")
    registry.edit("unit-conv", "dovetail_example_tools.unit_conv:UnitConv")
    registry.partitioner("pairs", "dovetail_example_tools.pairs:Pairs")
    registry.backend("toy-npu", "dovetail_example_tools.toy_npu:ToyNpu")
    registry.backend_format("operator-list", "dovetail_example_tools.operator_list:OperatorList")
    registry.executor("sequential", "dovetail_example_tools.sequential:Sequential")
    registry.result_store("zip", "dovetail_example_tools.archive:ZipStore")
