"""The pass `drop-session-options`: options of sessions in a model's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.passes import Pass

if TYPE_CHECKING:
    from dovetail.ir import Model
    from dovetail.passes import Context

_KEY = "ort_config"


class DropSessionOptions(Pass):
    """Remove options of sessions from the metadata of a model.

    Given:  a model with the metadata entry `ort_config`, as ONNX Runtime reads it with ORT_LOAD_CONFIG_FROM_MODEL=1
    Result: the model without this entry

    Models come from anywhere, and options of sessions belong to the program that opens them.
    """

    name = "drop-session-options"
    stage = "normalize"
    after = ("normalize",)

    def run(self, model: Model, ctx: Context) -> bool:
        """Remove the entry."""
        if model.ir.metadata_props.pop(_KEY, None) is None:
            return False
        why = f"the metadata entry '{_KEY}' is left out: options of sessions are given by the program that opens them"
        ctx.remark("analysis", "", "session-options", why, suggest="pass them as SessionOptions where it is opened")
        return True
