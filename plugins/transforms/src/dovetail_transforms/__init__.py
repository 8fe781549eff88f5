"""Model transforms: normalization, lowering to older opsets, fusions, regions as models, and a rewriting framework."""

from dovetail.lazy_imports import attach_stub
from dovetail.plugin import hookimpl

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the passes and fusions of this plugin and its options for inputs."""
    registry.option("fix-shapes", "dovetail_transforms.canonicalize.fix_shapes:FIX_SHAPES")
    registry.option("fix-inputs", "dovetail_transforms.canonicalize.fix_inputs:FIX_INPUTS")
    registry.option("input-ranges", "dovetail_transforms.canonicalize.input_ranges:INPUT_RANGES")
    registry.pass_("normalize", "dovetail_transforms.canonicalize.normalize:Normalize")
    registry.pass_("fold-constants", "dovetail_transforms.canonicalize.fold_constants:FoldConstants")
    registry.pass_("unpack-sequences", "dovetail_transforms.canonicalize.unpack_sequences:UnpackSequences")
    registry.pass_("impossible-branches", "dovetail_transforms.canonicalize.impossible_branches:ImpossibleBranches")
    registry.pass_("cancel-transposes", "dovetail_transforms.canonicalize.cancel_transposes:CancelTransposes")
    registry.pass_("fold-batchnorm", "dovetail_transforms.canonicalize.fold_batchnorm:FoldBatchNorm")
    registry.pass_("fold-affine", "dovetail_transforms.canonicalize.fold_affine:FoldAffine")
    registry.pass_("remove-identity", "dovetail_transforms.canonicalize.clean_up:RemoveIdentity")
    registry.pass_("dead-code", "dovetail_transforms.canonicalize.clean_up:DeadCode")
    registry.pass_("fuse", "dovetail_transforms.fusions.fusion:Fuse")
    registry.edit("fuse-hardsigmoid", "dovetail_transforms.fusions.activations:FuseHardSigmoid")
    registry.edit("fuse-hardswish", "dovetail_transforms.fusions.activations:FuseHardSwish")
    registry.edit("fuse-swish", "dovetail_transforms.fusions.activations:FuseSwish")
    registry.edit("fuse-mish", "dovetail_transforms.fusions.activations:FuseMish")
    registry.edit("fuse-gelu", "dovetail_transforms.fusions.activations:FuseGelu")
    registry.edit("fuse-layernorm", "dovetail_transforms.fusions.normalization:FuseLayerNorm")
    registry.edit("fuse-rmsnorm", "dovetail_transforms.fusions.normalization:FuseRMSNorm")
    registry.edit("fuse-rotary", "dovetail_transforms.fusions.rotary:FuseRotary")
    registry.edit("fuse-attention", "dovetail_transforms.fusions.attention:FuseAttention")
    registry.edit("fuse-grouped-attention", "dovetail_transforms.fusions.attention:FuseGroupedAttention")
    registry.edit("fuse-multi-head-attention", "dovetail_transforms.fusions.contrib:FuseMultiHeadAttention")
    registry.edit("fuse-contrib-rotary", "dovetail_transforms.fusions.rotary:FuseContribRotary")
    registry.pass_("write-out", "dovetail_transforms.decompositions.decomposing:WriteOut")
    registry.edit("write-out", "dovetail_transforms.decompositions.decomposing:WriteOutNode")
    registry.pass_("lower-opset", "dovetail_transforms.lowering.lowering:LowerOpset")
