"""The emitter: compiles a region, and gives the node that stands for it."""

from dovetail.plugin import Artifact, Emitter, EngineError, RegionModel, StandIn
from dovetail_runtime import engine_source

from dovetail_example_engine.program import NAME, packed

MOST_CHANNELS = 64


class Compiler(Emitter):
    """Compiles for the revision that the backend's options name."""

    def emit(self, region, folder):
        """Write the program.

        Raises:
            EngineError: A convolution has more channels than the accelerator's memory holds, or nothing says whether a
                value at the border is an image, whose channels the accelerator wants last.
        """
        for value in (*region.model.graph.inputs, *region.model.graph.outputs):
            if value.shape is None:
                why = f"the rank of '{value.name}' is not known, and images are handed over with the channels last"
                raise EngineError(why, node=region.nodes[0])
        for node in region.source.graph:
            channels = node.inputs[1].shape[0] if node.op_type == "Conv" else 0
            if channels > MOST_CHANNELS:
                why = f"'{node.name}' has {channels} channels, the accelerator holds {MOST_CHANNELS}"
                raise EngineError(why, node=node.name)
        revision = region.backend.chosen["revision"]
        (folder / NAME).write_bytes(packed(revision, engine_source(RegionModel(region.model))))
        border = {"into": ("acme-channels-last",), "out": ("acme-channels-first",)}
        return Artifact((NAME,), StandIn(attributes={"notes": f"revision {revision}"}, **border))
