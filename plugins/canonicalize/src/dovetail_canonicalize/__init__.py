"""Passes that bring a model to normal form: one opset, every node named, every value typed, constants folded."""

from dovetail.plugin import hookimpl

dovetail_api = 1


@hookimpl
def register(registry):
    """Register the passes of this plugin, and the option of one of them."""
    registry.option("fix-shapes", "dovetail_canonicalize.shape_option:FIX_SHAPES")
    registry.pass_("normalise", "dovetail_canonicalize.normalise:Normalise")
    registry.pass_("fold-constants", "dovetail_canonicalize.fold_constants:FoldConstants")
    registry.pass_("fold-batchnorm", "dovetail_canonicalize.fold_batchnorm:FoldBatchNorm")
    registry.pass_("fold-affine", "dovetail_canonicalize.fold_affine:FoldAffine")
    registry.pass_("remove-identity", "dovetail_canonicalize.remove_identity:RemoveIdentity")
    registry.pass_("dead-code", "dovetail_canonicalize.dead_code:DeadCode")
