"""The `lower-opset` pass: rewrite a model for tools that read an older opset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dovetail.passes import Pass

from dovetail_transforms.lowering.lowering import LOWEST, lower_in_place

if TYPE_CHECKING:
    from dovetail.ir.model import Model
    from dovetail.passes import Context


@dataclass(frozen=True)
class LowerOpset(Pass):
    """Lower a normalised model to an older opset.

    Given:  opset 18   %y = ReduceMean <keepdims = 1> (%x, axes), where axes is the constant {-1}
    Result: opset 11   %y = ReduceMean <axes = [-1], keepdims = 1> (%x)

    Options:
        opset: The version of the default domain to lower the model to.
    """

    name = "lower-opset"
    after = ("normalise",)

    opset: int = LOWEST

    def run(self, model: Model, ctx: Context) -> bool:
        """Lower every node, or refuse the model and name the nodes that have no form in the opset."""
        return lower_in_place(model, self.opset, ctx)
